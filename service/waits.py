"""Waits: for how long the next record of a partition may have waited to be read.

It came after the last one that was decided, as far as records tell their time, and after the
reader was last seen at the end of the partition: the shorter of the two is the bound.
"""

from collections.abc import Collection

from state.edit import Source


class Waits:
    """Remembers when each reader was at the end."""

    def __init__(self) -> None:
        self._level_s: dict[Source, float] = {}

    def keep(self, owned: Collection[Source]) -> None:
        """Forget all other partitions."""
        self._level_s = {source: at for source, at in self._level_s.items() if source in owned}

    def of(
        self, source: Source, lag_records: int | None, *, now_s: float, age_ms: int | None
    ) -> int | None:
        """The bound in ms; None where nothing is known. `age_ms` is of the last record decided."""
        if lag_records is None:
            return None
        if lag_records == 0:
            self._level_s[source] = now_s
            return 0
        bounds_ms = [] if age_ms is None else [max(0, age_ms)]
        if source in self._level_s:
            bounds_ms.append(round((now_s - self._level_s[source]) * 1000))
        return min(bounds_ms, default=None)
