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
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ToolError(f"{README} lacks the lines {BEGIN!r} and {END!r}: add both")
    rows = values_of((CHART / "values.yaml").read_text("utf-8"))
    return f"{before}{BEGIN}\n{_table(rows)}\n{END}{after}"


def _table(rows: list[Value]) -> str:
    head = ["| value | default | meaning |", "|---|---|---|"]
    return "\n".join(head + [_row(row) for row in rows])


def _row(row: Value) -> str:
    default = f" `{row.default}` " if row.default else " "
    return f"| `{row.path}` |{default}| {row.meaning} |"
