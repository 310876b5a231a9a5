"""Short benchmark (`make bench`): Ringfence, the floor and the peers in turn on one broker.

It prints tables and writes JSON and plots. Ratios are taken within a round, in which the arms ran
one after the other on the same machine.
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
from bench.series.asking import LISTED, POLLED, ApiLoad, asking
from bench.session import Session
from bench.trials import TITLES, TRIALS, compared, warm_up
from bench.venue import Venue, open_venue
from bench.workload import Workload
from tools.errors import ToolError

LATENCY_RATE: Final = 1_000
LATENCY_S: Final = 12.0
ASKED_ROUNDS: Final = 5
"""Minimum number of rounds, each with about nine seconds of requests. Seven rounds are a minute,
but the whole run then takes fifteen."""


KEYS: Final = [*(trial.key for trial in TRIALS), "latency", "asked", "listed", "artemis"]


def main() -> int:
    """Run the selected benchmarks; return 1 if a tool failed."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="*", default=KEYS, choices=KEYS)
    given = parser.parse_args()
    console = Console()
    results = Results()
    try:
        with open_venue() as venue:
            warm_up(venue, Workload(), console.print)
            run(venue, results, given.rounds, given.only, console)
    except ToolError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    show(results, console)
    plot(results)
    results.write()
    console.print(f"written: {FOLDER}")
    return 0


def run(venue: Venue, results: Results, rounds: int, only: list[str], console: Console) -> None:
    """Run every selected benchmark in turn, and add the results."""
    for trial in TRIALS:
        if trial.key in only:
            results.comparisons.append(compared(venue, trial, rounds, console.print))
    if "latency" in only:
        results.latencies[f"{LATENCY_RATE:,}"] = latencies(venue, rounds, console)
    if "asked" in only:
        results.asked = cost_of_asking(venue, rounds, console, POLLED).to_json()
    if "listed" in only:
        results.listed = cost_of_asking(venue, rounds, console, LISTED).to_json()
    if "artemis" in only:
        results.queues = [artemis() for _ in range(rounds)]


def latencies(venue: Venue, rounds: int, console: Console) -> dict[str, list[Latency]]:
    """Measure the latency of each arm at a steady rate, round by round."""
    arms = (FLOOR, RINGFENCE, KAFKA_STREAMS)
    found: dict[str, list[Latency]] = {arm.name: [] for arm in arms}
    for _ in range(rounds):
        for arm in arms:
            one = latency(venue, arm, LATENCY_RATE, LATENCY_S)
            found[arm.name].append(one)
            console.print(f"latency: {TITLES[arm.name]}: p50 {one.p50:.1f} ms, p99 {one.p99:.1f}")
    return found


def cost_of_asking(venue: Venue, rounds: int, console: Console, load: ApiLoad) -> Finding:
    """Measure what API requests cost the loop."""
    rounds = max(rounds, ASKED_ROUNDS)
    with Groups(venue) as groups:
        session = Session(venue, groups, rounds, 1.0, partial(console.print, highlight=False))
        found = asking(session, load)
    console.print(table(found))
    return found


if __name__ == "__main__":
    sys.exit(main())
