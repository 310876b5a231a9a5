"""Tailing: which dead letters are new to one who asks again and again. Pure.

A letter is seen when its transaction commits, so one that was decided earlier may come after
another: what is younger than `LATE` is asked for once more each time. What was told already is
known by its place: a partition is read in the order of its offsets, so the last one of each is all
that is kept, however long this runs.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Final

LATE: Final = timedelta(seconds=10)
"""How much later than a younger one a letter may come: a transaction's time, clocks that differ."""


class Tail:
    """What was told; see the module."""

    def __init__(self, start: datetime) -> None:
        self._start = self._newest = start
        self._last: dict[tuple[str, int], int] = {}

    @property
    def since(self) -> datetime:
        """From which time on to ask."""
        return max(self._start, self._newest - LATE)

    def new(self, letters: Sequence[dict[str, Any]], now: datetime) -> list[dict[str, Any]]:
        """Those of a page that were not told; on one page a partition may be out of order."""
        found = [each for each in letters if each["offset"] > self._last.get(_partition(each), -1)]
        for each in found:
            at = _partition(each)
            self._last[at] = max(each["offset"], self._last.get(at, -1))
            # A letter of the future, by another's clock, must not hide those of now.
            time = min(datetime.fromisoformat(each["time"]), now)
            self._newest = max(self._newest, time)
        return found


def _partition(letter: dict[str, Any]) -> tuple[str, int]:
    return letter["topic"], letter["partition"]
