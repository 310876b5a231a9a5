"""Asked: what it costs the loop that its API is asked while it works.

One run, asked for some seconds and left alone for some in turn: a machine that others use too is
now faster and now slower, by more than what is looked for, and a spell is set beside the two that
it lies between. Two figures, because they answer two questions. The loop's own CPU time a message
tells whether the API disturbs it; the rate tells besides what everybody on one machine, the one
who asks among them, takes from everybody else.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Final, NamedTuple

from bench.arms import RINGFENCE, Stage, running
from bench.asking import asked
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
PER_S: Final = 200
SPELL_S: Final = 4.0
WORK: Final = Workload(records=6_000_000)
"""What the loop is busy with for the better part of a minute."""


class Spell(NamedTuple):
    """Some seconds of a run, asked or not."""

    seconds: float
    rate: float
    loop_us: float
    """CPU time of the loop's thread for a message."""
    answers_ms: Sequence[float] = ()
    """How long each answer took."""


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


def asking(session: Session) -> Finding:
    """Asked and left alone in turn, over the whole input, as often as there are rounds."""
    workload = session.sized(WORK)
    trios: list[Trio] = []
    for _ in range(session.rounds):
        trios += list(trios_of(_spells(session, workload)))
        ratio = Spread.of(trio.rate_ratio for trio in trios).median
        session.say(f"asked, {ratio:.3f} of the rate: the median of {len(trios)} spells")
    took_ms = sorted(took for trio in trios for took in trio.asked.answers_ms)
    asked_s = sum(trio.asked.seconds for trio in trios)
    rows: list[Row] = [
        {"the API is": "not asked", **_told([trio.before for trio in trios])},
        {
            "the API is": f"asked {PER_S} times a second",
            **_told([trio.asked for trio in trios]),
            "rate / not asked": Spread.of(trio.rate_ratio for trio in trios),
            "loop / not asked": Spread.of(trio.loop_ratio for trio in trios),
            "seconds": asked_s,
            "answers a second": len(took_ms) / asked_s,
            "answer p50, ms": percentile(took_ms, 0.5) if took_ms else None,
            "answer p99, ms": percentile(took_ms, 0.99) if took_ms else None,
        },
    ]
    title = "The API asked, beside not: Ringfence"
    figure = Figure(title, "the API is", ["messages a second"], "messages a second", bars=True)
    settings = {"asked for": ", ".join(PATHS), "messages": f"{workload.records:,}"}
    return Finding(title, settings, rows, [figure])


def trios_of(spells: Sequence[Spell]) -> Iterator[Trio]:
    """Of spells that are unasked and asked in turn, beginning with an unasked one."""
    for asked_at in range(1, len(spells) - 1, 2):
        yield Trio(*spells[asked_at - 1 : asked_at + 2])


def _told(spells: Sequence[Spell]) -> Row:
    return {
        "messages a second": Spread.of(one.rate for one in spells),
        "loop, µs a message": Spread.of(one.loop_us for one in spells),
    }


def _spells(session: Session, workload: Workload) -> list[Spell]:
    """One run, without how it starts and without its last spell, in which the input ends."""
    place = session.place
    found: list[Spell] = []
    with place.reading(RINGFENCE, workload) as stage, running(RINGFENCE, stage) as one:
        points = place.follow(stage, workload, one.check)
        _spell(points, one.pid)
        while spell := _spell(points, one.pid, stage if len(found) % 2 else None):
            found.append(spell)
    return found


def _spell(points: Iterator[Point], pid: int, asked_at: Stage | None = None) -> Spell | None:
    """The next seconds, asked or not; None where the input ends before they are over."""
    first, before = next(points, None), cpu_s(pid)
    with ExitStack() as asker:
        asks = None if asked_at is None else asked(asked_at, PATHS, PER_S)
        answers_ms = [] if asks is None else asker.enter_context(asks)
        for last in points:
            assert first is not None  # there is a last one
            seconds, messages = last.at_s - first.at_s, last.records - first.records
            if seconds >= SPELL_S:
                costs = per_message(before, cpu_s(pid), messages)
                return Spell(seconds, messages / seconds, costs[LOOP], answers_ms)
    return None
