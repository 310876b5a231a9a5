"""Instances series: one process compared with two of the same group, on one input.

The input is written in one transaction that is committed when every process has its partitions, so
that all start at the same moment.
"""

import uuid
from contextlib import ExitStack
from typing import Final

from bench.arms import RINGFENCE, Stage, running
from bench.asking import ask_json, await_answer
from bench.finding import Figure, Finding, Row
from bench.progress import pace
from bench.results import Spread
from bench.series.sweeps import PLAIN
from bench.session import Session
from bench.venue import free_port
from bench.workload import Workload, unseen

COUNTS: Final = (1, 2)


def instances(session: Session) -> Finding:
    """Measure each number of processes in turn, round by round."""
    workload = session.sized(PLAIN)
    rates: dict[int, list[float]] = {count: [] for count in COUNTS}
    for _ in range(session.rounds):
        for count in COUNTS:
            rates[count].append(_rate(session, workload, count))
            session.say(f"processes of one group: {count}: {rates[count][-1]:,.0f}/s")
    rows: list[Row] = [
        {
            "processes": str(count),
            "Ringfence": Spread.of(found),
            "/ one process": Spread.of(
                rate / base for rate, base in zip(found, rates[1], strict=True)
            ),
        }
        for count, found in rates.items()
    ]
    title = "Processes of one group on one machine: Ringfence"
    settings = {"messages": f"{workload.records:,}", "partitions": workload.partitions}
    figure = Figure(title, "processes", ["Ringfence"], "messages a second, warm", bars=True)
    return Finding(title, settings, rows, [figure])


def _rate(session: Session, workload: Workload, count: int) -> float:
    source = f"shared-{uuid.uuid4().hex[:8]}"
    venue, partitions = session.venue, workload.partitions
    venue.create(source, partitions)
    with (
        unseen(workload, venue.client, source) as reveal,
        venue.stage(RINGFENCE, source, partitions) as stage,
        ExitStack() as processes,
    ):
        members = [stage._replace(instance=str(n), api_port=free_port()) for n in range(count)]
        checks = [processes.enter_context(running(RINGFENCE, each)).check for each in members]
        for member in members:
            await_answer(lambda m=member: _owned(m) == partitions // count, checks[0])  # type: ignore[misc]
        reveal()
        return pace(list(venue.follow(stage, workload, checks[0]))).second_half


def _owned(stage: Stage) -> int:
    """Return the number of running partitions of an instance."""
    owned = ask_json(stage, "/v1/partitions?scope=instance")["partitions"]
    return sum(each["phase"] == "running" for each in owned)
