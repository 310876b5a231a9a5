"""`make test`: every kind of test that this machine can run, one after the other, and a table.

A suite whose tools are missing is skipped with the reason; everything else has to pass. What pytest
reports of each stays in `.run/tests`, with the seconds of every test.
"""

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
    " and not image"
)
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


class Outcome(NamedTuple):
    """What became of a suite."""

    name: str
    passed: int
    failed: int
    skipped: int
    seconds: float
    note: str
    failures: tuple[str, ...] = ()
    """Of each failed test its name and why."""


SUITES: Final = (
    Suite("unit", UNIT, processes=2),
    Suite("simulation", "simulation"),
    Suite("oracle", "oracle", JAVA),
    Suite("broker", "broker and not spark and not helm and not browser", JAVA, processes=3),
    Suite("spark", "spark", JAVA),
    Suite("browser", "browser", ("chromium", "chromedriver", *JAVA)),
    Suite("helm", "helm", ("go", *JAVA), ("tools.helm",), is_built_ahead=True),
    Suite("image", "image", ("buildah", "mmdebstrap", *JAVA), ("tools.image",)),
)


def main(names: Sequence[str]) -> int:
    """Run the named suites, or all of them; the exit status is 1 when anything failed."""
    chosen = [suite for suite in SUITES if not names or suite.name in names]
    with built_ahead(chosen):
        outcomes = [run(suite) for suite in chosen]
    print(f"\n{'kind':<12}{'passed':>8}{'failed':>8}{'skipped':>9}{'seconds':>9}")
    for outcome in outcomes:
        print(
            f"{outcome.name:<12}{outcome.passed:>8}{outcome.failed:>8}{outcome.skipped:>9}"
            f"{outcome.seconds:>9.0f}  {outcome.note}"
        )
    for failure in (failure for each in outcomes for failure in each.failures):
        print(f"\n{failure}")
    passed, failed = sum(each.passed for each in outcomes), sum(each.failed for each in outcomes)
    skipped = sum(each.skipped for each in outcomes)
    print(f"\n{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed or not passed else 0


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
    if absent := missing(suite):
        return Outcome(suite.name, 0, 0, 0, 0.0, f"not run: {', '.join(absent)} not installed")
    print(f"\n── {suite.name} ──", flush=True)
    started_s = time.monotonic()
    for module in suite.first:
        if subprocess.run([sys.executable, "-m", module], check=False).returncode:
            return Outcome(suite.name, 0, 1, 0, time.monotonic() - started_s, f"{module} failed")
    report = REPORTS / f"{suite.name}.xml"
    report.unlink(missing_ok=True)
    command = [sys.executable, "-m", "pytest", "-q", "--tb=short", f"--junitxml={report}"]
    command += ["-m", suite.marks]
    if suite.processes > 1:
        command += ["-n", str(suite.processes)]
    code = subprocess.run(command, check=False).returncode
    return counted(suite.name, report, code, time.monotonic() - started_s)


def counted(name: str, report: Path, code: int, seconds: float) -> Outcome:
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
