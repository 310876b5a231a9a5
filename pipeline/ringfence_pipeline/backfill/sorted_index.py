"""Sorted index: the numbers of held ids in sorted columns, built and asked for many ids at once.

It takes the place of `ringfence_state.id_index.HashIndex` where a worker reads a large state for
one batch, as Spark's workers often do. Ids are hashed in columns, those of stored segments without
an object for each. New ones form a *run*, sorted by hash; a run is merged with the one before it
unless that is twice as long, so there are few, and what is merged loses its dead numbers. The ids
of a run are all newer than those of the run before it.
"""

import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import chain, groupby
from secrets import randbits
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ringfence_state.segment import PackedIds

_WORD_BYTES: Final = 8
"""The size of an unsigned integer of 64 bits."""
_WORDS_MAX: Final = 9
"""Words of the longest stored id, that of a forgotten one included."""
_KEYS: Final = np.array(
    [([randbits(64)], [randbits(64) | 1]) for _ in range(_WORDS_MAX)], dtype=np.uint64
)
"""Secret, so that nobody can choose ids with equal hashes; equal ones cost time, not exactness."""
_ODD: Final = np.uint64(0x9E3779B97F4A7C15)
_BYTES_PER_ID: Final = 16


class _Run(NamedTuple):
    """Hashes in ascending order, and the number of each."""

    hashes: NDArray[np.uint64]
    numbers: NDArray[np.int64]

    def numbers_of(self, hash_: np.uint64, start: int) -> list[int]:
        """Return the numbers of one hash, which begins at an index, newest first."""
        end = start + int(np.searchsorted(self.hashes[start:], hash_, side="right"))
        found: list[int] = self.numbers[start:end].tolist()
        return sorted(found, reverse=True)


class SortedIndex:
    """An `IdIndex` of sorted columns."""

    __slots__ = ("_added", "_asked", "_floor", "_ids", "_runs", "ids_max")

    def __init__(self, _ids: int = 0) -> None:
        self._runs: list[_Run] = []
        self._added: list[tuple[Collection[bytes], int]] = []
        """Ids that are in no run yet, and their first numbers."""
        self._ids = 0
        self._floor = 0
        self._asked: Mapping[bytes, Sequence[int]] = {}
        """The ids that were asked for last, with the numbers that may be theirs, newest first."""
        self.ids_max = sys.maxsize

    @property
    def memory_bytes(self) -> int:
        """Estimated memory in bytes."""
        return self._ids * _BYTES_PER_ID

    def add(self, ids: Collection[bytes], first: int, floor: int) -> None:
        """Add ids with consecutive numbers from `first`; they are sorted when one is asked for."""
        self._added.append((ids, first))
        self._ids += len(ids)
        self._floor = floor
        self._asked = {}

    def may_hold(self, identifiers: Sequence[bytes]) -> Collection[bytes]:
        """Return those of these distinct ids that may be held."""
        self._sort()
        hashes = hashes_of(identifiers)
        order = np.argsort(hashes)  # a search in order is faster
        hashes = hashes[order]
        numbers: dict[bytes, list[int]] = {}
        for run in reversed(self._runs):
            starts = np.searchsorted(run.hashes, hashes)
            is_found = run.hashes[np.minimum(starts, len(run.hashes) - 1)] == hashes
            for at in np.flatnonzero(is_found).tolist():
                theirs = run.numbers_of(hashes[at], int(starts[at]))
                numbers.setdefault(identifiers[order[at]], []).extend(theirs)
        self._asked = {**dict.fromkeys(identifiers, ()), **numbers}
        return numbers.keys()

    def membership_test(self) -> Callable[[bytes], bool]:
        """Return a function that reports whether an id may be held."""
        return lambda identifier: bool(self._numbers(identifier))

    def numbers(self, identifier: bytes, floor: int, following: int) -> Iterator[int]:
        """Yield the numbers that may belong to this id, newest first."""
        return (each for each in self._numbers(identifier) if floor <= each < following)

    def _numbers(self, identifier: bytes) -> Sequence[int]:
        if identifier not in self._asked:
            self.may_hold([identifier])
        return self._asked[identifier]

    def _sort(self) -> None:
        """Make runs of the ids that are in none."""
        if not self._added:
            return
        hashes = np.concatenate([_hashes_of_parts(*each) for each in _alike(self._added)])
        numbers = np.concatenate([np.arange(first, first + len(ids)) for ids, first in self._added])
        self._added = []
        runs = self._runs
        while runs and len(runs[-1].hashes) < 2 * len(hashes):
            before = runs.pop()
            hashes = np.concatenate([before.hashes, hashes])
            numbers = np.concatenate([before.numbers, numbers])
            is_live = numbers >= self._floor
            hashes, numbers = hashes[is_live], numbers[is_live]
        order = np.argsort(hashes)
        if order.size:
            runs.append(_Run(hashes[order], numbers[order]))
        self._ids = sum(len(run.hashes) for run in runs)


def _alike(
    added: Sequence[tuple[Collection[bytes], int]],
) -> Iterator[tuple[int, list[Collection[bytes]]]]:
    """Yield a width, and the neighbours whose ids all have it in one piece; 0 for all others."""
    for width, parts in groupby(added, lambda each: getattr(each[0], "width", 0)):
        yield width, [ids for ids, _ in parts]


def _hashes_of_parts(width: int, parts: Sequence[Collection[bytes]]) -> NDArray[np.uint64]:
    if not width:
        return hashes_of(list(chain.from_iterable(parts)))
    content = b"".join(ids.content for ids in parts if isinstance(ids, PackedIds))
    letters = np.frombuffer(content, np.uint8).reshape(-1, width)
    padded = np.zeros((len(letters), -(-width // _WORD_BYTES) * _WORD_BYTES), np.uint8)
    padded[:, :width] = letters
    return _hashes(padded.view("<u8"))


def hashes_of(identifiers: Sequence[bytes]) -> NDArray[np.uint64]:
    """Return the hash of each id; ids that differ by trailing zeros have the same."""
    longest = max(map(len, identifiers), default=0)
    words = max(1, -(-longest // _WORD_BYTES))
    padded = np.array(identifiers, dtype=f"S{words * _WORD_BYTES}")
    return _hashes(padded.view("<u8").reshape(len(identifiers), words))


def _hashes(words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return the sum of a keyed mix of each word; one of zero adds nothing."""
    found = np.zeros(len(words), np.uint64)
    for column, (key, odd) in zip(words.T, _KEYS, strict=False):
        found += _mixed(column ^ key, odd) - _mixed(key, odd)
    return found


def _mixed(word: NDArray[np.uint64], odd: NDArray[np.uint64]) -> NDArray[np.uint64]:
    mixed = word * _ODD
    mixed ^= mixed >> np.uint64(32)
    mixed *= odd
    return mixed ^ mixed >> np.uint64(29)
