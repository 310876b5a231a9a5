"""Index: from ids to their numbers in about twelve bytes an id, however long the ids are.

Ids are spread over buckets by their hash; a bucket is a string of entries, oldest first, each a
tag (more of the hash) and the low half of a number. It may answer too much, never too little, so
whoever asks makes sure. An entry below the floor is dead, and dropped when its bucket is full.
"""

from collections.abc import Callable, Iterable, Iterator
from struct import Struct
from typing import Final

# Measured: shorter buckets cost memory for each, longer ones time to search.
_IDS_PER_BUCKET: Final = 48
_ENTRY: Final = Struct("<HI")
_TAG: Final = Struct("<H")
_NUMBER: Final = Struct("<I")
_TAG_SHIFT: Final = 40
_TAG_MASK: Final = 0xFFFF
_NUMBER_MASK: Final = 0xFFFF_FFFF
_FULL_BYTES: Final = 2 * _IDS_PER_BUCKET * _ENTRY.size
# Measured: the object, its place in the list and what it has in reserve.
_BUCKET_OVERHEAD_BYTES: Final = 128


class Index:
    """For a ring of about so many ids; more of them make it slow, not wrong."""

    __slots__ = ("_buckets", "_mask", "_used_bytes", "ids_max")

    def __init__(self, ids: int) -> None:
        count = 1 << max(0, (ids - 1) // _IDS_PER_BUCKET).bit_length()
        self._buckets = [bytearray() for _ in range(count)]
        self._mask = count - 1
        self._used_bytes = 0
        self.ids_max = count * _IDS_PER_BUCKET * 2
        """With more ids than these a larger index is worth its making."""

    @property
    def memory_bytes(self) -> int:
        """What it takes, about."""
        return self._used_bytes + len(self._buckets) * _BUCKET_OVERHEAD_BYTES

    def add(self, ids: Iterable[bytes], first: int, floor: int) -> None:
        """Ids with consecutive numbers, higher than all before; dead is what is below `floor`."""
        buckets, mask, pack, added = self._buckets, self._mask, _ENTRY.pack, 0
        for number, digest in enumerate(map(hash, ids), first):
            bucket = buckets[digest & mask]
            if len(bucket) >= _FULL_BYTES:
                added -= _drop_dead(bucket, floor, number)
            bucket += pack(digest >> _TAG_SHIFT & _TAG_MASK, number & _NUMBER_MASK)
            added += _ENTRY.size
        self._used_bytes += added

    def asker(self) -> Callable[[bytes], bool]:
        """Whether an id may be in it, as a closure: what is asked of every record."""
        buckets, mask, pack = self._buckets, self._mask, _TAG.pack

        def may_hold(identifier: bytes) -> bool:
            digest = hash(identifier)
            # Of all ways to search a string, measured, the one that begins at its end is fastest.
            return buckets[digest & mask].rfind(pack(digest >> _TAG_SHIFT & _TAG_MASK)) >= 0

        return may_hold

    def numbers(self, identifier: bytes, floor: int, following: int) -> Iterable[int]:
        """The numbers from `floor` to below `following` that may be this id's, newest first."""
        digest = hash(identifier)
        bucket = self._buckets[digest & self._mask]
        tag = _TAG.pack(digest >> _TAG_SHIFT & _TAG_MASK)
        place = bucket.rfind(tag)
        return () if place < 0 else _numbers(bucket, tag, place, floor, following)


def _numbers(
    bucket: bytearray, tag: bytes, place: int, floor: int, following: int
) -> Iterator[int]:
    while place >= 0:
        if place % _ENTRY.size == 0:
            number = _number_at(bucket, place, floor)
            if number < following:
                yield number
        place = bucket.rfind(tag, 0, place + len(tag) - 1)


def _number_at(bucket: bytearray, place: int, floor: int) -> int:
    """The number of an entry, if it is alive; else one that is far beyond all."""
    (low,) = _NUMBER.unpack_from(bucket, place + _TAG.size)
    return floor + (int(low) - floor & _NUMBER_MASK)


def _drop_dead(bucket: bytearray, floor: int, following: int) -> int:
    """Cut off the entries below the floor; how many bytes that were."""
    end = 0
    while end < len(bucket) and _number_at(bucket, end, floor) >= following:
        end += _ENTRY.size
    del bucket[:end]
    return end
