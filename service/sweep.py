"""Sweep: what was decided by address is deleted from the topic that it went through.

Nothing else bounds that topic: by time it may not, since records may be years old.
"""

from collections.abc import Iterable
from typing import Final

from service.clock import Clock
from service.cluster import Cluster
from service.partition import Partition

_EVERY_S: Final = 30.0


class Sweep:
    """From time to time, between two batches."""

    def __init__(self, cluster: Cluster, clock: Clock) -> None:
        self._cluster = cluster
        self._clock = clock
        self._swept_s = clock.monotonic_s()

    def pass_over(self, partitions: Iterable[Partition]) -> None:
        """Have the broker delete what lies behind the committed offsets, if it is time."""
        if self._clock.monotonic_s() - self._swept_s < _EVERY_S:
            return
        self._swept_s = self._clock.monotonic_s()
        decided = {p.source: p.committed_offset for p in partitions if p.inlet is None}
        self._cluster.delete_before({source: at for source, at in decided.items() if at})
