"""The closing table of the demo: what it names still answers, and the README shows it."""

from pathlib import Path

import pytest

from tests.support.pages import block
from tools.broker.embedded import EmbeddedBroker
from tools.demo.audit import Findings
from tools.demo.load import Kill, Result
from tools.demo.run import closing_rows, verdict
from tools.demo.service import Service
from tools.demo.topics import names_for

README = (Path(__file__).parents[4] / "README.md").read_text("utf-8")
FINDINGS = Findings(3, 1, 2, 1, 0, 0, 0, 0, 0, {})
RESULT = Result(FINDINGS, Kill(0.0, 0.0, 1, 2, 1), 3.0, 8.0)


def rows(folder: Path, *, exit_after: bool) -> dict[str, str]:
    broker, names = EmbeddedBroker(folder / "broker"), names_for(is_shared=False)
    service = Service(folder, broker.bootstrap_servers, names)
    return dict(
        closing_rows(
            *(RESULT, broker, names, service, folder), fast_path="python", exit_after=exit_after
        )
    )


def test_the_readme_shows_all_rows_of_the_closing_table_and_the_verdict(tmp_path: Path) -> None:
    table, _, last = block(README, "text", "kill -9").partition("\n\n")
    shown = rows(tmp_path, exit_after=False)
    width = max(map(len, shown)) + 2
    assert [line[:width].rstrip() for line in table.splitlines()] == list(shown)
    assert verdict(FINDINGS) in last


@pytest.mark.parametrize("gone", ["broker", "console"])
def test_a_demo_that_ends_by_itself_names_nothing_that_ends_with_it(
    tmp_path: Path, gone: str
) -> None:
    assert gone in rows(tmp_path, exit_after=False)
    assert gone not in rows(tmp_path, exit_after=True)
