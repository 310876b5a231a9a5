"""Suites run three at a time; a failure is reported with its output."""

from pathlib import Path

import pytest

from tools import suites
from tools.suites import SUITES, QuickPart, Suite, arguments_of, counted, main

TESTS = Path(__file__).parents[2]

REPORT = """<testsuites><testsuite tests="3" failures="1" errors="1" skipped="0">
<testcase classname="tests.a" name="one"/>
<testcase classname="tests.a" name="two"><failure message="1 is&#10;not 2"/></testcase>
<testcase classname="tests.b" name="three"><error message="no room"/></testcase>
</testsuite></testsuites>"""


def test_failures_are_reported_with_their_reasons(tmp_path: Path) -> None:
    report = tmp_path / "report.xml"
    report.write_text(REPORT)
    outcome = counted("unit", report, 1, 0.5)
    assert (outcome.passed, outcome.failed) == (1, 2)
    assert outcome.failures == ("tests.a::two: 1 is not 2", "tests.b::three: no room")


@pytest.fixture
def chosen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two suites, whose first modules print; `breaks` ends in status 3."""
    (tmp_path / "speaks.py").write_text("print('here I am')")
    (tmp_path / "breaks.py").write_text("print('no room'); raise SystemExit(3)")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(suites, "REPORTS", tmp_path)
    monkeypatch.setattr(
        suites,
        "SUITES",
        (Suite("one", "no_such_mark", first=("speaks", "breaks")), Suite("two", "a", ("no-such",))),
    )


@pytest.mark.usefixtures("chosen")
def test_a_suite_whose_module_fails_has_failed_and_shows_what_it_printed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["thorough"]) == 1
    told = capsys.readouterr().out
    assert "here I am\nno room\none: 0 passed, 1 failed" in told
    assert "breaks failed" in told
    assert "not run: no-such not installed" in told
    assert "0 passed, 1 failed, 0 skipped in" in told


def test_each_test_is_in_one_ring() -> None:
    some = Suite("a", "a", folder="a", quick=QuickPart(("a/one.py",)))
    assert arguments_of(some, "quick") == ["tests/a/one.py"]
    assert arguments_of(some, "thorough") == ["tests/a", "--deselect=tests/a/one.py"]
    most = Suite("a", "a", folder="a", quick=QuickPart(without=("a/slow.py",)))
    assert arguments_of(most, "quick") == ["tests/a", "--deselect=tests/a/slow.py"]
    assert arguments_of(most, "thorough") == ["tests/a/slow.py"]
    every = Suite("a", "a", folder="a", quick=QuickPart())
    assert (arguments_of(every, "quick"), arguments_of(every, "thorough")) == (["tests/a"], None)
    none = Suite("a", "a", folder="a")
    assert (arguments_of(none, "quick"), arguments_of(none, "thorough")) == (None, ["tests/a"])


def test_a_sample_is_run_as_a_whole_in_the_other_ring() -> None:
    some = Suite("a", "a", folder="a", quick=QuickPart(("a/one.py",), sample={"RUNS": "9"}))
    assert arguments_of(some, "quick") == ["tests/a/one.py"]
    assert arguments_of(some, "thorough") == ["tests/a"]


def test_the_tests_that_a_ring_names_are_there() -> None:
    for quick in (suite.quick for suite in SUITES if suite.quick is not None):
        for named in (*quick.tests, *quick.without):
            file, _, test = named.partition("::")
            path = TESTS / file
            assert path.exists(), named
            assert not test or f"def {test.partition('[')[0]}(" in path.read_text("utf-8"), named


@pytest.mark.parametrize("name", [suite.name for suite in SUITES if suite.name != "unit"])
def test_a_folder_that_other_suites_skip_has_only_tests_of_its_own(name: str) -> None:
    marked = (f"pytest.mark.{name}", f"pytestmark = {name.upper()}")
    for path in (TESTS / name).rglob("test_*.py"):
        assert any(mark in path.read_text("utf-8") for mark in marked), path


def test_the_unit_tests_are_of_no_other_suite() -> None:
    for path in (TESTS / "unit").rglob("test_*.py"):
        for suite in SUITES:
            assert f"pytest.mark.{suite.name}\n" not in path.read_text("utf-8"), path
