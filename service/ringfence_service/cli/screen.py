"""Command output: tables on a terminal, tab-separated text in a pipe, JSON on request.

The result goes to standard output, everything else to standard error. rich is imported only for a
terminal; it uses no colour when NO_COLOR is set. All text is made printable here, on both streams
and in JSON, since names and ids may come from any publisher.
"""

import json
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final, TextIO

from ringfence_service.cli import cells
from ringfence_service.cli.cells import Cell
from ringfence_service.cli.page import Facts, Page, Table, Title, legible
from ringfence_service.printable import visible, visible_json

TAB: Final = "\t"


class CommandOutput:
    """Writes the result of a command, and its notes and progress."""

    def __init__(
        self,
        *,
        as_json: bool = False,
        utc: bool = False,
        terminal: bool | None = None,
        out: TextIO | None = None,
        err: TextIO | None = None,
    ) -> None:
        self._out = out or sys.stdout
        self._err = err or sys.stderr
        self.as_json = as_json
        self.utc = utc
        self.terminal = self._out.isatty() if terminal is None else terminal

    def show(self, document: object, page: Callable[[], Page]) -> None:
        """Show a document of the API: unchanged with --json, else as the page from `page`."""
        if self.as_json:
            self.json(document)
        else:
            self.page(page())

    def json(self, document: object) -> None:
        """Print a document as indented JSON."""
        self._line(visible_json(json.dumps(document, indent=2, ensure_ascii=False)))

    def json_line(self, text: str) -> None:
        """Print one line of JSON, for readers of NDJSON."""
        self._line(visible_json(text))

    def line(self, text: str) -> None:
        """Print a line; tabs between values are kept."""
        self._line(visible(text, TAB))

    def _line(self, text: str) -> None:
        self._out.write(text + "\n")
        self._out.flush()

    def page(self, page: Page) -> None:
        """Render a page on a terminal, write plain lines elsewhere."""
        if self.terminal:
            from ringfence_service.cli import render  # noqa: PLC0415 - imports rich, which is slow

            render.draw(legible(page), self._out)
        else:
            self._write(legible(page))
        for part in page:
            if isinstance(part, Table) and not part.rows:
                self.note(part.empty)

    def preview(self, page: Page) -> None:
        """Show a page on standard error, before a question about it."""
        CommandOutput(utc=self.utc, out=self._err, err=self._err).page(page)

    def note(self, text: str) -> None:
        """Print a message on standard error."""
        self._err.write(visible(text) + "\n")
        self._err.flush()

    def note_title(self, title: str) -> None:
        """Print the title of a page as a message where the page itself is written without it."""
        if not self.terminal and not self.as_json:
            self.note(title)

    def progress(self, text: str, *, last: bool = False) -> None:
        """Show progress on standard error: one line that is overwritten, on a terminal only."""
        if self._err.isatty():
            self._err.write(f"\r\x1b[K{visible(text)}" + ("\n" if last else ""))
            self._err.flush()
        elif last:
            self.note(text)

    def follow(self, look: Callable[[], tuple[object, Page]], every_s: float) -> None:
        """Show the result of `look` every `every_s` seconds until interrupted.

        On a terminal the page is redrawn in place.
        """
        if self.as_json or not self.terminal:
            while True:
                document, page = look()
                if self.as_json:
                    self.json_line(json.dumps(document, ensure_ascii=False))
                else:
                    self.page(page)
                time.sleep(every_s)
        from ringfence_service.cli import render  # noqa: PLC0415 - imports rich, which is slow

        render.live(lambda: legible(look()[1]), every_s, self._out)

    def when(self, time_text: str | None) -> Cell:
        """Return a time as a cell, in the user's zone or UTC."""
        return cells.when(time_text, utc=self.utc)

    def since(self, time_text: str | None) -> Cell:
        """Return a time as a cell, with how long ago it was."""
        return cells.when(time_text, utc=self.utc, now=datetime.now(UTC))

    def _write(self, page: Page) -> None:
        """Write the parts as plain lines, with an empty line between them."""
        parts = [part for part in page if not isinstance(part, Title)]
        for number, part in enumerate(parts):
            if number:
                self.line("")
            if isinstance(part, Facts):
                for name, cell in part.rows:
                    self.line(f"{name}{TAB}{cell.plain}")
            else:
                self.line(TAB.join(part.titles))
                for row in part.rows:
                    self.line(TAB.join(cell.plain for cell in row))
