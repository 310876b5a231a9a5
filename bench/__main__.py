"""`make bench`: Ringfence, the floor and the peers in turn on one broker; tables, JSON and plots.

Ratios are taken within a round, where the arms ran one after the other on the same machine.
"""

import argparse
import sys
from collections.abc import Mapping
from typing import Final, NamedTuple

from rich.console import Console

from bench.arms import FLOOR, KAFKA_STREAMS, QUIX, RINGFENCE, Arm
from bench.artemis import artemis
from bench.latency import Latency, latency
from bench.progress import Pace
from bench.report import TITLES, plot, show
from bench.results import FOLDER, Comparison, Results
from bench.venue import Venue, venue
from bench.workload import Workload
from tools.errors import ToolError

LATENCY_RATE: Final = 1_000
LATENCY_S: Final = 12.0


class Trial(NamedTuple):
    """One comparison: who reads what, and how Ringfence and the floor are set up for it."""

    key: str
    title: str
    workload: Workload
    arms: tuple[Arm, ...]
    setup: Mapping[str, object]

    def told(self) -> dict[str, object]:
        """What a reader of the table needs to know."""
        work = self.workload
        return {
            "messages": f"{work.records:,}",
            "bytes": work.value_bytes,
            "duplicates": f"{work.duplicate_share:.0%}",
            "partitions": work.partitions,
            "batch_records": 10_000,
            "id_cache_size": 20_000,
            **self.setup,
        }


TRIALS: Final = (
    Trial("peers", "Batches of 10,000", Workload(), (FLOOR, RINGFENCE, KAFKA_STREAMS), {}),
    Trial("quix", "State by key", Workload(records=400_000), (RINGFENCE, QUIX), {}),
    Trial("batch", "Batches of 1,000", Workload(), (FLOOR, RINGFENCE), {"batch_records": 1_000}),
    Trial(
        "drop",
        "Nine of ten are duplicates",
        Workload(duplicate_share=0.9),
        (FLOOR, RINGFENCE),
        {"on_duplicate": "drop"},
    ),
)


KEYS: Final = [*(trial.key for trial in TRIALS), "latency", "artemis"]


def main() -> int:
    """Run what was asked for."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="*", default=KEYS, choices=KEYS)
    given = parser.parse_args()
    console = Console()
    results = Results()
    try:
        with venue() as place:
            run(place, results, given.rounds, given.only, console)
    except ToolError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    show(results, console)
    plot(results)
    results.write()
    console.print(f"written: {FOLDER}")
    return 0


def run(place: Venue, results: Results, rounds: int, only: list[str], console: Console) -> None:
    """Every comparison that was asked for, in turn."""
    for trial in TRIALS:
        if trial.key in only:
            paces = in_turn(place, trial, rounds, console)
            results.comparisons.append(Comparison(trial.title, trial.told(), paces))
    if "latency" in only:
        results.latencies[f"{LATENCY_RATE:,}"] = latencies(place, rounds, console)
    if "artemis" in only:
        results.queues = [artemis() for _ in range(rounds)]


def in_turn(place: Venue, trial: Trial, rounds: int, console: Console) -> dict[str, list[Pace]]:
    """Alternate the arms, round by round."""
    place.input(trial.workload)
    paces: dict[str, list[Pace]] = {arm.name: [] for arm in trial.arms}
    for _ in range(rounds):
        for arm in trial.arms:
            pace = place.pace(arm, trial.workload, **trial.setup)
            paces[arm.name].append(pace)
            console.print(f"{trial.title}: {TITLES[arm.name]}: {pace.second_half:,.0f}/s")
    return paces


def latencies(place: Venue, rounds: int, console: Console) -> dict[str, list[Latency]]:
    """The same at a steady rate."""
    arms = (FLOOR, RINGFENCE, KAFKA_STREAMS)
    found: dict[str, list[Latency]] = {arm.name: [] for arm in arms}
    for _ in range(rounds):
        for arm in arms:
            one = latency(place, arm, LATENCY_RATE, LATENCY_S)
            found[arm.name].append(one)
            console.print(f"latency: {TITLES[arm.name]}: p50 {one.p50:.1f} ms, p99 {one.p99:.1f}")
    return found


if __name__ == "__main__":
    sys.exit(main())
