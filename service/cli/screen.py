"""Screen: tables on a terminal, tab-separated text in a pipe, JSON on request.

The answer goes to standard output, everything else to standard error. rich is imported for a
terminal alone; it uses no colour where NO_COLOR is set. All text is made printable here, on both
streams and in JSON: names and ids may come from any publisher.
"""

import json
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final, TextIO

from service.cli import cells
from service.cli.cells import Cell
from service.cli.page import Facts, Page, Table, Title, legible
from service.printable import visible, visible_json

TAB: Final = "\t"


class CommandOutput:
    """Where a command shows what it found."""

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
        """Show a document of the API: as it is, or as the page that is made of it."""
        if self.as_json:
            self.json(document)
        else:
            self.page(page())

    def json(self, document: object) -> None:
        """Print it indented; one that others read line by line goes to `json_line`."""
        self._line(visible_json(json.dumps(document, indent=2, ensure_ascii=False)))

    def json_line(self, text: str) -> None:
        """Print a document that is one line of JSON."""
        self._line(visible_json(text))

    def line(self, text: str) -> None:
        """Print a line; tabs stay what they are between values."""
        self._line(visible(text, TAB))

    def _line(self, text: str) -> None:
        self._out.write(text + "\n")
        self._out.flush()

    def page(self, page: Page) -> None:
        """Draw on a terminal, write plain lines elsewhere."""
        if self.terminal:
            from service.cli import render as drawing  # noqa: PLC0415 - and so rich

            drawing.draw(legible(page), self._out)
        else:
            self._write(legible(page))
        for part in page:
            if isinstance(part, Table) and not part.rows:
                self.note(part.empty)

    def beside(self, page: Page) -> None:
        """Show a page to whoever is asked next: on standard error."""
        CommandOutput(utc=self.utc, out=self._err, err=self._err).page(page)

    def note(self, text: str) -> None:
        """Say something beside the result."""
        self._err.write(visible(text) + "\n")
        self._err.flush()

    def progress(self, text: str, *, last: bool = False) -> None:
        """Say how far it is: one line that is written over, on a terminal alone."""
        if self._err.isatty():
            self._err.write(f"\r\x1b[K{visible(text)}" + ("\n" if last else ""))
            self._err.flush()
        elif last:
            self.note(text)

    def follow(self, look: Callable[[], tuple[object, Page]], every_s: float) -> None:
        """Show again and again, until interrupted; on a terminal in its place."""
        if self.as_json or not self.terminal:
            while True:
                document, page = look()
                if self.as_json:
                    self.json_line(json.dumps(document, ensure_ascii=False))
                else:
                    self.page(page)
                time.sleep(every_s)
        from service.cli import render as drawing  # noqa: PLC0415 - and so rich

        drawing.live(lambda: legible(look()[1]), every_s, self._out)

    def when(self, time_text: str | None) -> Cell:
        """A time in the user's zone."""
        return cells.when(time_text, utc=self.utc)

    def since(self, time_text: str | None) -> Cell:
        """A time in the user's zone, and how long ago that is."""
        return cells.when(time_text, utc=self.utc, now=datetime.now(UTC))

    def _write(self, page: Page) -> None:
        """Parts are set apart by an empty line, as paragraphs are."""
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
