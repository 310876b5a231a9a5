"""Asked: what it costs the loop that its API is asked while it works.

One run, asked for some seconds and left alone for some in turn: a machine that others use too is
now faster and now slower, by more than what is looked for, and a spell is set beside the two that
it lies between. Two figures, because they answer two questions. The loop's own CPU time a message
tells whether the API disturbs it; the rate tells besides what everybody on one machine, the one
who asks among them, takes from everybody else. So every other time another process takes as much
CPU as those who asked did: what the rate loses then is the machine's share of the loss.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from math import inf
from typing import Final, NamedTuple

from bench.arms import RINGFENCE, running
from bench.asking import Answers, asked
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


class Asking(NamedTuple):
    """Who asks for what while the loop is busy with what, for the better part of a minute."""

    title: str
    told: str
    paths: Sequence[str]
    per_s: float
    askers: int
    workload: Workload


POLLED: Final = Asking(
    "The API asked, beside not: Ringfence",
    "asked 200 times a second",
    PATHS,
    200,
    8,
    Workload(records=6_000_000),
)
LISTED: Final = Asking(
    "60,000 addresses listed by four at a time, beside not: Ringfence",
    "asked by four without a pause",
    LISTS,
    inf,
    4,
    Workload(records=6_000_000, addresses=4, seen_first=60_000),
)


class Spell(NamedTuple):
    """Some seconds of a run, asked or not."""

    seconds: float
    rate: float
    loop_us: float
    """CPU time of the loop's thread for a message."""
    answers: Answers | None = None
    own_cores: float = 0.0
    """CPU that this process took, as one who asks among others."""


class Trio(NamedTuple):
    """A busy spell, and the two around it, in which the loop was left alone."""

    before: Spell
    busy: Spell
    after: Spell

    @property
    def rate_ratio(self) -> float:
        """The rate of the busy spell, over that of the other two."""
        return self.busy.rate * 2 / (self.before.rate + self.after.rate)

    @property
    def loop_ratio(self) -> float:
        """What a message costs the loop in the busy spell, over what it does in the other two."""
        return self.busy.loop_us * 2 / (self.before.loop_us + self.after.loop_us)


def asking(session: Session, about: Asking) -> Finding:
    """Asked and left alone in turn, over the whole input, as often as there are rounds."""
    workload = session.sized(about.workload)
    asked, burnt = list[Trio](), list[Trio]()
    for _ in range(session.rounds):
        trios = list(trios_of(_spells(session, workload, about)))
        asked += trios[::2]
        burnt += trios[1::2]
        ratio = Spread.of(trio.rate_ratio for trio in asked).median
        session.say(f"asked, {ratio:.3f} of the rate: the median of {len(asked)} spells")
    answers = [trio.busy.answers for trio in asked if trio.busy.answers is not None]
    took_ms = sorted(took for each in answers for took in each.took_ms)
    asked_s = sum(trio.busy.seconds for trio in asked)
    rows: list[Row] = [
        {"the API is": "not asked", **_told([trio.before for trio in asked])},
        {
            "the API is": about.told,
            **_compared(asked),
            "seconds": asked_s,
            "answers a second": len(took_ms) / asked_s,
            "refused": sum(each.refused for each in answers),
            "answer p50, ms": percentile(took_ms, 0.5) if took_ms else None,
            "answer p99, ms": percentile(took_ms, 0.99) if took_ms else None,
        },
        {"the API is": "not asked, as much CPU is taken", **(_compared(burnt) if burnt else {})},
    ]
    figure = Figure(
        about.title, "the API is", ["messages a second"], "messages a second", bars=True
    )
    settings = {"asked for": ", ".join(about.paths), "messages": f"{workload.records:,}"}
    return Finding(about.title, settings, rows, [figure])


def trios_of(spells: Sequence[Spell]) -> Iterator[Trio]:
    """Of spells of which every second one is busy, beginning with one that is not."""
    for busy_at in range(1, len(spells) - 1, 2):
        yield Trio(*spells[busy_at - 1 : busy_at + 2])


def _compared(trios: Sequence[Trio]) -> Row:
    return {
        **_told([trio.busy for trio in trios]),
        "rate / not asked": Spread.of(trio.rate_ratio for trio in trios),
        "loop / not asked": Spread.of(trio.loop_ratio for trio in trios),
    }


def _told(spells: Sequence[Spell]) -> Row:
    return {
        "messages a second": Spread.of(one.rate for one in spells),
        "loop, µs a message": Spread.of(one.loop_us for one in spells),
    }


def _spells(session: Session, workload: Workload, about: Asking) -> list[Spell]:
    """One run, without how it starts and without its last spell, in which the input ends."""
    place = session.place
    found: list[Spell] = []
    with place.reading(RINGFENCE, workload) as stage, running(RINGFENCE, stage) as one:
        asks = partial(asked, stage, about.paths, about.per_s, about.askers)
        points = place.follow(stage, workload, one.check)
        # Partitions are not read evenly: some have not come to the end of those yet.
        next((point for point in points if point.records >= 3 * workload.seen_first), None)
        spell(points, one.pid)
        while True:
            what: AbstractContextManager[Answers | None] = nullcontext()
            if len(found) % 4 == 1:
                what = asks()
            elif len(found) % 4 == 3:
                what = burning(found[-2].own_cores - found[-1].own_cores)
            one_more = spell(points, one.pid, what)
            if one_more is None:
                return found
            found.append(one_more)


def spell(
    points: Iterator[Point],
    pid: int,
    asks: AbstractContextManager[Answers | None] = nullcontext(),  # noqa: B008 - it holds nothing
    seconds_min: float = SPELL_S,
) -> Spell | None:
    """The next seconds, busy or not; None where the input ends before they are over."""
    first, before, own_s = next(points, None), cpu_s(pid), time.process_time()
    with asks as answers:
        for last in points:
            assert first is not None  # there is a last one
            seconds, messages = last.at_s - first.at_s, last.records - first.records
            if seconds >= seconds_min:
                costs = per_message(before, cpu_s(pid), messages)
                own_cores = (time.process_time() - own_s) / seconds
                return Spell(seconds, messages / seconds, costs[LOOP], answers, own_cores)
    return None
