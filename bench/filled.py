"""Filled groups: groups that hold a known number of ids, to measure the effect of that number."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Final, NamedTuple

from bench.arms import RINGFENCE, Stage, running
from bench.asking import ask_json, await_ready
from bench.machine import Memory, disk_bytes, memory
from bench.progress import pace_from
from bench.venue import Venue
from bench.workload import Workload

_FULL: Final = 1.03
"""Copies and addresses are drawn at random, so some addresses fill later than others."""
_ADDRESSES_SAMPLED: Final = 20


class Fill(NamedTuple):
    """Number of ids per address, the input, and the number of records to read once it is full."""

    ids: int
    workload: Workload
    stretch: int

    @property
    def full_at(self) -> int:
        """Number of records after which every address is full."""
        accepted = self.ids * self.workload.addresses * _FULL
        return round(accepted / (1 - self.workload.duplicate_share))

    @property
    def records(self) -> int:
        """Number of records that are read."""
        return self.full_at + self.stretch


class Filled(NamedTuple):
    """A full group whose process has stopped."""

    stage: Stage
    pace: float
    """Records per second over the stretch, with full rings."""
    ids_held: int
    memory: Memory
    disk_bytes: int


@contextmanager
def filled(venue: Venue, fill: Fill) -> Iterator[Filled]:
    """Fill a group; its topics and its state are kept while the block runs."""
    setup = {"id_cache_size": fill.ids}
    workload = fill.workload
    with venue.reading(RINGFENCE, workload, **setup) as stage:
        with running(RINGFENCE, stage) as one:
            points = list(venue.follow(stage, workload, one.check, fill.records))
            pace, used = pace_from(points, fill.full_at), memory(one.pid)
            await_ready(stage, one.check)  # the API's status may be out of date for a moment
            held = _ids_held(stage, workload)
        yield Filled(stage, pace, held, used, disk_bytes(stage.folder / "state"))


def _ids_held(stage: Stage, workload: Workload) -> int:
    """Return the API's number of ids, extrapolated from a sample if there are many addresses.

    Each request waits for a batch to end.
    """
    count = workload.addresses
    sample = range(0, count, max(1, count // _ADDRESSES_SAMPLED))
    names = [stage.address] if count == 1 else [f"bench.{number}" for number in sample]
    held = [int(ask_json(stage, f"/v1/addresses?name={name}")["ids_held"]) for name in names]
    return round(sum(held) / len(held) * count)


class Groups(ExitStack):
    """Filled groups that several series share; each is filled on first use."""

    def __init__(self, venue: Venue) -> None:
        super().__init__()
        self._venue = venue
        self._filled: dict[Fill, Filled] = {}

    def filled(self, fill: Fill) -> Filled:
        """Return the group, filling it on first use."""
        if fill not in self._filled:
            self._filled[fill] = self.enter_context(filled(self._venue, fill))
        return self._filled[fill]
