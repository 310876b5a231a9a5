"""What takes long to build is begun with the first suite, and only where it can be used."""

import time
from pathlib import Path

import pytest

from tests.waiting import eventually
from tools.suites import Suite, built_ahead, counted

MODULE = (
    "import os, pathlib\npathlib.Path(__file__).with_suffix('.nice').write_text(str(os.nice(0)))\n"
)


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "lengthy.py").write_text(MODULE)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return tmp_path / "lengthy.nice"


def test_it_runs_beside_the_tests_at_the_lowest_priority(module: Path) -> None:
    with built_ahead([Suite("a", "a", first=("lengthy",), is_built_ahead=True)]):
        eventually(lambda: module.exists() and module.read_text())
    assert module.read_text() == "19"


@pytest.mark.parametrize(
    "suite",
    [
        Suite("is not wanted ahead", "a", first=("lengthy",)),
        Suite("cannot run here", "a", ("no-such-program",), ("lengthy",), is_built_ahead=True),
    ],
    ids=lambda suite: suite.name,
)
def test_nothing_is_built_that_nobody_waits_for(module: Path, suite: Suite) -> None:
    with built_ahead([suite]):
        time.sleep(0.3)  # noqa: TID251 - what is begun has written within this
    assert not module.exists()


REPORT = """<testsuites><testsuite tests="3" failures="1" errors="1" skipped="0">
<testcase classname="tests.a" name="one"/>
<testcase classname="tests.a" name="two"><failure message="1 is&#10;not 2"/></testcase>
<testcase classname="tests.b" name="three"><error message="no room"/></testcase>
</testsuite></testsuites>"""


def test_what_failed_is_told_with_its_reason(tmp_path: Path) -> None:
    report = tmp_path / "report.xml"
    report.write_text(REPORT)
    outcome = counted("unit", report, 1, 0.5)
    assert (outcome.passed, outcome.failed) == (1, 2)
    assert outcome.failures == ("tests.a::two: 1 is not 2", "tests.b::three: no room")
