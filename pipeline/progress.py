"""Progress: how far the tables are, taken from what Spark tells of its batches, and shown.

Spark tells of a batch once it is done; one batch may be told of many times, and counts once.
"""

import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol

from rich.console import Console
from rich.live import Live
from rich.table import Table


class TableProgress(NamedTuple):
    """How far a table is."""

    rows: int = 0
    """In batches of this run."""
    rows_per_second: float = 0.0
    """Of the last batch."""
    behind: int = 0
    """Offsets between the last batch and the ends of the topics; markers count as well."""


class ProgressDisplay(Protocol):
    """Whoever looks on."""

    def __call__(self, table: str, reports: Iterable[Mapping[str, Any]]) -> None:
        """What Spark tells of a table's batches, the newest last."""


class BatchTally:
    """Counts the batches of one table, each once."""

    def __init__(self) -> None:
        self._last_batch = -1
        self.standing = TableProgress()

    def take(self, reports: Iterable[Mapping[str, Any]]) -> None:
        """Reports of batches, the newest last."""
        for report in reports:
            batch, rows = int(report["batchId"]), int(report["numInputRows"])
            if batch <= self._last_batch:
                continue
            if rows:
                self._last_batch = batch
            self.standing = TableProgress(
                self.standing.rows + rows,
                float(report.get("processedRowsPerSecond") or 0.0),
                sum(_behind(source) for source in report["sources"]),
            )


def _behind(source: Mapping[str, Any]) -> int:
    """The connector tells an average over partitions, as text; the offsets themselves are exact."""
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
    """Show a line for each table while a run goes on; nothing where nobody would see it."""
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
        standing = tally.standing
        drawn.add_row(
            name, f"{standing.rows:,}", f"{standing.rows_per_second:,.0f}", f"{standing.behind:,}"
        )
    return drawn
