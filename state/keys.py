"""Keys: where the entries of an address stand in a store and in the changelog.

Kind, length and name of the address, then what the kind adds: entries of one kind and address
are adjacent, in the order of what is added.
"""

import struct
from collections.abc import Mapping
from functools import lru_cache
from typing import Final, TypeVar

R = TypeVar("R")

RUNS: Final = b"r"
"""Ids in runs, by the number of their first; see `run.py`."""
FIRST: Final = b"a"
"""Kinds are small letters, so all keys of strategies stand from here on."""

_AFTER_ALL: Final = b"\xff" * 9
"""After everything that a kind adds first: a number, or text."""


class UnknownFormatError(ValueError):
    """A key or value that this version did not write."""


def unknown(entry: bytes) -> UnknownFormatError:
    """The error that shows how such a key or value begins."""
    return UnknownFormatError(entry[:64].hex())


def reader_of(value: bytes, readers: Mapping[int, R]) -> R:
    """What reads a value, by the format that its first byte names; a newer one is refused."""
    reader = readers.get(value[0]) if value else None
    if reader is None:
        raise UnknownFormatError(f"format {value[0]}" if value else "no bytes")
    return reader


@lru_cache(1 << 14)
def prefix(kind: bytes, address: str) -> bytes:
    """The beginning of all keys of a kind and an address."""
    name = address.encode()
    return kind + struct.pack(">H", len(name)) + name


def after(kind: bytes, address: str) -> bytes:
    """A key after all of a kind and an address."""
    return prefix(kind, address) + _AFTER_ALL


def address_of(key: bytes) -> str:
    """The address that a key belongs to; UnknownFormatError when it is no key of ours."""
    return _split(key)[0]


def rest_of(key: bytes) -> bytes:
    """What a key adds to kind and address."""
    return key[_split(key)[1] :]


def _split(key: bytes) -> tuple[str, int]:
    try:
        (length,) = struct.unpack_from(">H", key, 1)
        end = 3 + length
        is_whole = len(key) == end + 8 if key[:1] == RUNS else len(key) >= end
        if not (key[:1].islower() and is_whole):
            raise unknown(key)
        return key[3:end].decode(), end
    except (struct.error, UnicodeDecodeError) as error:
        raise unknown(key) from error
