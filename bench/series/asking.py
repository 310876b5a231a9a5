"""Asked: what it costs the loop that its API is asked while it works.

One run, asked for some seconds and left alone for some in turn: a machine that others use too is
now faster and now slower, by more than what is looked for, and a spell is set beside the two that
it lies between. Two figures, because they answer two questions. The loop's own CPU time a message
tells whether the API disturbs it; the rate tells besides what everybody on one machine, the one
who asks among them, takes from everybody else.
"""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from math import inf
from typing import Final, NamedTuple

from bench.arms import RINGFENCE, running
from bench.asking import Answers, asked
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


class Trio(NamedTuple):
    """A spell in which the API was asked, and the two around it in which it was not."""

    before: Spell
    asked: Spell
    after: Spell

    @property
    def rate_ratio(self) -> float:
        """The rate while asked, over that while not."""
        return self.asked.rate * 2 / (self.before.rate + self.after.rate)

    @property
    def loop_ratio(self) -> float:
        """What a message costs the loop while asked, over that while not."""
        return self.asked.loop_us * 2 / (self.before.loop_us + self.after.loop_us)


def asking(session: Session, about: Asking) -> Finding:
    """Asked and left alone in turn, over the whole input, as often as there are rounds."""
    workload = session.sized(about.workload)
    trios: list[Trio] = []
    for _ in range(session.rounds):
        trios += list(trios_of(_spells(session, workload, about)))
        ratio = Spread.of(trio.rate_ratio for trio in trios).median
        session.say(f"asked, {ratio:.3f} of the rate: the median of {len(trios)} spells")
    answers = [trio.asked.answers for trio in trios if trio.asked.answers is not None]
    took_ms = sorted(took for each in answers for took in each.took_ms)
    asked_s = sum(trio.asked.seconds for trio in trios)
    rows: list[Row] = [
        {"the API is": "not asked", **_told([trio.before for trio in trios])},
        {
            "the API is": about.told,
            **_told([trio.asked for trio in trios]),
            "rate / not asked": Spread.of(trio.rate_ratio for trio in trios),
            "loop / not asked": Spread.of(trio.loop_ratio for trio in trios),
            "seconds": asked_s,
            "answers a second": len(took_ms) / asked_s,
            "refused": sum(each.refused for each in answers),
            "answer p50, ms": percentile(took_ms, 0.5) if took_ms else None,
            "answer p99, ms": percentile(took_ms, 0.99) if took_ms else None,
        },
    ]
    figure = Figure(
        about.title, "the API is", ["messages a second"], "messages a second", bars=True
    )
    settings = {"asked for": ", ".join(about.paths), "messages": f"{workload.records:,}"}
    return Finding(about.title, settings, rows, [figure])


def trios_of(spells: Sequence[Spell]) -> Iterator[Trio]:
    """Of spells that are unasked and asked in turn, beginning with an unasked one."""
    for asked_at in range(1, len(spells) - 1, 2):
        yield Trio(*spells[asked_at - 1 : asked_at + 2])


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
        while one_more := spell(points, one.pid, asks() if len(found) % 2 else nullcontext()):
            found.append(one_more)
    return found


def spell(
    points: Iterator[Point],
    pid: int,
    asks: AbstractContextManager[Answers | None] = nullcontext(),  # noqa: B008 - it holds nothing
    seconds_min: float = SPELL_S,
) -> Spell | None:
    """The next seconds, asked or not; None where the input ends before they are over."""
    first, before = next(points, None), cpu_s(pid)
    with asks as answers:
        for last in points:
            assert first is not None  # there is a last one
            seconds, messages = last.at_s - first.at_s, last.records - first.records
            if seconds >= seconds_min:
                costs = per_message(before, cpu_s(pid), messages)
                return Spell(seconds, messages / seconds, costs[LOOP], answers)
    return None
