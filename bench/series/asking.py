"""Asking series: the cost of API requests to a loop that is at work.

Within one run, spells of some seconds with and without requests alternate, and each spell is
compared with the two around it: the speed of a shared machine varies by more than the effect that
is measured. There are two figures. The loop's CPU time per message shows whether the API disturbs
the loop. The rate also shows what all processes of the machine, including the clients here, take
from each other. So in every other busy spell another process takes as much CPU as the clients did:
what the rate loses then is the machine's share of the loss.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from math import inf
from typing import Final, NamedTuple

from bench.arms import RINGFENCE, running
from bench.asking import Answers, api_load
from bench.burning import burning
from bench.finding import Figure, Finding, Row
from bench.latency import percentile
from bench.machine import cpu_s
from bench.progress import Point
from bench.results import Spread
from bench.series.stages import LOOP, per_message
from bench.session import Session
from bench.workload import Workload

PATHS: Final = (
    "/v1/status",
    "/v1/partitions",
    "/v1/addresses/bench",
    "/v1/addresses/bench/ids/unknown",
    "/readyz",
)
LISTS: Final = (
    "/v1/addresses?page_size=1",
    "/v1/addresses?sort=horizon&page_size=1",
    "/v1/addresses?sort=-accepted",
    "/v1/addresses?prefix=seen.5",
)
SPELL_S: Final = 4.0


class ApiLoad(NamedTuple):
    """A load of API requests, and the workload of the loop, for most of a minute."""

    title: str
    label: str
    paths: Sequence[str]
    per_s: float
    clients: int
    workload: Workload


POLLED: Final = ApiLoad(
    "With and without API requests: Ringfence",
    "asked 200 times a second",
    PATHS,
    200,
    8,
    Workload(records=6_000_000),
)
LISTED: Final = ApiLoad(
    "With and without four clients that list 60,000 addresses: Ringfence",
    "asked by four clients without a pause",
    LISTS,
    inf,
    4,
    Workload(records=6_000_000, addresses=4, seen_first=60_000),
)


class Spell(NamedTuple):
    """Some seconds of a run, with or without requests."""

    seconds: float
    rate: float
    loop_us: float
    """CPU time of the loop's thread per message."""
    answers: Answers | None = None
    own_cores: float = 0.0
    """CPU that this process, which runs the clients, used."""


class Trio(NamedTuple):
    """A busy spell, and the two calm spells around it."""

    before: Spell
    busy: Spell
    after: Spell

    @property
    def rate_ratio(self) -> float:
        """The rate of the busy spell, divided by the mean of the calm ones."""
        return self.busy.rate * 2 / (self.before.rate + self.after.rate)

    @property
    def loop_ratio(self) -> float:
        """CPU time per message in the busy spell, divided by the mean of the calm ones."""
        return self.busy.loop_us * 2 / (self.before.loop_us + self.after.loop_us)


def asking(session: Session, load: ApiLoad) -> Finding:
    """Alternate busy and calm spells over the whole input, once per round."""
    workload = session.sized(load.workload)
    asked, burnt = list[Trio](), list[Trio]()
    for _ in range(session.rounds):
        trios = list(trios_of(_spells(session, workload, load)))
        asked += trios[::2]
        burnt += trios[1::2]
        ratio = Spread.of(trio.rate_ratio for trio in asked).median
        session.say(f"asked, {ratio:.3f} of the rate: the median of {len(asked)} spells")
    answers = [trio.busy.answers for trio in asked if trio.busy.answers is not None]
    took_ms = sorted(took for each in answers for took in each.took_ms)
    asked_s = sum(trio.busy.seconds for trio in asked)
    rows: list[Row] = [
        {"the API is": "not asked", **_cells([trio.before for trio in asked])},
        {
            "the API is": load.label,
            **_compared(asked),
            "seconds": asked_s,
            "answers a second": len(took_ms) / asked_s,
            "refused": sum(each.refused for each in answers),
            "answer p50, ms": percentile(took_ms, 0.5) if took_ms else None,
            "answer p99, ms": percentile(took_ms, 0.99) if took_ms else None,
        },
        {"the API is": "not asked, as much CPU is taken", **(_compared(burnt) if burnt else {})},
    ]
    figure = Figure(load.title, "the API is", ["messages a second"], "messages a second", bars=True)
    settings = {"asked for": ", ".join(load.paths), "messages": f"{workload.records:,}"}
    return Finding(load.title, settings, rows, [figure])


def trios_of(spells: Sequence[Spell]) -> Iterator[Trio]:
    """Yield the trios of spells that are alternately calm and busy, beginning with a calm one."""
    for busy_at in range(1, len(spells) - 1, 2):
        yield Trio(*spells[busy_at - 1 : busy_at + 2])


def _compared(trios: Sequence[Trio]) -> Row:
    return {
        **_cells([trio.busy for trio in trios]),
        "rate / not asked": Spread.of(trio.rate_ratio for trio in trios),
        "loop / not asked": Spread.of(trio.loop_ratio for trio in trios),
    }


def _cells(spells: Sequence[Spell]) -> Row:
    return {
        "messages a second": Spread.of(one.rate for one in spells),
        "loop, µs a message": Spread.of(one.loop_us for one in spells),
    }


def _spells(session: Session, workload: Workload, load: ApiLoad) -> list[Spell]:
    """Return the spells of one run, except its start and the last spell, when the input ends."""
    venue = session.venue
    found: list[Spell] = []
    with venue.reading(RINGFENCE, workload) as stage, running(RINGFENCE, stage) as one:
        requests = partial(api_load, stage, load.paths, load.per_s, load.clients)
        points = venue.follow(stage, workload, one.check)
        # Partitions are not read evenly: some still have records of `seen_first` left.
        next((point for point in points if point.records >= 3 * workload.seen_first), None)
        spell(points, one.pid)
        while True:
            activity: AbstractContextManager[Answers | None] = nullcontext()
            if len(found) % 4 == 1:
                activity = requests()
            elif len(found) % 4 == 3:
                activity = burning(found[-2].own_cores - found[-1].own_cores)
            following = spell(points, one.pid, activity)
            if following is None:
                return found
            found.append(following)


def spell(
    points: Iterator[Point],
    pid: int,
    activity: AbstractContextManager[Answers | None] = nullcontext(),  # noqa: B008 - stateless
    seconds_min: float = SPELL_S,
) -> Spell | None:
    """Measure the next seconds during an activity; None if the input ends before they are over."""
    first, before, own_s = next(points, None), cpu_s(pid), time.process_time()
    with activity as answers:
        for last in points:
            assert first is not None  # since there is a later one
            seconds, messages = last.at_s - first.at_s, last.records - first.records
            if seconds >= seconds_min:
                costs = per_message(before, cpu_s(pid), messages)
                own_cores = (time.process_time() - own_s) / seconds
                return Spell(seconds, messages / seconds, costs[LOOP], answers, own_cores)
    return None
