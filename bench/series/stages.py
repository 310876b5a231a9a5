"""Stages series: CPU time per message by stage of the loop, on both fast paths, and the floor's.

The kernel reports the CPU time of each thread over the second half of the input; the sampler
divides that of the main thread, which runs the loop, among the stages.
"""

import json
from collections.abc import Mapping
from typing import Final

from bench.arms import FLOOR, SAMPLED, SAMPLED_IN_PYTHON, SAMPLES, Arm, Stage, running
from bench.finding import Figure, Finding, Row
from bench.machine import cpu_s
from bench.results import Spread
from bench.sampler import STAGES
from bench.series.sweeps import PLAIN
from bench.session import Session

LOOP: Final = "main thread"
"""The main thread of a worker process, which runs the loop."""
ALL: Final = "all threads"


def stages(session: Session) -> Finding:
    """Measure the arms in turn, in microseconds of CPU time per message."""
    arms = {"Ringfence": SAMPLED, "Ringfence in Python": SAMPLED_IN_PYTHON, "floor": FLOOR}
    found: dict[str, list[dict[str, float]]] = {title: [] for title in arms}
    for _ in range(session.rounds):
        for title, arm in arms.items():
            found[title].append(_costs(session, arm))
    rows: list[Row] = [
        {
            "part": part,
            **{
                title: Spread.of(costs[part] for costs in rounds)
                for title, rounds in found.items()
                if all(part in costs for costs in rounds)
            },
        }
        for part in dict.fromkeys(part for costs in found["Ringfence"] for part in costs)
    ]
    title = "CPU time of a message: the loop's stages, all threads, and the floor"
    settings = {"messages": f"{session.sized(PLAIN).records:,}", "batch_records": 10_000}
    figure = Figure(title, "part", list(arms), "microseconds a message", bars=True)
    return Finding(title, settings, rows, [figure])


def _costs(session: Session, arm: Arm) -> dict[str, float]:
    """Return microseconds per message by kind of thread, in total, and by stage if sampled."""
    workload, venue = session.sized(PLAIN), session.venue
    with venue.reading(arm, workload) as stage:
        with running(arm, stage) as one:
            before, first = {}, None
            for point in venue.follow(stage, workload, one.check):
                if first is None and point.records >= workload.records / 2:
                    before, first = cpu_s(one.pid), point
                after, last = cpu_s(one.pid), point
        assert first is not None  # the last point is past the middle
        costs = per_message(before, after, last.records - first.records)
        session.say(f"CPU time, {arm.name}: {costs[ALL]:.2f} µs a message")
        ordered = {part: costs[part] for part in sorted(costs, key=costs.__getitem__, reverse=True)}
        return {**ordered, **_divided(costs[LOOP], stage)}


def per_message(
    before: Mapping[str, float], after: Mapping[str, float], messages: int
) -> dict[str, float]:
    """Return microseconds per message, and their sum, from two readings of CPU seconds."""
    costs = {
        part: (seconds - before.get(part, 0.0)) * 1e6 / max(messages, 1)
        for part, seconds in after.items()
    }
    return {**costs, ALL: sum(costs.values())}


def _divided(cost: float, stage: Stage) -> dict[str, float]:
    path = stage.folder / SAMPLES
    return divided(cost, json.loads(path.read_text())["seconds"]) if path.exists() else {}


def divided(cost: float, seconds: Mapping[str, float]) -> dict[str, float]:
    """Divide a cost in proportion to the seconds of each stage; one without samples gets 0."""
    total = sum(seconds.values()) or 1.0
    return {f"loop: {part}": cost * seconds.get(part, 0.0) / total for part in STAGES}
