"""Progress of the table jobs, from Spark's batch reports, shown on the terminal.

Spark reports a batch when it is done. It may report a batch several times; the batch counts once.
"""

import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol

from rich.console import Console
from rich.live import Live
from rich.table import Table


class TableProgress(NamedTuple):
    """The progress of a table."""

    rows: int = 0
    """Rows in the batches of this run."""
    rows_per_second: float = 0.0
    """Rate of the last batch."""
    behind: int = 0
    """Offsets between the last batch and the topic ends; transaction markers count too."""


class ProgressDisplay(Protocol):
    """Receives the progress of a run."""

    def __call__(self, table: str, reports: Iterable[Mapping[str, Any]]) -> None:
        """Receive Spark's batch reports of a table, the newest last."""


class BatchTally:
    """Counts the batches of one table, each once."""

    def __init__(self) -> None:
        self._last_batch = -1
        self.progress = TableProgress()

    def take(self, reports: Iterable[Mapping[str, Any]]) -> None:
        """Add batch reports, the newest last."""
        for report in reports:
            batch, rows = int(report["batchId"]), int(report["numInputRows"])
            if batch <= self._last_batch:
                continue
            if rows:
                self._last_batch = batch
            self.progress = TableProgress(
                self.progress.rows + rows,
                float(report.get("processedRowsPerSecond") or 0.0),
                sum(_behind(source) for source in report["sources"]),
            )


def _behind(source: Mapping[str, Any]) -> int:
    """Return how many offsets a source is behind.

    The connector reports only an average over partitions, as text; the offsets are exact.
    """
    end, latest = source.get("endOffset"), source.get("latestOffset")
    if not isinstance(end, Mapping) or not isinstance(latest, Mapping):
        return 0
    return sum(
        int(offset) - int(end.get(topic, {}).get(partition, 0))
        for topic, partitions in latest.items()
        for partition, offset in partitions.items()
    )


@contextmanager
def on_terminal(console: Console) -> Iterator[ProgressDisplay]:
    """Show a line for each table during a run, if the console is a terminal."""
    tallies: dict[str, BatchTally] = {}
    began_s = time.monotonic()
    with Live(console=console, transient=True, auto_refresh=False) as live:

        def show(table: str, reports: Iterable[Mapping[str, Any]]) -> None:
            tallies.setdefault(table, BatchTally()).take(reports)
            if console.is_terminal:
                live.update(_drawn(tallies, time.monotonic() - began_s), refresh=True)

        yield show


def _drawn(tallies: Mapping[str, BatchTally], seconds: float) -> Table:
    drawn = Table("table", "rows", "rows/s", "behind", title=f"{seconds:.0f} s")
    for name, tally in tallies.items():
        progress = tally.progress
        drawn.add_row(
            name, f"{progress.rows:,}", f"{progress.rows_per_second:,.0f}", f"{progress.behind:,}"
        )
    return drawn
