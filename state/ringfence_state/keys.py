"""Keys of state entries, in a store and in the changelog.

A key has the kind, the length and name of the address, and a suffix that depends on the kind. So
the entries of one kind and address are adjacent, in the order of their suffixes.
"""

import struct
from collections.abc import Mapping
from functools import lru_cache
from typing import Final, TypeVar

R = TypeVar("R")

SEGMENTS: Final = b"r"
"""Ids in segments; the suffix is the number of the first id (`segment.py`)."""
FIRST: Final = b"a"
"""Kinds are lower-case letters, so every key of a strategy is at or above this one."""

_AFTER_ALL: Final = b"\xff" * 9
"""Sorts after every suffix: each begins with a number or with text."""


class UnknownFormatError(ValueError):
    """A key or value in a format that this version does not write."""


def unknown(entry: bytes) -> UnknownFormatError:
    """Return the error for such a key or value; it shows the first 64 bytes in hex."""
    return UnknownFormatError(entry[:64].hex())


def reader_of(value: bytes, readers: Mapping[int, R]) -> R:
    """Return the reader for the format in the first byte of a value.

    Raises UnknownFormatError for an empty value and for a format without a reader.
    """
    reader = readers.get(value[0]) if value else None
    if reader is None:
        raise UnknownFormatError(f"format {value[0]}" if value else "no bytes")
    return reader


@lru_cache(1 << 14)
def prefix(kind: bytes, address: str) -> bytes:
    """Return the common prefix of all keys of a kind and an address."""
    name = address.encode()
    return kind + struct.pack(">H", len(name)) + name


def after(kind: bytes, address: str) -> bytes:
    """Return a key that sorts after all keys of a kind and an address."""
    return prefix(kind, address) + _AFTER_ALL


def address_of(key: bytes) -> str:
    """Return the address of a key; raise UnknownFormatError if this version did not write it."""
    return _split(key)[0]


def rest_of(key: bytes) -> bytes:
    """Return the suffix of a key, after kind and address."""
    return key[_split(key)[1] :]


def _split(key: bytes) -> tuple[str, int]:
    try:
        (length,) = struct.unpack_from(">H", key, 1)
        end = 3 + length
        is_whole = len(key) == end + 8 if key[:1] == SEGMENTS else len(key) >= end
        if not (key[:1].islower() and is_whole):
            raise unknown(key)
        return key[3:end].decode(), end
    except (struct.error, UnicodeDecodeError) as error:
        raise unknown(key) from error
