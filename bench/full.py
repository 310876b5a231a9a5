"""Full benchmark (`make bench-full`): runs every series in turn on one broker.

It prints a table and draws a plot for each, and writes one JSON file. `--only ids_held restore`
measures some of them; `--scale 0.05` is a quick check that all still run.
"""

import argparse
import json
import sys
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Final

from rich.console import Console

from bench.chart import plot
from bench.filled import Groups
from bench.finding import Finding, table
from bench.machine import described
from bench.results import FOLDER, versions
from bench.series.asking import LISTED, POLLED, asking
from bench.series.changelog import changelog
from bench.series.held import ids_held, ids_spread
from bench.series.horizon import horizon
from bench.series.instances import instances
from bench.series.latencies import latencies
from bench.series.lookup import lookup
from bench.series.peers import artemis, peers
from bench.series.planned import planned
from bench.series.refused import refused
from bench.series.registry import registry
from bench.series.restart import restore
from bench.series.shapes import shapes
from bench.series.spread import spread
from bench.series.stages import stages
from bench.series.sweeps import PLAIN, SWEEPS, swept
from bench.series.takeover import takeover
from bench.session import Session
from bench.trials import warm_up
from bench.venue import open_venue
from tools.errors import ToolError

FULL: Final = FOLDER / "full.json"
_WIDTH: Final = 150
"""Width of the tables if the output is not a terminal."""
SERIES: Final[Mapping[str, Callable[[Session], Finding]]] = {
    "peers": partial(peers, key="peers"),
    "flink": partial(peers, key="flink"),
    "quix": partial(peers, key="quix"),
    **{key: partial(swept, sweep=sweep) for key, sweep in SWEEPS.items()},
    "instances": instances,
    "spread": spread,
    "stages": stages,
    "changelog": changelog,
    "refused": refused,
    "registry": registry,
    "asking": partial(asking, load=POLLED),
    "listing": partial(asking, load=LISTED),
    "latency": latencies,
    "shapes": shapes,
    "ids_held": ids_held,
    "horizon": horizon,
    "planned": planned,
    "restore": restore,
    "takeover": takeover,
    "lookup": lookup,
    "artemis": artemis,
    "ids_spread": ids_spread,
}


def main() -> int:
    """Run the selected series, and write each result before the next series; 1 if one failed."""
    parser = argparse.ArgumentParser(prog="python -m bench.full", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--scale", type=float, default=1.0, help="multiplies records and ids")
    parser.add_argument("--only", nargs="+", default=list(SERIES), choices=list(SERIES))
    given = parser.parse_args()
    console = Console(width=None if sys.stdout.isatty() else _WIDTH)
    found: dict[str, Finding] = {}
    try:
        with open_venue() as venue, Groups(venue) as groups:
            write_line = partial(console.print, soft_wrap=True, highlight=False)
            session = Session(venue, groups, given.rounds, given.scale, write_line)
            warm_up(venue, session.sized(PLAIN), session.say)
            for key in given.only:
                session.say(f"[bold]{key}")
                try:
                    found[key] = SERIES[key](session)
                except Exception:  # noqa: BLE001 - the other series can still be measured
                    console.print_exception()
                    continue
                write(found, given.rounds, given.scale)
                plot(found[key], key, FOLDER)
                console.print(table(found[key]))
            session.say(f"written: {FOLDER}")
    except ToolError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    return int(len(found) < len(given.only))


def write(found: Mapping[str, Finding], rounds: int, scale: float) -> None:
    """Write all findings so far, with the versions and the machine."""
    document = {
        "made": datetime.now(UTC).isoformat(timespec="seconds"),
        "rounds": rounds,
        "scale": scale,
        "versions": versions(),
        "machine": described(),
        "series": {key: finding.to_json() for key, finding in found.items()},
    }
    FULL.parent.mkdir(parents=True, exist_ok=True)
    FULL.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
