"""Session: what every series is handed: where, how often, how large, and whom to tell."""

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

    place: Venue
    groups: Groups
    rounds: int
    scale: float
    """What counts of records and ids are multiplied by; below 1 for a quick look."""
    tell: Callable[[str], None]
    started_s: float = field(default_factory=time.monotonic)

    def say(self, sentence: str) -> None:
        """Progress, with the time since the beginning."""
        minutes, seconds = divmod(round(time.monotonic() - self.started_s), 60)
        self.tell(f"{minutes:3}:{seconds:02}  {sentence}")

    def scaled(self, count: int) -> int:
        """So many, at this run's scale."""
        return max(1, round(count * self.scale))

    def sized(self, workload: Workload) -> Workload:
        """The workload at this run's scale; with too few records a start is all that it has."""
        least = min(workload.records, _RECORDS_MIN)
        return workload._replace(records=max(least, self.scaled(workload.records)))
