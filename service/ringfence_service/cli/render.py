"""Terminal rendering of pages with rich: one accent colour, no frames, numbers right-aligned.

No value is cut. A table that is too wide drops its spare columns, then its bars, and then shows
each row as a list of names and values.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, TextIO

from rich.cells import cell_len
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table as Grid
from rich.text import Text

from ringfence_service.cli.cells import NOTHING, Cell
from ringfence_service.cli.page import Facts, Page, Part, Table, Title

ACCENT: Final = "cyan"
BAR_COLUMNS: Final = 16
_STYLES: Final[Mapping[str, str]] = {
    "good": "green",
    "warn": "yellow",
    "bad": "red",
    "dim": "dim",
    "strong": "bold",
}
_EIGHTHS: Final = "▏▎▍▌▋▊▉"
_GAP: Final = 2
_TEXT_COLUMNS: Final = 32
"""Free text wraps at this width."""


def draw(page: Page, out: TextIO) -> None:
    """Render a page."""
    console = _console(out)
    console.print(_drawn(page, console.width))


def live(look: Callable[[], Page], every_s: float, out: TextIO) -> None:
    """Render the page of `look` in place every `every_s` seconds, until interrupted."""
    console = _console(out)
    with Live(console=console, screen=True, auto_refresh=False) as view:
        while True:
            view.update(_drawn(look(), console.width), refresh=True)
            time.sleep(every_s)


def _console(out: TextIO) -> Console:
    return Console(file=out, highlight=False, markup=False, emoji=False)


def _drawn(page: Page, width: int) -> RenderableType:
    shown = [part for part in page if not isinstance(part, Table) or part.rows]
    drawn: list[RenderableType] = []
    for number, part in enumerate(shown):
        # An empty line goes between parts, but not between a title and its part.
        if number and not isinstance(shown[number - 1], Title):
            drawn.append(Text(""))
        drawn.append(_part(part, width))
    return Group(*drawn)


def _part(part: Part, width: int) -> RenderableType:
    if isinstance(part, Title):
        return Text(part.text, style=f"bold {ACCENT}")
    if isinstance(part, Facts):
        return _facts(part.rows)
    for table, bar_columns in _narrower(part):
        if _width(table, bar_columns) <= width:
            return _table(table, bar_columns)
    named = [list(zip(part.titles, row, strict=True)) for row in part.rows]
    blocks = [
        _facts([(name, cell) for name, cell in row if not _is_nothing(cell)]) for row in named
    ]
    return Group(*(each for block in blocks for each in (block, Text(""))))


def _narrower(table: Table) -> Iterator[tuple[Table, int]]:
    """Yield narrower and narrower versions of a table; empty columns are always left out."""
    empty = [
        title
        for number, title in enumerate(table.titles)
        if all(_is_nothing(row[number]) for row in table.rows)
    ]
    shown = _without(table, empty)
    yield shown, BAR_COLUMNS
    for number in range(len(table.spare)):
        yield _without(shown, table.spare[: number + 1]), BAR_COLUMNS
    yield _without(shown, table.spare), BAR_COLUMNS // 2
    yield _without(shown, table.spare), 0


def _without(table: Table, titles: Sequence[str]) -> Table:
    kept = [number for number, title in enumerate(table.titles) if title not in titles]
    return table._replace(
        titles=[table.titles[number] for number in kept],
        rows=[[row[number] for number in kept] for row in table.rows],
    )


def _is_nothing(cell: Cell) -> bool:
    return cell.shown in {"", NOTHING}


def _width(table: Table, bar_columns: int) -> int:
    """Return how many terminal columns a table takes, with free text wrapped."""
    widths = [cell_len(title) for title in table.titles]
    for row in table.rows:
        for number, cell in enumerate(row):
            bar = 0 if cell.ratio is None or not bar_columns else bar_columns + 1
            text = cell_len(cell.shown)
            wide = bar + (min(text, _TEXT_COLUMNS) if cell.wraps else text)
            widths[number] = max(widths[number], wide)
    return sum(widths) + _GAP * (len(widths) - 1)


def _facts(rows: Sequence[tuple[str, Cell]]) -> Grid:
    grid = Grid.grid(padding=(0, _GAP, 0, 0))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, cell in rows:
        grid.add_row(name, _text(cell, BAR_COLUMNS))
    return grid


def _table(table: Table, bar_columns: int) -> Grid:
    grid = Grid(box=None, pad_edge=False, padding=(0, _GAP, 0, 0), header_style="dim")
    for number, title in enumerate(table.titles):
        column = [row[number] for row in table.rows]
        longest = max(cell_len(cell.shown) for cell in column)
        grid.add_column(
            title,
            justify="right" if any(cell.right for cell in column) else "left",
            overflow="fold",
            no_wrap=not any(cell.wraps for cell in column),
            min_width=max(cell_len(title), min(longest, _TEXT_COLUMNS)),
        )
    for row in table.rows:
        grid.add_row(*(_text(cell, bar_columns) for cell in row))
    return grid


def _text(cell: Cell, bar_columns: int) -> Text:
    text = Text(cell.shown, style=_STYLES.get(cell.tone, ""))
    if cell.ratio is None or not bar_columns:
        return text
    return Text.assemble(*_bar(cell.ratio, bar_columns), " ", text)


def _bar(ratio: float, columns: int) -> tuple[tuple[str, str], tuple[str, str]]:
    """Return a bar: full blocks, one partial block, and dots for the rest."""
    full, rest = divmod(round(ratio * columns * 8), 8)
    filled = "█" * full + (_EIGHTHS[rest - 1] if rest else "")
    return (filled, ACCENT), ("·" * (columns - len(filled)), "dim")
