"""`make test`: every kind of test that this machine can run, one after the other, and a table.

A suite whose tools are missing is skipped with the reason; everything else has to pass. Beside what
each took stands its budget on two idle cores: a suite that is over it has grown, or was disturbed;
that fails nothing. What pytest reports stays in `.run/tests`, with the seconds of every test.
"""

import resource
import shutil
import subprocess
import sys
import textwrap
import time
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from tools.jars import RUN_FOLDER

REPORTS: Final = RUN_FOLDER / "tests"
NO_TESTS: Final = 5
SAID_MAX: Final = 800
UNIT: Final = (
    "not broker and not oracle and not simulation and not spark and not helm and not browser"
    " and not image and not long"
)
BROKER: Final = "broker and not spark and not helm and not browser"
JAVA: Final = ("java", "javac", "mvn")


class Suite(NamedTuple):
    """One kind of test: how pytest finds it, and the programs without which it cannot run."""

    name: str
    marks: str
    needs: tuple[str, ...] = ()
    first: tuple[str, ...] = ()
    """A module to run before, which builds what the suite needs."""
    is_built_ahead: bool = False
    """Whether that takes long and is begun with the first suite, at the lowest priority."""
    processes: int = 1
    """How many share its tests: more where none of them minds the others."""
    budget_s: int = 0


class Outcome(NamedTuple):
    """What became of a suite."""

    name: str
    passed: int
    failed: int
    skipped: int
    seconds: float
    note: str = ""
    failures: tuple[str, ...] = ()
    """Of each failed test its name and why."""
    cpu_s: float = 0.0
    budget_s: int = 0


SUITES: Final = (
    Suite("unit", UNIT, processes=2, budget_s=170),
    Suite("simulation", "simulation", budget_s=60),
    Suite("oracle", "oracle", JAVA, budget_s=30),
    Suite("broker", f"{BROKER} and not long", JAVA, processes=3, budget_s=600),
    Suite("spark", "spark", JAVA, budget_s=230),
    Suite("browser", "browser", ("chromium", "chromedriver", *JAVA), budget_s=70),
    Suite("helm", "helm", ("go", *JAVA), ("tools.helm",), is_built_ahead=True, budget_s=150),
    Suite("image", "image", ("buildah", "mmdebstrap", *JAVA), ("tools.image",), budget_s=150),
)


def main(names: Sequence[str]) -> int:
    """Run the named suites, or all of them; the exit status is 1 when anything failed."""
    chosen = [suite for suite in SUITES if not names or suite.name in names]
    with built_ahead(chosen):
        outcomes = [run(suite) for suite in chosen]
    show(outcomes, "kind")
    passed, failed = sum(each.passed for each in outcomes), sum(each.failed for each in outcomes)
    skipped, seconds = sum(e.skipped for e in outcomes), sum(e.seconds for e in outcomes)
    budget_s = sum(each.budget_s for each in outcomes)
    print(f"\n{passed} passed, {failed} failed, {skipped} skipped; {seconds:.0f} of {budget_s} s")
    return 1 if failed or not passed else 0


def show(outcomes: Sequence[Outcome], kind: str) -> None:
    """Print a table of what became of suites, then each failure."""
    print(f"\n{kind:<12}  passed  failed  skipped  seconds  budget     CPU")
    for each in outcomes:
        note = each.note or ("over its budget" if 0 < each.budget_s < each.seconds else "")
        print(
            f"{each.name:<12}{each.passed:>8}{each.failed:>8}{each.skipped:>9}{each.seconds:>9.0f}"
            f"{each.budget_s or '':>8}{each.cpu_s:>8.0f}  {note}"
        )
    for failure in (failure for each in outcomes for failure in each.failures):
        print(f"\n{failure}")


@contextmanager
def built_ahead(suites: Sequence[Suite]) -> Iterator[None]:
    """Build beside the tests what takes long; who needs it waits for it, and tells what it says."""
    modules = [
        module
        for suite in suites
        for module in suite.first
        if suite.is_built_ahead and not missing(suite)
    ]
    builds = [
        subprocess.Popen(
            ["nice", "-n", "19", sys.executable, "-m", module],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for module in modules
    ]
    try:
        yield
    finally:
        for build in builds:
            build.terminate()
            build.wait()


def missing(suite: Suite) -> list[str]:
    """The programs that it needs and that are not here."""
    return [program for program in suite.needs if shutil.which(program) is None]


def run(suite: Suite) -> Outcome:
    """One suite in a process of its own; a crash counts as a failure."""
    started_s, cpu_s = time.monotonic(), children_cpu_s()
    outcome = _run(suite)
    return outcome._replace(
        seconds=time.monotonic() - started_s,
        cpu_s=children_cpu_s() - cpu_s,
        budget_s=suite.budget_s,
    )


def children_cpu_s() -> float:
    """The processor time of all children that have ended, and of theirs."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _run(suite: Suite) -> Outcome:
    if absent := missing(suite):
        return Outcome(suite.name, 0, 0, 0, 0.0, f"not run: {', '.join(absent)} not installed")
    print(f"\n── {suite.name} ──", flush=True)
    for module in suite.first:
        if subprocess.run([sys.executable, "-m", module], check=False).returncode:
            return Outcome(suite.name, 0, 1, 0, 0.0, f"{module} failed")
    report = REPORTS / f"{suite.name}.xml"
    report.unlink(missing_ok=True)
    command = [sys.executable, "-m", "pytest", "-q", "--tb=short", f"--junitxml={report}"]
    command += ["-m", suite.marks]
    if suite.processes > 1:
        # Tests that share what is costly to start are of one group, and run in one process.
        command += ["-n", str(suite.processes), "--dist", "loadgroup"]
    code = subprocess.run(command, check=False).returncode
    return counted(suite.name, report, code)


def counted(name: str, report: Path, code: int, seconds: float = 0.0) -> Outcome:
    """Read pytest's own report; without one, the suite has failed."""
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
    """The failed tests: what they said scrolls away, so it is told again at the end."""
    for test in tests.iter("testcase"):
        for found in (*test.iter("failure"), *test.iter("error")):
            where = f"{test.get('classname')}::{test.get('name')}"
            said = textwrap.shorten(found.get("message", ""), SAID_MAX, placeholder=" …")
            yield f"{where}: {said}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
