"""Asked: what it costs the loop that its API is asked while it works.

Two figures, because they answer two questions. The loop's own CPU time a message tells whether
the API disturbs it; the rate tells besides what everybody on one machine, the one who asks among
them, takes from everybody else.
"""

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Final, NamedTuple

from bench.arms import RINGFENCE, running
from bench.asking import asked
from bench.finding import Figure, Finding, Row
from bench.latency import percentile
from bench.machine import cpu_s
from bench.progress import Point, pace
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
WORK: Final = Workload(records=6_000_000)
"""What the loop is busy with for a minute."""


class Pass(NamedTuple):
    """One run over the input."""

    rate: float
    loop_us: float
    """CPU time of the loop's thread for a message."""
    seconds: float
    answers_ms: Sequence[float]
    """How long each answer took."""


def asking(session: Session) -> Finding:
    """Unasked and asked in turn."""
    workload = session.sized(WORK)
    quiet: list[Pass] = []
    loud: list[Pass] = []
    for _ in range(session.rounds):
        quiet.append(_passed(session, workload, 0))
        loud.append(_passed(session, workload, PER_S))
        session.say(f"unasked {quiet[-1].rate:,.0f}/s, asked {loud[-1].rate:,.0f}/s")
    took_ms = sorted(took for one in loud for took in one.answers_ms)
    answered_s = sum(one.seconds for one in loud)
    rows: list[Row] = [
        {"the API is": "not asked", **_told(quiet)},
        {
            "the API is": f"asked {PER_S} times a second",
            **_told(loud),
            "rate / not asked": Spread.of(
                b.rate / a.rate for a, b in zip(quiet, loud, strict=True)
            ),
            "loop / not asked": Spread.of(
                b.loop_us / a.loop_us for a, b in zip(quiet, loud, strict=True)
            ),
            "answers a second": len(took_ms) / answered_s,
            "answer p50, ms": percentile(took_ms, 0.5) if took_ms else None,
            "answer p99, ms": percentile(took_ms, 0.99) if took_ms else None,
        },
    ]
    title = "The API asked, beside not: Ringfence"
    figure = Figure(title, "the API is", ["messages a second"], "messages a second", bars=True)
    settings = {"asked for": ", ".join(PATHS), "messages": f"{workload.records:,}"}
    return Finding(title, settings, rows, [figure])


def _told(passes: Sequence[Pass]) -> Row:
    return {
        "messages a second": Spread.of(one.rate for one in passes),
        "loop, µs a message": Spread.of(one.loop_us for one in passes),
    }


def _passed(session: Session, workload: Workload, per_s: int) -> Pass:
    """One run, asked so often; what it costs is taken from its second half."""
    place = session.place
    with place.reading(RINGFENCE, workload) as stage, running(RINGFENCE, stage) as one:
        points: list[Point] = []
        half: dict[str, float] = {}
        with ExitStack() as asker:
            answers_ms = asker.enter_context(asked(stage, PATHS, per_s)) if per_s else []
            for point in place.follow(stage, workload, one.check):
                points.append(point)
                if not half and point.records >= workload.records / 2:
                    half, middle = cpu_s(one.pid), point
            costs = per_message(half, cpu_s(one.pid), points[-1].records - middle.records)
        seconds = points[-1].at_s - points[0].at_s
        return Pass(pace(points).second_half, costs[LOOP], seconds, answers_ms)
