"""Ring administration: measure, list, forget and clear a ring by its segments.

A forgotten id leaves its number behind, so the others are evicted no sooner. A cleared ring keeps
counting, so later ids are never taken for older ones.
"""

from collections.abc import Iterable, Iterator
from functools import partial
from typing import NamedTuple

from state.keys import RUNS, UnknownFormatError, after, prefix
from state.model import Edit, Origin
from state.segment import FORGOTTEN, Segment, decode, encode, key, put, row_of, summary
from state.store import Store
from state.strategies.base import Occupancy
from state.strategies.ring import extent_of


class RingEntry(NamedTuple):
    """One id that a ring holds, with its number."""

    number: int
    identifier: bytes
    origin: Origin


def entries(store: Store, address: str, below: int, floor: int) -> Iterator[RingEntry]:
    """What a ring holds, the newest first, of numbers from below one on down to its floor."""
    begin = prefix(RUNS, address)
    run_key = store.previous_key(key(address, below))
    while run_key is not None and run_key.startswith(begin):
        run = decode(store.get(run_key) or b"")
        for number in range(min(run.end, below) - 1, max(run.first, floor) - 1, -1):
            identifier = run.ids[number - run.first]
            if identifier != FORGOTTEN:
                yield RingEntry(number, identifier, run.origin(number))
        if run.first <= floor:
            return
        run_key = store.previous_key(run_key)


def entries_upwards(store: Store, address: str, first: int, end: int) -> Iterator[RingEntry]:
    """What a ring holds, the oldest first, of numbers from `first` to below `end`."""
    begin = prefix(RUNS, address)
    run_key = store.previous_key(key(address, first + 1))
    if run_key is None or not run_key.startswith(begin):
        run_key = store.next_key(begin)
    while run_key is not None and run_key.startswith(begin):
        run = decode(store.get(run_key) or b"")
        if run.first >= end:
            return
        for number in range(max(run.first, first), min(run.end, end)):
            identifier = run.ids[number - run.first]
            if identifier != FORGOTTEN:
                yield RingEntry(number, identifier, run.origin(number))
        run_key = store.next_key(run_key + b"\0")


def bounds(store: Store, address: str, capacity: int) -> tuple[int, int]:
    """The number of the oldest id that a ring holds, and the number after its newest."""
    newest = store.previous_key(after(RUNS, address))
    if newest is None or not newest.startswith(prefix(RUNS, address)):
        return 0, 0
    run = summary(store.get(newest) or b"")
    following = run.first + len(run.ids)
    return max(run.floor, following - capacity), following


def extent(store: Store, address: str, capacity: int) -> Occupancy:
    """How much a ring holds, read from its first and last run: it need not be in memory.

    UnknownFormatError where the runs are not those of a ring.
    """
    time_ms_of = partial(_time_ms, store, address)
    return extent_of(*bounds(store, address, capacity), capacity, time_ms_of)


def _time_ms(store: Store, address: str, number: int) -> int:
    run_key = store.previous_key(key(address, number + 1))
    if run_key is None or not run_key.startswith(prefix(RUNS, address)):
        raise UnknownFormatError(f"no run holds number {number}")
    return row_of(store.get(run_key) or b"", number).origin.time_ms


def forget(store: Store, address: str, number: int) -> Edit:
    """The run that holds a number, without its id."""
    (edit,) = forget_all(store, address, [number])
    return edit


def forget_all(store: Store, address: str, numbers: Iterable[int]) -> list[Edit]:
    """The runs that hold these numbers, without their ids."""
    runs: dict[bytes, list[int]] = {}
    for number in sorted(numbers):
        run_key = store.previous_key(key(address, number + 1))
        assert run_key is not None  # the ring knows the number
        runs.setdefault(run_key, []).append(number)
    return [
        _without(run_key, decode(store.get(run_key) or b""), gone) for run_key, gone in runs.items()
    ]


def _without(run_key: bytes, run: Segment, numbers: Iterable[int]) -> Edit:
    ids = list(run.ids)
    for number in numbers:
        ids[number - run.first] = FORGOTTEN
    return Edit(run_key, encode(run._replace(ids=tuple(ids))))


def clear(store: Store, address: str) -> list[Edit]:
    """A ring that holds nothing and goes on counting."""
    keys = [run_key for run_key, _ in store.scan(prefix(RUNS, address))]
    if not keys:
        return []
    newest = decode(store.get(keys[-1]) or b"")
    empty = Segment(newest.end, newest.end, newest.capacity, (), (), (), (), ())
    return [Edit(run_key, None) for run_key in keys] + [put(address, empty)]
