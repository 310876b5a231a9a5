"""Session: the parameters of a series: venue, rounds, scale, and the output of progress lines."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from bench.filled import Groups
from bench.venue import Venue
from bench.workload import Workload

_RECORDS_MIN: Final = 100_000


@dataclass(frozen=True, slots=True)
class Session:
    """One run of any number of series."""

    venue: Venue
    groups: Groups
    rounds: int
    scale: float
    """Factor for the numbers of records and ids; below 1 for a quick check."""
    write_line: Callable[[str], None]
    started_s: float = field(default_factory=time.monotonic)

    def say(self, sentence: str) -> None:
        """Print a progress line, with the time since the start."""
        minutes, seconds = divmod(round(time.monotonic() - self.started_s), 60)
        self.write_line(f"{minutes:3}:{seconds:02}  {sentence}")

    def scaled(self, count: int) -> int:
        """Return a count at the scale of this run."""
        return max(1, round(count * self.scale))

    def sized(self, workload: Workload) -> Workload:
        """Return the workload at the scale of this run, with enough records to outlast a start."""
        least = min(workload.records, _RECORDS_MIN)
        return workload._replace(records=max(least, self.scaled(workload.records)))
