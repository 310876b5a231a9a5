"""Finding: the result of one series as a table, and how it is displayed and stored."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from rich.table import Table

from bench.results import Spread

Cell = str | int | float | Spread | None
Row = Mapping[str, Cell]
"""Cells by column name, which ends with the unit."""


class Figure(NamedTuple):
    """One plot: columns of a finding over its rows."""

    title: str
    rows: str
    """The column that names the rows."""
    columns: Sequence[str]
    unit: str
    bars: bool = False
    """Whether to draw bars, for rows that are not steps of a scale."""


class Finding(NamedTuple):
    """The result of one series: its settings, rows, and the plots to draw."""

    title: str
    settings: Mapping[str, object]
    rows: Sequence[Row]
    figures: Sequence[Figure] = ()

    @property
    def columns(self) -> list[str]:
        """The names of all columns, in order of first occurrence."""
        return list(dict.fromkeys(name for row in self.rows for name in row))

    def to_json(self) -> dict[str, object]:
        """Return the finding as a JSON object."""
        rows = [{name: _plain(cell) for name, cell in row.items()} for row in self.rows]
        return {"title": self.title, "settings": dict(self.settings), "rows": rows}


def table(finding: Finding) -> Table:
    """Return a table of all rows, with the settings as its caption."""
    caption = ", ".join(f"{name} {value}" for name, value in finding.settings.items())
    found = Table(
        title=finding.title, caption=caption, title_justify="left", caption_justify="left"
    )
    for number, column in enumerate(finding.columns):
        found.add_column(column, justify="right" if number else "left", overflow="fold")
    for row in finding.rows:
        found.add_row(*(shown(row.get(column)) for column in finding.columns))
    return found


def shown(cell: Cell) -> str:
    """Return a cell as text: the median, and minimum and maximum if they differ."""
    match cell:
        case None:
            return ""
        case Spread(least, median, most):
            text = _figures(median)
            return text if least == most else f"{text} ({_figures(least)}–{_figures(most)})"  # noqa: RUF001 - a range
        case float():
            return _figures(cell)
        case int():
            return f"{cell:,}"
        case _:
            return cell


def middle(cell: Cell) -> float:
    """Return the number that is plotted for a cell."""
    if isinstance(cell, Spread):
        return cell.median
    assert isinstance(cell, int | float)  # the columns of a figure hold numbers
    return float(cell)


def _figures(number: float) -> str:
    """Return a number with at least three significant figures, and no more than were measured."""
    size = abs(number)
    decimals = 0 if size >= 100 else 1 if size >= 10 else 2 if size >= 0.1 or not size else 4
    return f"{number:,.{decimals}f}"


def _plain(cell: Cell) -> object:
    return cell._asdict() if isinstance(cell, Spread) else cell
