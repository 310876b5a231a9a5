"""README of the chart: the table of values between two marker comments, from values.yaml."""

from pathlib import Path
from typing import Final

from tools.chart.values import Value, values_of
from tools.errors import ToolError

CHART: Final = Path(__file__).parents[2] / "deploy" / "helm" / "ringfence"
README: Final = CHART / "README.md"
BEGIN: Final = "<!-- values: made from values.yaml by python -m tools.chart -->"
END: Final = "<!-- end of values -->"


def renewed(page: str) -> str:
    """Return the page with a table that matches values.yaml."""
    return replaced(page, BEGIN, END, _table(values_of((CHART / "values.yaml").read_text("utf-8"))))


def replaced(page: str, begin: str, end: str, table: str) -> str:
    """Return the page with a table between two lines; ToolError if it lacks one of them."""
    before, has_begin, rest = page.partition(begin)
    _, has_end, after = rest.partition(end)
    if not has_begin or not has_end:
        raise ToolError(f"the page lacks the lines {begin!r} and {end!r}: add both")
    return f"{before}{begin}\n{table}\n{end}{after}"


def _table(rows: list[Value]) -> str:
    head = ["| value | default | meaning |", "|---|---|---|"]
    return "\n".join(head + [_row(row) for row in rows])


def _row(row: Value) -> str:
    default = f" `{row.default}` " if row.default else " "
    return f"| `{row.path}` |{default}| {row.meaning} |"
