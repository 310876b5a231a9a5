"""The page: what a command shows, as values: titles, facts and tables."""

from collections.abc import Sequence
from typing import NamedTuple

from service.commands.cells import Cell


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
