"""Progress display of the demo: a live bar on a terminal, otherwise a line every few seconds.

rich omits colours if NO_COLOR is set, and all drawing if the output is not a terminal.
"""

import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, NamedTuple, Self

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.text import Text

LINE_EVERY_S: Final = 3.0
RATE_OVER_S: Final = 3.0
BAR_COLUMNS: Final = 60


class Progress(NamedTuple):
    """A snapshot of the run."""

    flights: int
    sent: int
    accepted: int
    duplicates: int
    service: str

    @property
    def decided(self) -> int:
        """Number of messages with a verdict."""
        return self.accepted + self.duplicates


class Rate:
    """Verdicts per second over the last few seconds."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, int]] = deque()

    def update(self, now_s: float, decided: int) -> float:
        """Add a sample and return the rate."""
        self._samples.append((now_s, decided))
        while now_s - self._samples[0][0] > RATE_OVER_S:
            self._samples.popleft()
        first_s, first = self._samples[0]
        return (decided - first) / (now_s - first_s) if now_s > first_s else 0.0


class Screen:
    """Standard output of the demo."""

    def __init__(self) -> None:
        self._console = Console(highlight=False)
        # Long lines wrap between words on a terminal, and are not wrapped in a file.
        self._is_file = not self._console.is_terminal

    def say(self, text: str) -> None:
        """Print one line, with the time of day."""
        self._console.print(Text(f"{time.strftime('%H:%M:%S')}  {text}"), soft_wrap=self._is_file)

    def follow(self) -> "Follower":
        """Return the progress display, a context manager."""
        return Follower(self._console)

    def close_with(self, rows: Sequence[tuple[str, str]]) -> None:
        """Print the closing table; a file keeps long lines, so that paths stay whole in a log."""
        width = max(len(name) for name, _ in rows) + 2
        self._console.print()
        for name, value in rows:
            row = Text.assemble((name.ljust(width), "bold"), value)
            self._console.print(row, soft_wrap=self._is_file)
        self._console.print()


class Follower:
    """Displays the progress of the run."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._rate = Rate()
        self._line_due_s = 0.0
        self._live = Live(console=console, auto_refresh=False, transient=True)

    def show(self, progress: Progress) -> None:
        """Draw on a terminal; otherwise print a line when one is due."""
        now_s = time.monotonic()
        text = progress_text(progress, self._rate.update(now_s, progress.decided))
        if self._console.is_terminal:
            bar = ProgressBar(
                total=progress.flights, completed=progress.accepted, width=BAR_COLUMNS
            )
            # A bar does not end with a newline.
            self._live.update(Group(bar, Text("\n" + text)), refresh=True)
        elif now_s >= self._line_due_s:
            self._line_due_s = now_s + LINE_EVERY_S
            self._console.print(f"{time.strftime('%H:%M:%S')}  {text}", soft_wrap=True)

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _failure: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        self._live.stop()


def progress_text(progress: Progress, rate: float) -> str:
    """Return a snapshot as text that fits eighty columns."""
    return (
        f"sent {progress.sent:,}  accepted {progress.accepted:,}"
        f"  duplicates {progress.duplicates:,}  {rate:,.0f}/s  service {progress.service}"
    )


def short(path: Path) -> str:
    """Return a path relative to the working directory if it is below that."""
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)
