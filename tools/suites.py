"""Test suites in two rings: `make test` runs the quick one, `make test-all` both.

The quick ring has tests of every guarantee, for a machine that has Python and Java; the thorough
ring has all others, and the whole of what the quick one takes a sample of. Suites run three at a
time. A suite whose tools are missing is skipped with the reason; everything else has to pass. The
table at the end has the seconds of each suite beside its budget on two cores. A suite over its
budget has grown or was disturbed; that fails nothing. The output of a suite and the seconds of its
tests are kept in `.run/tests`; the output is printed if the suite failed.
"""

import os
import shutil
import subprocess
import sys
import textwrap
import time
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from threading import Lock
from typing import IO, Final, Literal, NamedTuple, cast, get_args

from tools.jars import RUN_FOLDER

REPORTS: Final = RUN_FOLDER / "tests"
NO_TESTS: Final = 5
MESSAGE_CHARS_MAX: Final = 800
UNIT: Final = (
    "not broker and not oracle and not simulation and not spark and not helm and not browser"
    " and not image and not security and not long"
)
BROKER: Final = "broker and not spark and not helm and not browser"
JAVA: Final = ("java", "javac", "mvn")
LANES: Final = 3
"""How many suites run at once: tests spend most of their time waiting, above all for brokers."""
_PRINT_LOCK: Final = Lock()


Ring = Literal["quick", "thorough"]


class QuickPart(NamedTuple):
    """The tests of a suite that belong to the quick ring."""

    tests: tuple[str, ...] = ()
    """Their folders, files or names, below tests/; empty for all of the suite."""
    without: tuple[str, ...] = ()
    """Those among them that take long, and belong to the thorough ring."""
    sample: Mapping[str, str] = {}
    """Variables that make them a sample; then the thorough ring runs them too, as a whole."""
    budget_s: int = 0


class Suite(NamedTuple):
    """A kind of test: how pytest selects it, and the programs that it needs."""

    name: str
    marks: str
    needs: tuple[str, ...] = ()
    first: tuple[str, ...] = ()
    """A module to run first, which builds what the suite needs."""
    folder: str = ""
    """Below tests/; empty for all of it."""
    processes: int = 1
    """How many processes share its tests: more than one only if the tests are independent."""
    budget_s: int = 0
    """Of the thorough ring."""
    quick: QuickPart | None = None


class Outcome(NamedTuple):
    """The result of one suite."""

    name: str
    passed: int
    failed: int
    skipped: int
    seconds: float
    note: str = ""
    failures: tuple[str, ...] = ()
    """Name and message of each failed test."""
    cpu_s: float = 0.0
    budget_s: int = 0


SUITES: Final = (
    Suite(
        "broker",
        f"{BROKER} and not long",
        JAVA,
        ("tools.broker.archive",),
        processes=3,
        budget_s=950,
        quick=QuickPart(
            (
                "broker/test_kill.py::test_a_kill_on_either_fast_path_leaves_every_record_with_one_fate",
                "broker/test_by_address.py",
                "broker/test_bridge.py::test_sigterm_under_load_ends_in_time_and_loses_nothing",
                "broker/test_command_line.py::test_an_operator_finds_out_why_a_record_was_dropped_and_lets_it_through",
                "broker/test_readme.py",
            ),
            budget_s=90,
        ),
    ),
    Suite(
        "spark",
        "spark and not long",
        JAVA,
        ("tools.spark_archive",),
        folder="spark",
        budget_s=900,
        quick=QuickPart(
            (
                "spark/test_tables.py::test_each_committed_message_is_a_row_once_and_no_aborted_one_is",
                "spark/test_backfill.py::test_the_verdicts_are_those_of_the_service_in_the_same_order",
            ),
            budget_s=180,
        ),
    ),
    Suite("helm", "helm and not long", ("go", *JAVA), ("tools.helm",), folder="helm", budget_s=400),
    Suite(
        "image",
        "image and not long",
        ("buildah", "mmdebstrap", *JAVA),
        ("tools.image",),
        folder="image",
        budget_s=450,
    ),
    Suite(
        "unit",
        UNIT,
        processes=2,
        budget_s=150,
        quick=QuickPart(
            without=(
                "unit/bench",
                "unit/tools",
                "unit/test_import_rules.py",
                "unit/service/cli/test_visible.py",
                "api/test_odd_input.py",
                "cases/test_manners.py",
                "fuzz",
            ),
            budget_s=330,
        ),
    ),
    Suite("security", "security", JAVA, folder="security", quick=QuickPart(budget_s=60)),
    Suite(
        "simulation",
        "simulation",
        folder="simulation",
        budget_s=240,
        quick=QuickPart(
            (
                "simulation/test_simulation.py::test_every_invariant_holds_whatever_step_is_the_last",
                "simulation/test_simulation.py::test_every_invariant_holds_on_the_compiled_path_too",
            ),
            sample={"RINGFENCE_SIM_RUNS": "800"},
            budget_s=150,
        ),
    ),
    Suite(
        "browser", "browser", ("chromium", "chromedriver", *JAVA), folder="browser", budget_s=260
    ),
    Suite("oracle", "oracle", JAVA, folder="oracle", quick=QuickPart(budget_s=60)),
)
"""In starting order: first those that take longest and mostly wait, then those that mostly
compute, so that both cores are busy to the end."""


def main(words: Sequence[str]) -> int:
    """Run a ring or `all`, or those of its suites that are named; return 1 if anything failed."""
    rings: Sequence[Ring] = get_args(Ring) if words[0] == "all" else (cast("Ring", words[0]),)
    names = words[1:] or [suite.name for suite in SUITES]
    if unknown := {*names} - {suite.name for suite in SUITES}:
        print(f"There is no suite {', '.join(sorted(unknown))}.", file=sys.stderr)
        return 2
    REPORTS.mkdir(parents=True, exist_ok=True)
    started_s = time.monotonic()
    outcomes = [each for ring in rings for each in _ring(ring, names)]
    passed, failed = sum(each.passed for each in outcomes), sum(each.failed for each in outcomes)
    skipped = sum(each.skipped for each in outcomes)
    minutes = (time.monotonic() - started_s) / 60
    print(f"\n{passed} passed, {failed} failed, {skipped} skipped in {minutes:.1f} minutes")
    return 1 if failed or not passed else 0


def _ring(ring: Ring, names: Sequence[str]) -> Sequence[Outcome]:
    """Run those of the named suites that have tests in a ring, and show how they ended."""
    chosen = [each for each in SUITES if each.name in names and arguments_of(each, ring)]
    lanes = ThreadPoolExecutor(LANES)
    try:
        outcomes = list(lanes.map(partial(run, ring=ring), chosen))
    finally:
        lanes.shutdown(cancel_futures=True)
    if outcomes:
        show(outcomes, ring)
    return outcomes


def show(outcomes: Sequence[Outcome], kind: str) -> None:
    """Print a table of the outcomes, then each failure."""
    print(f"\n{kind:<12}  passed  failed  skipped  seconds  budget     CPU")
    for each in outcomes:
        note = each.note or ("over its budget" if 0 < each.budget_s < each.seconds else "")
        print(
            f"{each.name:<12}{each.passed:>8}{each.failed:>8}{each.skipped:>9}{each.seconds:>9.0f}"
            f"{each.budget_s or '':>8}{each.cpu_s:>8.0f}  {note}"
        )
    for failure in (failure for each in outcomes for failure in each.failures):
        print(f"\n{failure}")


def missing(suite: Suite) -> list[str]:
    """Return the programs that the suite needs and this machine lacks."""
    return [program for program in suite.needs if shutil.which(program) is None]


def arguments_of(suite: Suite, ring: Ring) -> Sequence[str] | None:
    """Return pytest's arguments for the tests of a suite in a ring; None if there are none."""
    whole, quick = [f"tests/{suite.folder}", *ignored(suite)], suite.quick
    if quick is None:
        return whole if ring == "thorough" else None
    if ring == "quick":
        return [*(_paths(quick.tests) or whole), *_without(quick.without)]
    if quick.sample:
        return whole
    if quick.tests:
        return [*whole, *_without(quick.tests)]
    return _paths(quick.without) or None


def _paths(tests: Sequence[str]) -> list[str]:
    return [f"tests/{each}" for each in tests]


def _without(tests: Sequence[str]) -> list[str]:
    return [f"--deselect=tests/{each}" for each in tests]


def run(suite: Suite, ring: Ring) -> Outcome:
    """Run a suite's tests of a ring in a process of its own; a crash counts as a failure."""
    if absent := missing(suite):
        return Outcome(suite.name, 0, 0, 0, 0.0, f"not run: {', '.join(absent)} not installed")
    say(f"{suite.name} started")
    started_s, log = time.monotonic(), REPORTS / f"{ring}-{suite.name}.log"
    outcome, cpu_s = _run(suite, ring, log)
    seconds = time.monotonic() - started_s
    counts = f"{outcome.passed} passed, {outcome.failed} failed, {outcome.skipped} skipped"
    output = log.read_text(encoding="utf-8", errors="replace") if outcome.failed else ""
    say(f"{output}{suite.name}: {counts} in {seconds:.0f} s")
    quick = suite.quick if ring == "quick" else None
    budget_s = suite.budget_s if quick is None else quick.budget_s
    return outcome._replace(seconds=seconds, cpu_s=cpu_s, budget_s=budget_s)


def say(lines: str) -> None:
    """Print lines that suites running in parallel do not interleave."""
    with _PRINT_LOCK:
        print(lines, flush=True)


def _run(suite: Suite, ring: Ring, log: Path) -> tuple[Outcome, float]:
    report = log.with_suffix(".xml")
    report.unlink(missing_ok=True)
    pytest = ["pytest", "-q", "--tb=short", f"--junitxml={report}", "-m", suite.marks]
    pytest += arguments_of(suite, ring) or []
    if suite.processes > 1:
        # Tests that share an expensive fixture belong to one group and run in one process.
        pytest += ["-n", str(suite.processes), "--dist", "loadgroup"]
    # Each suite has its own range of ports, because a chosen port is bound only later.
    number = [each.name for each in SUITES].index(suite.name)
    env = {"RINGFENCE_PORTS": f"{number}/{len(SUITES)}"}
    if ring == "quick" and suite.quick is not None:
        env |= suite.quick.sample
    code, cpu_s = 0, 0.0
    with log.open("wb") as output:
        for words in (*([module] for module in suite.first), pytest):
            code, more_s = run_module(words, env, output)
            cpu_s += more_s
            if code and words is not pytest:
                return Outcome(suite.name, 0, 1, 0, 0.0, f"{words[0]} failed"), cpu_s
    return counted(suite.name, report, code), cpu_s


def ignored(suite: Suite) -> list[str]:
    """Return pytest's options to skip the folders of other suites.

    To import the modules there takes seconds of CPU time, in each process of the suite.
    """
    if suite.folder:
        return []
    return [f"--ignore=tests/{each.name}" for each in SUITES if each.name != suite.name]


def run_module(
    words: Sequence[str], env: Mapping[str, str], output: IO[bytes] | None = None
) -> tuple[int, float]:
    """Run a module; return its exit status, and the CPU seconds of it and its children.

    Args:
        words: the module and its arguments
        env: variables added to the environment
        output: receives its stdout and stderr; None for the terminal

    """
    command = [sys.executable, "-m", *words]
    error = None if output is None else subprocess.STDOUT
    process = subprocess.Popen(command, stdout=output, stderr=error, env={**os.environ, **env})
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return process.returncode, used.ru_utime + used.ru_stime


def counted(name: str, report: Path, code: int, seconds: float = 0.0) -> Outcome:
    """Return the outcome according to pytest's report; without a report, the suite has failed."""
    if code == NO_TESTS:
        return Outcome(name, 0, 1, 0, seconds, "no test was found")
    if not report.exists():
        return Outcome(name, 0, 1, 0, seconds, f"pytest ended with {code}")
    totals = ET.parse(report).getroot().find("testsuite")  # noqa: S314 - pytest wrote it just now
    if totals is None:
        return Outcome(name, 0, 1, 0, seconds, "pytest wrote an empty report")
    count = {key: int(totals.get(key, "0")) for key in ("tests", "failures", "errors", "skipped")}
    failed = count["failures"] + count["errors"]
    if code and not failed:
        failed = 1
    passed = max(0, count["tests"] - failed - count["skipped"])
    return Outcome(name, passed, failed, count["skipped"], seconds, "", tuple(failures(totals)))


def failures(tests: ET.Element) -> Iterator[str]:
    """Yield name and message of each failed test, to repeat them below the table."""
    for test in tests.iter("testcase"):
        for found in (*test.iter("failure"), *test.iter("error")):
            name, text = f"{test.get('classname')}::{test.get('name')}", found.get("message", "")
            yield f"{name}: {textwrap.shorten(text, MESSAGE_CHARS_MAX, placeholder=' …')}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
