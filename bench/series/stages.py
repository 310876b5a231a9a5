"""Stages: what CPU time a message costs, and in which stage of the loop; the floor's for scale.

The kernel tells what each thread used over the second half of the input; the sampler tells how the
main thread, which runs the loop, divides its part.
"""

import json
from collections.abc import Mapping
from typing import Final

from bench.arms import FLOOR, SAMPLED, SAMPLES, Arm, Stage, running
from bench.finding import Figure, Finding, Row
from bench.machine import cpu_s
from bench.results import Spread
from bench.sampler import STAGES
from bench.series.sweeps import PLAIN
from bench.session import Session

LOOP: Final = "main thread"
"""Of a worker's process: it runs the loop."""
ALL: Final = "all threads"


def stages(session: Session) -> Finding:
    """Both arms in turn; microseconds of CPU time a message."""
    found = {
        title: [_costs(session, arm) for arm in [arm] * session.rounds]
        for title, arm in (("Ringfence", SAMPLED), ("floor", FLOOR))
    }
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
    figure = Figure(title, "part", ["Ringfence", "floor"], "microseconds a message", bars=True)
    return Finding(title, settings, rows, [figure])


def _costs(session: Session, arm: Arm) -> dict[str, float]:
    """Microseconds a message: by kind of thread, of all, and by stage where it was sampled."""
    workload, place = session.sized(PLAIN), session.place
    with place.reading(arm, workload) as stage:
        with running(arm, stage) as one:
            before, first = {}, None
            for point in place.follow(stage, workload, one.check):
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
    """Microseconds a message from two readings of seconds, and their sum."""
    costs = {
        part: (seconds - before.get(part, 0.0)) * 1e6 / max(messages, 1)
        for part, seconds in after.items()
    }
    return {**costs, ALL: sum(costs.values())}


def _divided(cost: float, stage: Stage) -> dict[str, float]:
    path = stage.folder / SAMPLES
    return divided(cost, json.loads(path.read_text())["seconds"]) if path.exists() else {}


def divided(cost: float, seconds: Mapping[str, float]) -> dict[str, float]:
    """A cost, shared out as the seconds are; a stage that was never met costs nothing."""
    total = sum(seconds.values()) or 1.0
    return {f"loop: {part}": cost * seconds.get(part, 0.0) / total for part in STAGES}
