"""Group entry: when an instance with standby copies joins its group.

Members that are already there decide everything, and a new one would get partitions of theirs: so
it joins once its copies are warm. It joins at once where the group does not work without it: nobody
else is a member, a partition has no member, or records arrive and none is decided. It does not wait
for copies that make no progress.
"""

import re
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from typing import Final

import structlog
from confluent_kafka import KafkaException

from ringfence_service.clock import Clock
from ringfence_service.kafka.clients import Clients
from ringfence_state.model import PartitionId

_log = structlog.stdlib.get_logger(__name__)

_EVERY_S: Final = 2.0
"""How often the group is asked; following waits for the answers.

Partitions in transit between two generations have this time to get a member.
"""

_STILL_MAX: Final = 3
"""In so many looks in a row records arrive and none is decided: a rebalance takes less."""

_PROGRESS_S: Final = 60.0
"""How long the copies may make no progress: others may write faster than this process follows."""


class GroupEntry:
    """Decides when a member joins its group for the first time."""

    def __init__(
        self,
        clients: Clients,
        committed: Callable[[Collection[PartitionId]], Mapping[PartitionId, int]],
        clock: Clock,
    ) -> None:
        """`committed` returns committed offsets of the group, or raises KafkaException."""
        self._clients = clients
        self._committed = committed
        self._clock = clock
        self._asked_s = float("-inf")
        self._unassigned: frozenset[PartitionId] = frozenset()
        """Partitions without a member when the group was last asked."""
        self._ends: Mapping[PartitionId, int] = {}
        self._decided: Mapping[PartitionId, int] = {}
        self._still = 0
        self._best: tuple[int, int] | None = None
        self._best_s: float
        """When the copies were last further than before."""

    def is_due(
        self, expected: frozenset[PartitionId], progress: tuple[int, int], *, are_warm: bool
    ) -> bool:
        """Return whether to join now.

        `expected` are all partitions that the group reads, `progress` is that of the standby
        copies, and `are_warm` whether all of them are.
        """
        now_s = self._clock.monotonic_s()
        if self._best is None or progress > self._best:
            self._best, self._best_s = progress, now_s
        if are_warm:
            return True
        if now_s - self._asked_s < _EVERY_S:
            return False
        is_due = now_s - self._best_s > _PROGRESS_S
        if is_due:
            _log.warning("joins_without_copies", cause="standby copies make no progress")
        with suppress(KafkaException):  # the next call asks again
            is_due = is_due or self._needs_member(expected) or self._stands_still(expected)
        self._asked_s = self._clock.monotonic_s()
        return is_due

    def _needs_member(self, expected: frozenset[PartitionId]) -> bool:
        """Whether nobody else is a member, or some partition had no member in two looks."""
        owners = self._clients.cluster.assigned(self._clients.group_id)
        if owners is None:
            return False
        others = {source for source, owner in owners.items() if not self._is_own(owner)}
        before, self._unassigned = self._unassigned, expected - owners.keys()
        return not others or bool(before & self._unassigned)

    def _stands_still(self, expected: frozenset[PartitionId]) -> bool:
        """Whether records have arrived since some looks ago, and none was decided."""
        ends, decided = self._clients.cluster.ends(expected), self._committed(expected)
        is_still = ends != self._ends and decided == self._decided
        self._ends, self._decided = ends, decided
        self._still = self._still + 1 if is_still else 0
        return self._still >= _STILL_MAX

    def _is_own(self, member_id: str) -> bool:
        """Whether a worker of this instance is meant: the broker adds a UUID to the name."""
        instance = self._clients.member_id.removesuffix(self._clients.part.label)
        return (
            re.fullmatch(rf"{re.escape(instance)}\d+(-by-address)?-.{{36}}", member_id) is not None
        )
