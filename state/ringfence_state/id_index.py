"""Id index: the numbers of the ids that a state holds, by id, without the ids.

An index may take an id for held that is not, never the reverse; so what it says is compared with
the stored id. `HashIndex` has hash buckets, and takes new ids one by one.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from struct import Struct
from typing import Final, Protocol


class IdIndex(Protocol):
    """The numbers of held ids."""

    ids_max: int
    """Above this number of ids, another index is worth building."""

    @property
    def memory_bytes(self) -> int:
        """Estimated memory in bytes."""
        ...

    def add(self, ids: Collection[bytes], first: int, floor: int) -> None:
        """Add ids with consecutive numbers from `first`, above all before.

        Numbers below `floor` are dead, and may be dropped.
        """
        ...

    def may_hold(self, identifiers: Sequence[bytes]) -> Collection[bytes]:
        """Return those of these distinct ids that may be held; none that is held is left out."""
        ...

    def membership_test(self) -> Callable[[bytes], bool]:
        """Return a function, called for every record, that reports whether an id may be held."""
        ...

    def numbers(self, identifier: bytes, floor: int, following: int) -> Iterator[int]:
        """Yield the numbers in [floor, following) that may belong to this id, newest first."""
        ...


MakeIndex = Callable[[int], IdIndex]
"""Takes about how many ids the index is to hold."""


# Measured: with fewer ids per bucket the buckets take more memory, with more a search takes longer.
_IDS_PER_BUCKET: Final = 48
_ENTRY: Final = Struct("<HI")
_TAG: Final = Struct("<H")
_NUMBER: Final = Struct("<I")
_TAG_SHIFT: Final = 40
_TAG_MASK: Final = 0xFFFF
_NUMBER_MASK: Final = 0xFFFF_FFFF
_FULL_BYTES: Final = 2 * _IDS_PER_BUCKET * _ENTRY.size
"""Size at which a bucket drops its dead entries: twice what it should hold.

So dead entries take about as much memory as living ones at most, and many additions pass between
two searches for them.
"""
_BUCKET_OVERHEAD_BYTES: Final = 128
"""Measured: the object, its slot in the list and its spare capacity."""


def bucket_count(ids: int) -> int:
    """Return how many buckets an index for so many ids has."""
    return 1 << max(0, (ids - 1) // _IDS_PER_BUCKET).bit_length()


def memory_bytes_max(ids: int) -> int:
    """Return the most that an index for so many ids takes: all buckets full of dead entries too."""
    return bucket_count(ids) * (_FULL_BYTES + _BUCKET_OVERHEAD_BYTES)


class HashIndex:
    """Hash buckets of tags and numbers, sized for about `ids` ids; more make it slow, not wrong."""

    __slots__ = ("_buckets", "_mask", "_used_bytes", "ids_max")

    def __init__(self, ids: int) -> None:
        count = bucket_count(ids)
        self._buckets = [bytearray() for _ in range(count)]
        self._mask = count - 1
        self._used_bytes = 0
        self.ids_max = count * _IDS_PER_BUCKET * 2
        """Above this number of ids, a larger index is worth building."""

    @property
    def memory_bytes(self) -> int:
        """Estimated memory in bytes."""
        return self._used_bytes + len(self._buckets) * _BUCKET_OVERHEAD_BYTES

    def add(self, ids: Collection[bytes], first: int, floor: int) -> None:
        """Add ids with consecutive numbers from `first`; drop dead ones where a bucket is full."""
        buckets, mask, pack, added = self._buckets, self._mask, _ENTRY.pack, 0
        for number, digest in enumerate(map(hash, ids), first):
            bucket = buckets[digest & mask]
            if len(bucket) >= _FULL_BYTES:
                added -= _drop_dead(bucket, floor, number)
            bucket += pack(digest >> _TAG_SHIFT & _TAG_MASK, number & _NUMBER_MASK)
            added += _ENTRY.size
        self._used_bytes += added

    def may_hold(self, identifiers: Sequence[bytes]) -> Collection[bytes]:
        """Return those of these distinct ids that may be held."""
        return list(filter(self.membership_test(), identifiers))

    def membership_test(self) -> Callable[[bytes], bool]:
        """Return a closure that reports whether an id may be held."""
        buckets, mask, pack = self._buckets, self._mask, _TAG.pack

        def may_hold(identifier: bytes) -> bool:
            digest = hash(identifier)
            # Measured: of all ways to search the bytes, a search from the end is fastest.
            return buckets[digest & mask].rfind(pack(digest >> _TAG_SHIFT & _TAG_MASK)) >= 0

        return may_hold

    def numbers(self, identifier: bytes, floor: int, following: int) -> Iterator[int]:
        """Yield the numbers that may belong to this id, newest first."""
        digest = hash(identifier)
        bucket = self._buckets[digest & self._mask]
        tag = _TAG.pack(digest >> _TAG_SHIFT & _TAG_MASK)
        at = bucket.rfind(tag)
        while at >= 0:
            if at % _ENTRY.size == 0:
                number = _number_at(bucket, at, floor)
                if number < following:
                    yield number
            at = bucket.rfind(tag, 0, at + len(tag) - 1)


def _number_at(bucket: bytearray, at: int, floor: int) -> int:
    """Return the number of an entry at or above the floor; for a dead entry, one above all."""
    (low,) = _NUMBER.unpack_from(bucket, at + _TAG.size)
    return floor + (int(low) - floor & _NUMBER_MASK)


def _drop_dead(bucket: bytearray, floor: int, following: int) -> int:
    """Delete the leading entries below the floor, and return how many bytes they took."""
    end = 0
    while end < len(bucket) and _number_at(bucket, end, floor) >= following:
        end += _ENTRY.size
    del bucket[:end]
    return end
