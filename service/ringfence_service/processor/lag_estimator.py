"""Lag estimator: how many milliseconds a partition is behind its input, as an upper bound."""

from collections.abc import Collection

from ringfence_state.model import PartitionId


class LagEstimator:
    """Estimates the lag in time; remembers when each partition was last read to its end."""

    def __init__(self) -> None:
        self._level_s: dict[PartitionId, float] = {}

    def keep(self, owned: Collection[PartitionId]) -> None:
        """Forget all partitions except these."""
        self._level_s = {source: at for source, at in self._level_s.items() if source in owned}

    def of(
        self, source: PartitionId, lag_records: int | None, *, now_s: float, age_ms: int | None
    ) -> int | None:
        """Return an upper bound in ms, or None; `age_ms` is the age of the last decided record."""
        if lag_records is None:
            return None
        if lag_records == 0:
            self._level_s[source] = now_s
            return 0
        bounds_ms = [] if age_ms is None else [max(0, age_ms)]
        if source in self._level_s:
            bounds_ms.append(round((now_s - self._level_s[source]) * 1000))
        return min(bounds_ms, default=None)
