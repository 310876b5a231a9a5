"""Page: the output of a command as values: titles, facts and tables.

A page contains text as it arrived; every page is made printable before it is shown.
"""

from collections.abc import Sequence
from typing import NamedTuple

from service.cli.cells import Cell
from service.printable import visible


class Title(NamedTuple):
    """A line that stands above what follows, on a terminal."""

    text: str


class Facts(NamedTuple):
    """One thing, as names and values."""

    rows: Sequence[tuple[str, Cell]]


class Table(NamedTuple):
    """Many of a kind, a line each."""

    titles: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    empty: str
    """What to say where there are none."""
    spare: Sequence[str] = ()
    """Titles of columns that a narrow terminal leaves out, the first ones first."""


Part = Title | Facts | Table
Page = Sequence[Part]


def legible(page: Page) -> Page:
    """The same page, with no character that does more than be seen."""
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
    """The same of one value."""
    text = None if cell.text is None else visible(cell.text)
    return cell._replace(plain=visible(cell.plain), text=text)
