"""Asked: what it costs the loop that metrics and status are asked for while it works."""

from typing import Final

from bench.arms import RINGFENCE, running
from bench.asking import asked
from bench.finding import Figure, Finding, Row
from bench.latency import percentile
from bench.progress import pace
from bench.results import Spread
from bench.series.sweeps import PLAIN
from bench.session import Session

PATHS: Final = ("/metrics", "/v1/status")
PER_S: Final = 10.0


def asking(session: Session) -> Finding:
    """Unasked and asked in turn."""
    workload, place = session.sized(PLAIN), session.place
    unasked: list[float] = []
    disturbed: list[float] = []
    took_ms: list[float] = []
    for _ in range(session.rounds):
        unasked.append(place.pace(RINGFENCE, workload).second_half)
        with (
            place.reading(RINGFENCE, workload) as stage,
            running(RINGFENCE, stage) as one,
            asked(stage, PATHS, PER_S) as answers_ms,
        ):
            disturbed.append(pace(list(place.follow(stage, workload, one.check))).second_half)
        took_ms += answers_ms
        session.say(f"unasked {unasked[-1]:,.0f}/s, asked {disturbed[-1]:,.0f}/s")
    rows: list[Row] = [
        {"the API is": "not asked", "Ringfence": Spread.of(unasked)},
        {
            "the API is": f"asked {PER_S:.0f} times a second",
            "Ringfence": Spread.of(disturbed),
            "/ not asked": Spread.of(d / u for d, u in zip(disturbed, unasked, strict=True)),
            "answer p50, ms": percentile(sorted(took_ms), 0.5) if took_ms else None,
            "answer p99, ms": percentile(sorted(took_ms), 0.99) if took_ms else None,
        },
    ]
    title = "Metrics and status asked for, beside not: Ringfence"
    figure = Figure(title, "the API is", ["Ringfence"], "messages a second, warm", bars=True)
    settings = {"asked for": " and ".join(PATHS), "messages": f"{workload.records:,}"}
    return Finding(title, settings, rows, [figure])
