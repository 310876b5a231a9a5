"""`make mutants`: break the core in every small way, and name what no fast test finds.

ARGS takes groups of tests/mutation/core.py or paths, and `--sample 400`. What is judged stays in
.run/mutants, so that a run that was ended goes on; a mutant is judged again when its function or
the tests that judged it are changed. What tests/mutation/equivalent.toml explains is judged with
`--again` alone.
"""

import argparse
import os
import random
import shlex
import sys
from pathlib import Path

from tests.mutation.core import GROUPS, MARKS, PACKAGES, TESTS
from tests.mutation.mutant import Mutant
from tests.mutation.operators import mutants_of
from tests.mutation.report import report
from tests.mutation.results import Explained, keys
from tests.mutation.run import Options, Run


def main(arguments: list[str] | None = None) -> None:
    given = _parser().parse_args(arguments)
    root = given.root.resolve()
    options = Options(
        root,
        tuple(given.packages),
        tuple(given.tests),
        MARKS if root == Path.cwd() else "",
        root / ".run" / "mutants",
        given.jobs,
        given.budget,
        given.again,
    )
    every = keys(mutant for path in _paths(root, given.targets) for mutant in _mutants(root, path))
    chosen = every
    if given.sample:
        some = random.Random(given.seed).sample(list(every), min(given.sample, len(every)))
        chosen = {key: every[key] for key in every if key in set(some)}
    explained = Explained(root / "tests" / "mutation" / "equivalent.toml")
    judged = chosen if given.again else unexplained(chosen, explained)
    run = Run(options, judged)
    if given.report:
        run.load()
    else:
        run.go()
    known = {key: result for key in judged if (result := run.known(key)) is not None}
    lines = list(report(root, chosen, known, explained, run.could_be_run))
    files = {mutant.path for mutant in every.values()}
    identities = {mutant.identity for mutant in every.values()}
    lines += [
        f"explained, but no mutant: {entry}"
        for entry in explained.unknown(frozenset(identities))
        if entry.split(" ")[0] in files
    ]
    print("\n".join(lines))
    (options.folder / "report.txt").write_text("\n".join(lines) + "\n")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="make mutants", description=__doc__)
    parser.add_argument(
        "targets", nargs="*", default=list(GROUPS), help="groups, files or patterns"
    )
    parser.add_argument("--sample", type=int, help="judge so many, drawn by the seed")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="children at once")
    parser.add_argument(
        "--budget", type=float, default=60.0, help="seconds of traced tests for one mutant at most"
    )
    parser.add_argument(
        "--again", action="store_true", help="judge what is judged already, or explained"
    )
    parser.add_argument("--report", action="store_true", help="tell what is known, judge nothing")
    parser.add_argument("--root", type=Path, default=Path.cwd(), help=argparse.SUPPRESS)
    parser.add_argument("--packages", nargs="*", default=PACKAGES, help=argparse.SUPPRESS)
    parser.add_argument("--tests", type=shlex.split, default=TESTS, help="as pytest takes them")
    return parser


def _paths(root: Path, targets: list[str]) -> list[str]:
    patterns = [pattern for target in targets for pattern in GROUPS.get(target, (target,))]
    found: dict[str, None] = {}
    for pattern in patterns:
        files = sorted(root.glob(pattern))
        if not files:
            sys.exit(f"{pattern}: there is no such file or group")
        found |= dict.fromkeys(str(path.relative_to(root)) for path in files)
    return list(found)


def unexplained(mutants: dict[str, Mutant], explained: Explained) -> dict[str, Mutant]:
    """Return the mutants that a test has to find."""
    return {
        key: mutant for key, mutant in mutants.items() if mutant.identity not in explained.reasons
    }


def _mutants(root: Path, path: str) -> list[Mutant]:
    return mutants_of(path, (root / path).read_bytes())


if __name__ == "__main__":
    main()
