"""`make bench`: Ringfence, the floor and the peers in turn on one broker; tables, JSON and plots.

Ratios are taken within a round, where the arms ran one after the other on the same machine.
"""

import argparse
import sys
from functools import partial
from typing import Final

from rich.console import Console

from bench.arms import FLOOR, KAFKA_STREAMS, RINGFENCE
from bench.artemis import artemis
from bench.filled import Groups
from bench.finding import Finding, table
from bench.latency import Latency, latency
from bench.report import plot, show
from bench.results import FOLDER, Results
from bench.series.asking import LISTED, POLLED, Asking, asking
from bench.session import Session
from bench.trials import TITLES, TRIALS, compared, warm_up
from bench.venue import Venue, venue
from bench.workload import Workload
from tools.errors import ToolError

LATENCY_RATE: Final = 1_000
LATENCY_S: Final = 12.0
ASKED_ROUNDS: Final = 5
"""At least; each is asked for some nine seconds. Seven are a minute, but then all takes fifteen."""


KEYS: Final = [*(trial.key for trial in TRIALS), "latency", "asked", "listed", "artemis"]


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
            warm_up(place, Workload(), console.print)
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
            results.comparisons.append(compared(place, trial, rounds, console.print))
    if "latency" in only:
        results.latencies[f"{LATENCY_RATE:,}"] = latencies(place, rounds, console)
    if "asked" in only:
        results.asked = cost_of_asking(place, rounds, console, POLLED).told()
    if "listed" in only:
        results.listed = cost_of_asking(place, rounds, console, LISTED).told()
    if "artemis" in only:
        results.queues = [artemis() for _ in range(rounds)]


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


def cost_of_asking(place: Venue, rounds: int, console: Console, about: Asking) -> Finding:
    """What it costs the loop that its API is asked."""
    rounds = max(rounds, ASKED_ROUNDS)
    with Groups(place) as groups:
        session = Session(place, groups, rounds, 1.0, partial(console.print, highlight=False))
        found = asking(session, about)
    console.print(table(found))
    return found


if __name__ == "__main__":
    sys.exit(main())
