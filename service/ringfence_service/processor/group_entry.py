"""Group entry: when an instance with standby copies joins its group.

Members that are already there decide everything, and a new one would get partitions of theirs: so
it joins once its copies are warm. It joins at once where nobody else decides, or where partitions
have no member.
"""

from collections.abc import Mapping
from contextlib import suppress
from typing import Final

from confluent_kafka import KafkaException

from ringfence_service.clock import Clock
from ringfence_service.kafka.clients import Clients
from ringfence_state.model import PartitionId

_EVERY_S: Final = 2.0
"""How often the group is asked; the loop waits for the answer, and has nothing else to do.

Partitions in transit between two generations have this time to get a member.
"""


class GroupEntry:
    """Decides when a member joins its group for the first time."""

    def __init__(self, clients: Clients, clock: Clock) -> None:
        self._clients = clients
        self._clock = clock
        self._asked_s = float("-inf")
        self._unassigned: frozenset[PartitionId] = frozenset()
        """Partitions without a member when the group was last asked."""

    def is_due(self, expected: frozenset[PartitionId], *, copies_are_warm: bool) -> bool:
        """Return whether to join now; `expected` are all partitions that the group reads."""
        if copies_are_warm:
            return True
        now_s = self._clock.monotonic_s()
        if now_s - self._asked_s < _EVERY_S:
            return False
        self._asked_s = now_s
        owners: Mapping[PartitionId, str] | None = None
        with suppress(KafkaException):  # the next call asks again
            owners = self._clients.cluster.assigned(self._clients.group_id)
        if owners is None:
            return False
        others = {source for source, owner in owners.items() if not self._is_own(owner)}
        before, self._unassigned = self._unassigned, expected - owners.keys()
        return not others or bool(before & self._unassigned)

    def _is_own(self, member_id: str) -> bool:
        """Whether an earlier process of this name is meant: the broker adds a UUID to the name."""
        return member_id.startswith(f"{self._clients.member_id}-")
