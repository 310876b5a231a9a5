"""Spread series: one address on two hops, with scopes `address` and `id`, by number of workers.

A message counts when it was decided, so both hops are in the rates and in the CPU time. On two
cores more workers cannot be faster; what holds on more cores is the CPU time of a message.
"""

import re
import time
from typing import Final

from bench.arms import RINGFENCE, running
from bench.asking import ask, await_answer
from bench.finding import Figure, Finding, Row
from bench.machine import cpu_s
from bench.results import Spread
from bench.series.sweeps import PLAIN
from bench.session import Session

_PARTITIONS: Final = 12
_STEPS: Final = (("address", 1), ("id", 1), ("id", 2), ("id", 4))
_WARM: Final = 0.3
"""The part of the messages that is not counted: processes start, and partitions are assigned."""
_POLL_S: Final = 0.1
_STALL_S: Final = 60.0
_DECIDED: Final = re.compile(
    rb"^ringfence_records_consumed_total\{[^}]*\} ([0-9.e+]+)$", re.MULTILINE
)
_RATE: Final = "messages a second"
_COST: Final = "CPU time of a message, µs"


def spread(session: Session) -> Finding:
    """Measure each scope and number of workers in turn, round by round."""
    found: dict[tuple[str, int], list[tuple[float, float]]] = {step: [] for step in _STEPS}
    for _ in range(session.rounds):
        for scope, workers in _STEPS:
            rate, cost_us = _decided(session, scope, workers)
            session.say(
                f"scope {scope}, workers {workers}: {rate:,.0f}/s, {cost_us:.2f} µs a message"
            )
            found[scope, workers].append((rate, cost_us))
    rows: list[Row] = []
    for (scope, workers), figures in found.items():
        rates, costs = zip(*figures, strict=True)
        one = [cost for _, cost in found[scope, 1]]
        ratios = [a / b for a, b in zip(one, costs, strict=True)]
        rows.append(
            {
                "one address": f"scope {scope}, workers {workers}",
                _RATE: Spread.of(rates),
                _COST: Spread.of(costs),
                "messages a CPU second, to one worker": Spread.of(ratios),
            }
        )
    settings = {"partitions": _PARTITIONS, "messages": session.sized(PLAIN).records}
    figure = Figure("One address over workers", "one address", [_COST], "microseconds", bars=True)
    return Finding("One address over all workers", settings, rows, [figure])


def _decided(session: Session, scope: str, workers: int) -> tuple[float, float]:
    """Return messages per second, and microseconds of CPU a message, of both hops together."""
    workload = session.sized(PLAIN)._replace(partitions=_PARTITIONS)
    readings = list[tuple[float, float, float]]()
    setup = {"scope": scope, "workers": workers}
    with (
        session.venue.reading(RINGFENCE, workload, **setup) as stage,
        running(RINGFENCE, stage) as one,
    ):
        await_answer(lambda: bool(_DECIDED.search(ask(stage, "/metrics"))), one.check)
        moved_s = time.monotonic()
        while not readings or readings[-1][1] < workload.records:
            one.check()
            done = sum(map(float, _DECIDED.findall(ask(stage, "/metrics"))))
            now_s = time.monotonic()
            if not readings or done > readings[-1][1]:
                readings.append((now_s, done, sum(cpu_s(one.pid).values())))
                moved_s = now_s
            elif now_s - moved_s > _STALL_S:
                raise TimeoutError(f"{done:,.0f} messages were decided, and no more")
            time.sleep(_POLL_S)
    first = next(each for each in readings if each[1] >= _WARM * workload.records)
    last = readings[-1]
    if first == last:
        raise ValueError("the workload is too small: all of it was decided between two looks")
    seconds, records, cpu = (end - begin for begin, end in zip(first, last, strict=True))
    return records / seconds, cpu * 1e6 / records
