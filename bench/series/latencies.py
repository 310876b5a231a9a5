"""Latency series: from produce to a downstream reader, at a low and at a high rate.

Scope `address` takes two transactions, one for each hop.
"""

from typing import Final

from bench.arms import FLOOR, RINGFENCE
from bench.finding import Figure, Finding, Row
from bench.latency import Latency, latency
from bench.results import Spread
from bench.session import Session

RATES: Final = (1_000, 20_000)
ARMS: Final = {
    "floor": (FLOOR, "partition"),
    "Ringfence": (RINGFENCE, "partition"),
    "Ringfence, scope address": (RINGFENCE, "address"),
}
_DURATION_S: Final = 12.0
_COLUMNS: Final = ("p50, ms", "p99, ms", "p99.9, ms")


def latencies(session: Session) -> Finding:
    """Measure all arms in turn at each rate."""
    rows = []
    duration_s = max(2.0, _DURATION_S * session.scale)
    for rate in RATES:
        found: dict[str, list[Latency]] = {title: [] for title in ARMS}
        for _ in range(session.rounds):
            for title, (arm, scope) in ARMS.items():
                one = latency(session.venue, arm, rate, duration_s, scope)
                found[title].append(one)
                session.say(f"{rate:,}/s, {title}: p50 {one.p50:.1f} ms, p99 {one.p99:.1f} ms")
        rows += [_row(f"{rate:,}/s, {title}", rounds) for title, rounds in found.items()]
    title = "Latency from produce to visible: Ringfence and the floor"
    settings = {"batch_wait_ms": 20, "duplicates": "10%", "bytes": 200, "partitions": 4}
    return Finding(title, settings, rows, [Figure(title, "arm", _COLUMNS, "ms", bars=True)])


def _row(name: str, rounds: list[Latency]) -> Row:
    cells = {
        column: Spread.of(each[index] for each in rounds) for index, column in enumerate(_COLUMNS)
    }
    return {"arm": name, "measured": min(each.records for each in rounds), **cells}
