"""Unread: partitions of our inputs that the group has settled without.

A static member that is back in time is given what it had, whatever it subscribes to now, so an
input that was added stays unread until the group looks again.
"""

from typing import Final

from confluent_kafka import KafkaException

from service.clock import Clock
from service.cluster import SILENT, Cluster
from state.edit import Source

_EVERY_S: Final = 5.0


class Unread:
    """Asks the group from time to time."""

    def __init__(self, cluster: Cluster, group_id: str, clock: Clock) -> None:
        self._cluster = cluster
        self._group_id = group_id
        self._clock = clock
        self._asked_s = clock.monotonic_s()
        self.partitions: frozenset[Source] = frozenset()
        """What nobody read when the group was asked last."""

    def forget(self) -> None:
        """Everything is read."""
        self.partitions, self._asked_s = frozenset(), self._clock.monotonic_s()

    def look(self, wanted: frozenset[Source]) -> bool:
        """Ask if it is time; tells whether some were unread the last time too.

        Once is no proof: between two generations partitions are on their way.
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
        unread = frozenset() if assigned is None else wanted - assigned
        lasting, self.partitions = self.partitions & unread, unread
        return bool(lasting)
