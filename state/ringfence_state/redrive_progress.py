"""Redrive checkpoints: the progress of a redrive on a deciding partition.

There is one for each partition of a dead-letter topic. It changes in the transaction that decides
the dead letters, so a dead letter at or below it is decided and never decided again, even if two
coordinators send it. Only the end of its redrive deletes it: `clear_state` forgets all ids, but the
records that a redrive has accepted are still in the output.

Key: like that of an address, with the redrive's id in place of the address, then the partition and
the topic of the dead letters.
"""

import struct
from collections.abc import Callable, Iterator, Mapping
from typing import Final, NamedTuple

from ringfence_state.keys import prefix, reader_of, rest_of, unknown
from ringfence_state.model import Edit, PartitionId
from ringfence_state.segment import FORMAT
from ringfence_state.store import Store

KIND: Final = b"j"

_CHECKPOINT: Final = struct.Struct("<BqQQQQ")
_PARTITION: Final = struct.Struct(">I")


class RedriveCheckpoint(NamedTuple):
    """The offset of the last decided dead letter, and the number of each outcome so far."""

    done: int = -1
    accepted: int = 0
    refused: int = 0
    waiting: int = 0
    failed: int = 0


def mark_of(store: Store, redrive: str, letters: PartitionId) -> RedriveCheckpoint:
    """Return the checkpoint of a redrive for one partition of dead letters."""
    value = store.get(_key(redrive, letters))
    return RedriveCheckpoint() if value is None else decode(value)


def put(redrive: str, letters: PartitionId, checkpoint: RedriveCheckpoint) -> Edit:
    """Return the edit that writes a checkpoint."""
    return Edit(_key(redrive, letters), encode(checkpoint))


def marks_in(store: Store, redrive: str) -> Iterator[tuple[PartitionId, RedriveCheckpoint]]:
    """Yield all checkpoints of a redrive, by partition of dead letters."""
    for key, value in store.scan(prefix(KIND, redrive)):
        yield _letters_of(key), decode(value)


def removal(store: Store, redrive: str) -> list[Edit]:
    """Return the edits that delete all checkpoints of a redrive."""
    return [Edit(key, None) for key, _ in store.scan(prefix(KIND, redrive))]


def encode(checkpoint: RedriveCheckpoint) -> bytes:
    """Return a checkpoint as the value of its key."""
    return _CHECKPOINT.pack(FORMAT, *checkpoint)


def decode(value: bytes) -> RedriveCheckpoint:
    """Return the checkpoint that `encode` wrote; raise UnknownFormatError for other bytes."""
    try:
        return reader_of(value, _READERS)(value)
    except struct.error as error:
        raise unknown(value) from error


def check(key: bytes, value: bytes) -> None:
    """Raise UnknownFormatError for an entry that this version did not write."""
    _letters_of(key)
    decode(value)


def _decode_1(value: bytes) -> RedriveCheckpoint:
    _, *fields = _CHECKPOINT.unpack(value)
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
