"""Repartition purger: deletes records of the repartition topic that are decided and committed."""

from collections.abc import Iterable
from typing import Final

from ringfence_service.clock import Clock
from ringfence_service.dedup.partition import OwnedPartition
from ringfence_service.kafka.model import ClusterAdmin

_EVERY_S: Final = 30.0
"""How often decided records are deleted: until then they take disk space on the brokers.

Each deletion is a request to the broker for all partitions.
"""


class RepartitionPurger:
    """Deletes decided records of by-address from time to time, between two batches."""

    def __init__(self, cluster: ClusterAdmin, clock: Clock) -> None:
        self._cluster = cluster
        self._clock = clock
        self._purged_s = clock.monotonic_s()

    def purge(self, partitions: Iterable[OwnedPartition]) -> None:
        """Delete the records before the committed offsets, if it is time."""
        if self._clock.monotonic_s() - self._purged_s < _EVERY_S:
            return
        self._purged_s = self._clock.monotonic_s()
        decided = {p.source: p.committed_offset for p in partitions if p.input_partition is None}
        self._cluster.delete_before({source: at for source, at in decided.items() if at})
