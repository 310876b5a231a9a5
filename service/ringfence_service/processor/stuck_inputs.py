"""Stuck inputs: partitions that no member is assigned, or that an open transaction holds back."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final

from confluent_kafka import KafkaException

from ringfence_service.clock import Clock
from ringfence_service.kafka.admin import SILENT
from ringfence_service.kafka.model import ClusterAdmin
from ringfence_state.model import PartitionId

_EVERY_S: Final = 5.0
"""How often stuck logs, and partitions without a member, are looked for; the loop waits for both.

Less than `HELD_S`, so a stuck log is found soon after that. Partitions in transit between two
generations have this time to get a member, since they count when they are found twice.
"""

HELD_S: Final = 20.0
"""A log without progress for this long is reported: most transactions are shorter."""


class HangingTransactions:
    """Detects logs whose last stable offset is stuck behind an open transaction (KIP-664)."""

    def __init__(
        self, cluster: ClusterAdmin, clock: Clock, last_stable_offset: Callable[[PartitionId], int]
    ) -> None:
        """`last_stable_offset` asks the broker up to which offset a log can be read."""
        self._cluster = cluster
        self._clock = clock
        self._last_stable_offset = last_stable_offset
        self._checked_s = clock.monotonic_s()
        self._since: dict[PartitionId, tuple[int, float]] = {}
        self.offsets: Mapping[PartitionId, int] = {}
        """The offset from which on each such log is held back."""

    def poll(self, positions: Callable[[], Mapping[PartitionId, int]]) -> None:
        """Check the logs without progress, if it is time; `positions` returns all read positions.

        If the broker does not answer, it is asked again later.
        """
        now_s = self._clock.monotonic_s()
        if now_s - self._checked_s < _EVERY_S:
            return
        self._checked_s = now_s
        positions_since = {}
        for log, position in positions().items():
            before, since_s = self._since.get(log, (position, now_s))
            positions_since[log] = (position, since_s if before == position else now_s)
        self._since = positions_since
        still = {
            log: at for log, (at, since_s) in positions_since.items() if now_s - since_s >= HELD_S
        }
        with suppress(KafkaException):
            self.offsets = self._held_back(still)

    def _held_back(self, still: Mapping[PartitionId, int]) -> dict[PartitionId, int]:
        ends = self._cluster.ends(still) if still else {}
        behind = {log: at for log, at in still.items() if at < ends[log]}
        # There are other reasons for no progress, and markers alone hold no reader back.
        return {log: at for log, at in behind.items() if self._last_stable_offset(log) <= at}


def describe_held(held: Mapping[PartitionId, int]) -> str | None:
    """Return the sentence about logs that a transaction holds back; None for no logs."""
    if not held:
        return None
    log, offset = min(held.items())
    more = f" and {len(held) - 1} more" if len(held) > 1 else ""
    return (
        f"{log.topic}-{log.partition}{more} to be readable from offset {offset} on: a transaction "
        f"is open there; kafka-transactions.sh describe-producers --topic {log.topic} "
        f"--partition {log.partition} names its producer id, and abort ends it"
    )


class UnassignedPartitions:
    """Detects input partitions that no group member is assigned."""

    def __init__(self, cluster: ClusterAdmin, group_id: str, clock: Clock) -> None:
        self._cluster = cluster
        self._group_id = group_id
        self._clock = clock
        self._asked_s = clock.monotonic_s()
        self.partitions: frozenset[PartitionId] = frozenset()
        """Unassigned partitions when the group was last asked."""

    def forget(self) -> None:
        """Forget earlier results: every partition is assigned."""
        self.partitions, self._asked_s = frozenset(), self._clock.monotonic_s()

    def poll(self, expected: frozenset[PartitionId]) -> bool:
        """Ask the group if it is time; return whether some were unassigned the last time too.

        Once is no proof: between two generations partitions are in transit.
        """
        if self._clock.monotonic_s() - self._asked_s < _EVERY_S:
            return False
        self._asked_s = self._clock.monotonic_s()
        try:
            assigned = self._cluster.assigned(self._group_id)
        except KafkaException as error:
            if error.args[0].code() not in SILENT:
                raise
            return False  # the client asks every broker: with one away there is no answer
        unread = frozenset() if assigned is None else expected - assigned.keys()
        lasting, self.partitions = self.partitions & unread, unread
        return bool(lasting)
