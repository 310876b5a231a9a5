"""`python -m tests.soak`: prints what it does as it does it, and at the end what held."""

import argparse
import secrets
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.broker.service import REPOSITORY
from tests.broker.world import Manner
from tests.soak.run import Soak, Verdict

FOLDER: Final = REPOSITORY / ".run" / "soak"


def main(arguments: Sequence[str] | None = None) -> int:
    """Soak; 0 when everything held, else 1."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--scope", choices=("partition", "address"), default="partition")
    parser.add_argument("--brokers", type=int, choices=(1, 3), default=1)
    given = parser.parse_args(arguments)
    seed = secrets.randbelow(1_000_000) if given.seed is None else given.seed
    manner = Manner(workers=given.workers, scope=given.scope)
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    print(
        f"seed {seed}, {given.seconds:.0f} s, {manner.workers} workers, scope {manner.scope},"
        f" {given.brokers} brokers"
    )
    verdicts = Soak(FOLDER, seed, given.seconds, manner, _said, given.brokers).run()
    again = f"make soak SECONDS={given.seconds:.0f} SEED={seed}"
    if manner != Manner() or given.brokers != 1:
        more = f"--workers {given.workers} --scope {given.scope} --brokers {given.brokers}"
        again += f' ARGS="{more}"'
    return _told(verdicts, again, FOLDER)


def _told(verdicts: Sequence[Verdict], again: str, folder: Path) -> int:
    """Each promise once, with what broke it first."""
    broken: dict[str, str | None] = {}
    for verdict in verdicts:
        broken[verdict.promise] = broken.get(verdict.promise) or verdict.broken
    print("\nwhat held")
    for promise, what in broken.items():
        print(f"  {'BROKEN' if what else 'held  '}  {promise}")
        if what:
            print("\n".join(f"          {line}" for line in what.splitlines()[:20]))
    failed = sum(what is not None for what in broken.values())
    if failed:
        print(f"\n{failed} of {len(broken)} promises were broken; logs are in {folder}")
    else:
        print(f"\nall of {len(broken)} promises held")
    print(f"replay with {again}")
    return 1 if failed else 0


def _said(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
