"""Pages: the output of a command as values: titles, facts and tables.

A page contains the API's text unchanged; `legible` makes it printable before it is shown.
"""

from collections.abc import Sequence
from typing import NamedTuple

from ringfence_service.cli.cells import Cell
from ringfence_service.printable import visible


class Title(NamedTuple):
    """A heading of the next part, shown on a terminal only."""

    text: str


class Facts(NamedTuple):
    """The attributes of one thing, as names and values."""

    rows: Sequence[tuple[str, Cell]]


class Table(NamedTuple):
    """A list of things, one row each."""

    titles: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    empty: str
    """The message when there are no rows."""
    spare: Sequence[str] = ()
    """Titles of the columns to leave out on a narrow terminal, in this order."""


Part = Title | Facts | Table
Page = Sequence[Part]


def legible(page: Page) -> Page:
    """Return the page with all control characters escaped."""
    return [_legible(part) for part in page]


def _legible(part: Part) -> Part:
    if isinstance(part, Title):
        return Title(visible(part.text))
    if isinstance(part, Facts):
        return Facts([(visible(name), legible_cell(cell)) for name, cell in part.rows])
    return part._replace(
        titles=list(map(visible, part.titles)),
        rows=[list(map(legible_cell, row)) for row in part.rows],
    )


def legible_cell(cell: Cell) -> Cell:
    """Return the cell with all control characters escaped."""
    text = None if cell.text is None else visible(cell.text)
    return cell._replace(plain=visible(cell.plain), text=text)
