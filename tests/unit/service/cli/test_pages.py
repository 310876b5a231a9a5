"""What pages say that a plan prints is what it prints, and their tables are what it computes."""

import re
from pathlib import Path
from typing import Final

import pytest

from ringfence_main.plan import PlanRequest, planned
from ringfence_service.cli import cells
from ringfence_service.cli.cells import Cell
from tests.unit.service.cli.conftest import Shell

DOCS: Final = Path(__file__).parents[4] / "docs"
SIZING: Final = (DOCS / "sizing.md").read_text("utf-8")
SHOWN: Final = dict(
    re.findall(
        r"^```sh\n(ringfence plan [^\n]*)\n```\n\n```text\n(.*?)^```",
        "".join(page.read_text("utf-8") for page in sorted(DOCS.glob("*.md"))),
        re.MULTILINE | re.DOTALL,
    )
)
STYLE: Final = re.compile(r"\x1b\[[012]m")
ROWS: Final = re.findall(r"^\| ([\d,]+) \| (\d+) (min|h|d) \| (.*) \|$", SIZING, re.MULTILINE)
UNITS: Final = {"min": "m"}


@pytest.mark.parametrize("command", SHOWN)
def test_a_plan_of_a_page_prints_what_stands_below_it(command: str, shell: Shell) -> None:
    ran = shell(*command.split()[1:], typed="")
    lines = [line.rstrip() for line in STYLE.sub("", ran.out).splitlines()]
    assert (lines, ran.err, ran.code) == (SHOWN[command].splitlines(), "", 0)


@pytest.mark.parametrize(("rate", "time", "unit", "rest"), ROWS)
def test_a_row_of_sizes_is_what_a_plan_computes(rate: str, time: str, unit: str, rest: str) -> None:
    found = planned(PlanRequest(float(rate.replace(",", "")), f"{time}{UNITS.get(unit, unit)}"))
    expected: list[Cell] = [
        cells.count(found["recommended"]),
        cells.size(found["memory_bytes"]),
        cells.size(found["disk_bytes"]),
        cells.span(found["restore_ms"]),
        cells.span(found["load_ms"]),
    ]
    assert rest.split(" | ") == [cell.shown for cell in expected]


def test_pages_show_plans() -> None:
    assert (len(SHOWN), len(ROWS)) >= (2, 8)
