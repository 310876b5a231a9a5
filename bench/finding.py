"""Finding: what one series measured, as rows of cells; how it is read, shown and written."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from rich.table import Table

from bench.results import Spread

Cell = str | int | float | Spread | None
Row = Mapping[str, Cell]
"""Cells by the name of their column, unit last."""


class Figure(NamedTuple):
    """One plot: columns of a finding over its rows."""

    title: str
    rows: str
    """The column that names the rows."""
    columns: Sequence[str]
    unit: str
    bars: bool = False
    """Bars beside each other, where rows are no steps of a scale."""


class Finding(NamedTuple):
    """One series: what was compared with what, under which settings, and what came out."""

    title: str
    settings: Mapping[str, object]
    rows: Sequence[Row]
    figures: Sequence[Figure] = ()

    @property
    def columns(self) -> list[str]:
        """The names of all columns, in the order in which the rows bring them."""
        return list(dict.fromkeys(name for row in self.rows for name in row))

    def told(self) -> dict[str, object]:
        """For JSON."""
        rows = [{name: _plain(cell) for name, cell in row.items()} for row in self.rows]
        return {"title": self.title, "settings": dict(self.settings), "rows": rows}


def table(finding: Finding) -> Table:
    """All rows; below them the settings."""
    told = ", ".join(f"{name} {value}" for name, value in finding.settings.items())
    made = Table(title=finding.title, caption=told, title_justify="left", caption_justify="left")
    for number, column in enumerate(finding.columns):
        made.add_column(column, justify="right" if number else "left", overflow="fold")
    for row in finding.rows:
        made.add_row(*(shown(row.get(column)) for column in finding.columns))
    return made


def shown(cell: Cell) -> str:
    """A cell as a person reads it: median, and least and most where they differ."""
    match cell:
        case None:
            return ""
        case Spread(least, median, most):
            whole = _figures(median)
            return whole if least == most else f"{whole} ({_figures(least)}–{_figures(most)})"  # noqa: RUF001 - a range
        case float():
            return _figures(cell)
        case int():
            return f"{cell:,}"
        case _:
            return cell


def middle(cell: Cell) -> float:
    """The number that stands for a cell in a plot."""
    if isinstance(cell, Spread):
        return cell.median
    assert isinstance(cell, int | float)  # a figure names columns of numbers
    return float(cell)


def _figures(number: float) -> str:
    """Three figures at least, and nothing that was not measured."""
    size = abs(number)
    places = 0 if size >= 100 else 1 if size >= 10 else 2 if size >= 0.1 or not size else 4
    return f"{number:,.{places}f}"


def _plain(cell: Cell) -> object:
    return cell._asdict() if isinstance(cell, Spread) else cell
