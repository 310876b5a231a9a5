"""`make test`: every kind of test that this machine can run, one after the other, and a table.

A suite whose tools are missing is skipped with the reason; everything else has to pass.
"""

import shutil
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

NO_TESTS: Final = 5
UNIT: Final = "not broker and not oracle and not simulation and not spark and not helm"
JAVA: Final = ("java", "javac", "mvn")


class Suite(NamedTuple):
    """One kind of test: how pytest finds it, and the programs without which it cannot run."""

    name: str
    marks: str
    needs: tuple[str, ...] = ()
    first: tuple[str, ...] = ()
    """A module to run before, which builds what the suite needs."""


class Outcome(NamedTuple):
    """What became of a suite."""

    name: str
    passed: int
    failed: int
    skipped: int
    seconds: float
    note: str


SUITES: Final = (
    Suite("unit", UNIT),
    Suite("simulation", "simulation"),
    Suite("oracle", "oracle", JAVA),
    Suite("broker", "broker and not spark and not helm", JAVA),
    Suite("spark", "spark", JAVA),
    Suite("helm", "helm", ("go", *JAVA), ("tools.helm",)),
)


def main(names: Sequence[str]) -> int:
    """Run the named suites, or all of them; the exit status is 1 when anything failed."""
    outcomes = [run(suite) for suite in SUITES if not names or suite.name in names]
    print(f"\n{'kind':<12}{'passed':>8}{'failed':>8}{'skipped':>9}{'seconds':>9}")
    for outcome in outcomes:
        print(
            f"{outcome.name:<12}{outcome.passed:>8}{outcome.failed:>8}{outcome.skipped:>9}"
            f"{outcome.seconds:>9.0f}  {outcome.note}"
        )
    passed, failed = sum(each.passed for each in outcomes), sum(each.failed for each in outcomes)
    skipped = sum(each.skipped for each in outcomes)
    print(f"\n{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed or not passed else 0


def run(suite: Suite) -> Outcome:
    """One suite in a process of its own; a crash counts as a failure."""
    missing = [program for program in suite.needs if shutil.which(program) is None]
    if missing:
        return Outcome(suite.name, 0, 0, 0, 0.0, f"not run: {', '.join(missing)} not installed")
    print(f"\n── {suite.name} ──", flush=True)
    started_s = time.monotonic()
    for module in suite.first:
        if subprocess.run([sys.executable, "-m", module], check=False).returncode:
            return Outcome(suite.name, 0, 1, 0, time.monotonic() - started_s, f"{module} failed")
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [sys.executable, "-m", "pytest", "-q", "-m", suite.marks, f"--junitxml={report}"]
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
    return Outcome(name, passed, failed, count["skipped"], seconds, "")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
