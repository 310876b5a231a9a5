"""Comparison of this checkout with the service of another commit, on one broker, in turn.

`make bench-earlier REVISION=v1` prints CPU time per message and rate of both, and their ratios, on
the compiled path; `ARGS=--python` on the path in Python. A ratio is taken within a round, and every
second round runs in reverse order, as in `make bench`. Each commit runs its own compiled code.
"""

import argparse
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from rich.console import Console

from bench.arms import IN_PYTHON, RINGFENCE, ROOT, Arm, running
from bench.finding import Finding, Row, table
from bench.machine import cpu_s
from bench.progress import Point, pace
from bench.results import Spread
from bench.series.stages import ALL, LOOP, per_message
from bench.trials import TITLES, warm_up
from bench.venue import Venue, open_venue
from bench.workload import Workload
from tools.errors import ToolError
from tools.jars import RUN_FOLDER
from tools.unpack import unpack

_FOLDER: Final = RUN_FOLDER / "bench" / "earlier"
_RATE: Final = "messages a second"


class Turn(NamedTuple):
    """One run of either: CPU time per message in µs, when warm, and the rate."""

    loop: float
    all_threads: float
    rate: float


def main() -> int:
    """Compare at each batch size; return 1 if a tool failed."""
    parser = argparse.ArgumentParser(prog="python -m bench.earlier", description=__doc__)
    parser.add_argument("revision", help="the commit to compare with")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--batches", type=int, nargs="+", default=[10_000, 1_000])
    parser.add_argument("--python", action="store_true", help="compare the path in Python")
    given = parser.parse_args()
    console = Console()
    arm = IN_PYTHON if given.python else RINGFENCE
    workload = Workload()
    try:
        earlier = checked_out(given.revision, _FOLDER)
        with open_venue() as venue:
            warm_up(venue, workload, console.print)
            for batch in given.batches:
                turns = _turns(venue, workload, batch, arm, earlier, given.rounds, console)
                settings = {"messages": f"{workload.records:,}", "batch_records": batch}
                title = f"{TITLES[arm.name]}, batches of {batch:,}: now and {given.revision}"
                console.print(table(compared(title, settings, *turns)))
    except ToolError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    return 0


def checked_out(revision: str, folder: Path) -> Path:
    """Write the files of a commit into a folder, replacing its contents, and compile its C code."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    command = ["git", "-C", str(ROOT), "archive", "--format=tar", revision]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as git:
        assert git.stdout is not None  # it is a pipe
        try:
            with tarfile.open(fileobj=git.stdout, mode="r|") as files:
                unpack(files, folder)
        except tarfile.ReadError as error:
            raise ToolError(f"git has no commit {revision!r}; name another one") from error
    build = [sys.executable, str(folder / "native" / "build.py"), "--to", str(folder)]
    if subprocess.run(build, check=False).returncode or not any(folder.glob("*.so")):
        raise ToolError(f"the compiled code of {revision} could not be built")
    return folder


def compared(
    title: str, settings: Mapping[str, object], before: list[Turn], after: list[Turn]
) -> Finding:
    """Return a row per figure; the ratio is this checkout's over the other's, by round."""
    parts = [(f"{LOOP}, µs a message", 0), (f"{ALL}, µs a message", 1), (_RATE, 2)]
    rows: list[Row] = [
        {
            "figure": part,
            "earlier": Spread.of(turn[index] for turn in before),
            "now": Spread.of(turn[index] for turn in after),
            "now / earlier": Spread.of(
                late[index] / early[index] for early, late in zip(before, after, strict=True)
            ),
        }
        for part, index in parts
    ]
    return Finding(title, {**settings, "rounds": len(before)}, rows)


def _turns(
    venue: Venue,
    workload: Workload,
    batch: int,
    arm: Arm,
    earlier: Path,
    rounds: int,
    console: Console,
) -> tuple[list[Turn], list[Turn]]:
    found: dict[Path, list[Turn]] = {earlier: [], ROOT: []}
    for number in range(rounds):
        for folder in list(found)[:: -1 if number % 2 else 1]:
            turn = _turn(venue, workload, batch, arm, folder)
            found[folder].append(turn)
            name = "now" if folder == ROOT else "earlier"
            console.print(f"{batch:,}: {name}: loop {turn.loop:.2f} µs, {turn.rate:,.0f}/s")
    return found[earlier], found[ROOT]


def _turn(venue: Venue, workload: Workload, batch: int, arm: Arm, folder: Path) -> Turn:
    points, before = list[Point](), dict[str, float]()
    with (
        venue.reading(arm, workload, batch_records=batch, code=folder) as stage,
        running(arm, stage) as one,
    ):
        for point in venue.follow(stage, workload, one.check):
            points.append(point)
            if not before and point.records >= workload.records / 2:
                before, half = cpu_s(one.pid), point.records
            after = cpu_s(one.pid)
    costs = per_message(before, after, points[-1].records - half)
    return Turn(costs[LOOP], costs[ALL], pace(points).second_half)


if __name__ == "__main__":
    sys.exit(main())
