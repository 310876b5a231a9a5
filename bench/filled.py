"""Filled: groups that hold a known number of ids, for what depends on how much is remembered."""

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
"""Copies and addresses are drawn by lot, so some fill later than others."""
_ADDRESSES_ASKED: Final = 20


class Fill(NamedTuple):
    """How many ids each address holds, and the input that fills it and goes on for a stretch."""

    ids: int
    workload: Workload
    stretch: int

    @property
    def full_at(self) -> int:
        """After so many records every address is full."""
        accepted = self.ids * self.workload.addresses * _FULL
        return round(accepted / (1 - self.workload.duplicate_share))

    @property
    def records(self) -> int:
        """How many records are read."""
        return self.full_at + self.stretch


class Filled(NamedTuple):
    """A group that is full, its process ended."""

    stage: Stage
    pace: float
    """Records a second over the stretch, the rings full."""
    ids_held: int
    memory: Memory
    disk_bytes: int


@contextmanager
def filled(place: Venue, fill: Fill) -> Iterator[Filled]:
    """Fill a group; its topics and its state stay while the block runs."""
    setup = {"id_cache_size": fill.ids}
    workload = fill.workload
    with place.reading(RINGFENCE, workload, **setup) as stage:
        with running(RINGFENCE, stage) as one:
            points = list(place.follow(stage, workload, one.check, fill.records))
            pace, used = pace_from(points, fill.full_at), memory(one.pid)
            await_ready(stage, one.check)  # the status that the API reads may be a moment old
            held = _ids_held(stage, workload)
        yield Filled(stage, pace, held, used, disk_bytes(stage.folder / "state"))


def _ids_held(stage: Stage, workload: Workload) -> int:
    """As the service tells; of many addresses some are asked, as each waits for a batch to end."""
    count = workload.addresses
    asked = range(0, count, max(1, count // _ADDRESSES_ASKED))
    names = [stage.address] if count == 1 else [f"bench.{number}" for number in asked]
    held = [int(ask_json(stage, f"/v1/addresses?name={name}")["ids_held"]) for name in names]
    return round(sum(held) / len(held) * count)


class Groups(ExitStack):
    """Filled groups that several series look at: each is filled when it is asked for first."""

    def __init__(self, place: Venue) -> None:
        super().__init__()
        self._place = place
        self._filled: dict[Fill, Filled] = {}

    def filled(self, fill: Fill) -> Filled:
        """The group, filled once."""
        if fill not in self._filled:
            self._filled[fill] = self.enter_context(filled(self._place, fill))
        return self._filled[fill]
