"""Redrive checkpoint: the progress of a redrive on a deciding partition.

There is one for each partition of dead letters. The checkpoint changes in the transaction that
decides the letters, so letters at or below it are decided and are not decided again, whoever sends
them. It is deleted with the end of its redrive and with nothing else: `clear_state` forgets all
ids, but what a letter let through is still in the output.

Key: that of an address, with the redrive's id in its place, then the partition and the topic of the
dead letters.
"""

import struct
from collections.abc import Callable, Iterator, Mapping
from typing import Final, NamedTuple

from state.keys import prefix, reader_of, rest_of, unknown
from state.model import Edit, PartitionId
from state.segment import FORMAT
from state.store import Store

KIND: Final = b"j"

_MARK: Final = struct.Struct("<BqQQQQ")
_PARTITION: Final = struct.Struct(">I")


class RedriveCheckpoint(NamedTuple):
    """The offset of the last dead letter that is decided, and what became of all so far."""

    done: int = -1
    accepted: int = 0
    refused: int = 0
    waiting: int = 0
    failed: int = 0


def mark_of(store: Store, redrive: str, letters: PartitionId) -> RedriveCheckpoint:
    """How far a redrive has come in one partition of dead letters."""
    value = store.get(_key(redrive, letters))
    return RedriveCheckpoint() if value is None else decode(value)


def put(redrive: str, letters: PartitionId, mark: RedriveCheckpoint) -> Edit:
    """The edit that writes a mark."""
    return Edit(_key(redrive, letters), encode(mark))


def marks_in(store: Store, redrive: str) -> Iterator[tuple[PartitionId, RedriveCheckpoint]]:
    """All marks of a redrive."""
    for key, value in store.scan(prefix(KIND, redrive)):
        yield _letters_of(key), decode(value)


def removal(store: Store, redrive: str) -> list[Edit]:
    """The edits that take all marks of a redrive away."""
    return [Edit(key, None) for key, _ in store.scan(prefix(KIND, redrive))]


def encode(mark: RedriveCheckpoint) -> bytes:
    """A mark as the value of its key."""
    return _MARK.pack(FORMAT, *mark)


def decode(value: bytes) -> RedriveCheckpoint:
    """What `encode` wrote; UnknownFormatError for anything else."""
    try:
        return reader_of(value, _READERS)(value)
    except struct.error as error:
        raise unknown(value) from error


def check(key: bytes, value: bytes) -> None:
    """Raise UnknownFormatError for an entry that we have not written."""
    _letters_of(key)
    decode(value)


def _decode_1(value: bytes) -> RedriveCheckpoint:
    _, *fields = _MARK.unpack(value)
    return RedriveCheckpoint(*fields)


_READERS: Final[Mapping[int, Callable[[bytes], RedriveCheckpoint]]] = {1: _decode_1}


def _key(redrive: str, letters: PartitionId) -> bytes:
    return prefix(KIND, redrive) + _PARTITION.pack(letters.partition) + letters.topic.encode()


def _letters_of(key: bytes) -> PartitionId:
    rest = rest_of(key)
    try:
        (partition,) = _PARTITION.unpack_from(rest)
        return PartitionId(rest[_PARTITION.size :].decode(), partition)
    except (struct.error, UnicodeDecodeError) as error:
        raise unknown(key) from error
