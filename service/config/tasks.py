"""Task: what one process of an instance does: the number of its worker, and the hop it works on."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from enum import Enum
from typing import Final, NamedTuple

from service.config.load import Config


class Hop(Enum):
    """The two hops of a record whose address has many partitions; the values are what status shows.

    Each is a consumer group of its own, so that its partitions spread evenly over the workers.
    """

    INPUTS = "inputs"
    """Reads the inputs: decides those of scope `partition`, re-keys the others by address."""
    ADDRESSES = "by-address"
    """Reads what was re-keyed, and decides."""


def hops_of(scopes: Iterable[str]) -> tuple[Hop, ...]:
    """The hops that routes of these scopes need."""
    return (Hop.INPUTS, Hop.ADDRESSES) if "address" in scopes else (Hop.INPUTS,)


def consumer_group(group_id: str, hop: Hop) -> str:
    """The group that shares out what a hop reads."""
    return group_id if hop is Hop.INPUTS else f"{group_id}.{hop.value}"


class Task(NamedTuple):
    """One process."""

    worker: int = 0
    hop: Hop = Hop.INPUTS

    @property
    def label(self) -> str:
        """What no other part of the instance is called; stable over restarts."""
        return f"{self.worker}" if self.hop is Hop.INPUTS else f"{self.worker}-{self.hop.value}"

    def transactional_id(self, group_id: str, instance: str) -> str:
        """Of its producer, and of no other in the cluster.

        A `/` occurs in no group and no instance. It begins with the group, which is what rights
        on transactional ids are granted by.
        """
        return f"{group_id}/{instance}/{self.label}"

    def member_id(self, group_id: str, instance: str) -> str:
        """Of its consumer, as `group.instance.id`, and of no other in its group.

        Kafka compares it only within a group, so names of different groups may be alike. It is
        the same in every version: by it a member of a newer version takes the place of an older.
        """
        return f"{group_id}-{instance}-{self.label}"


ONLY: Final = Task()
"""Of an instance with one worker and no address that has many partitions."""


def parts_of(config: Config) -> tuple[Task, ...]:
    """All processes of an instance, as the file asks for them."""
    return parts_on(hops_of(route.scope for route in config.routes), config.service.workers)


def parts_on(hops: Sequence[Hop], workers: int) -> tuple[Task, ...]:
    """All processes of an instance with these hops."""
    return tuple(Task(worker, hop) for worker in range(workers) for hop in hops)


def share_of(config: Config) -> Config:
    """The configuration of one process: memory for ids is shared by those that decide."""
    decides = {Hop.INPUTS: "partition", Hop.ADDRESSES: "address"}
    scopes = {route.scope for route in config.routes}
    deciding = [each for each in parts_of(config) if decides[each.hop] in scopes]
    memory_mb = max(1, config.service.cache_memory_mb // max(1, len(deciding)))
    return replace(config, service=replace(config.service, cache_memory_mb=memory_mb))
