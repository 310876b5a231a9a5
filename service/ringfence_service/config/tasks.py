"""Task: the work of one process of an instance, as a worker number and a hop."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from ringfence_service.config.model import Config


class Hop(Enum):
    """The two hops of a record with scope `address`; status shows the values.

    Each hop has its own consumer group, so that its partitions spread evenly over the workers.
    """

    INPUTS = "inputs"
    """Reads the inputs: decides records of scope `partition`, repartitions others by address."""
    ADDRESSES = "by-address"
    """Reads the repartitioned records, and decides them."""


def hops_of(scopes: Iterable[str]) -> tuple[Hop, ...]:
    """Return the hops that routes of these scopes need."""
    is_repartitioned = any(scope != "partition" for scope in scopes)
    return (Hop.INPUTS, Hop.ADDRESSES) if is_repartitioned else (Hop.INPUTS,)


def consumer_group(group_id: str, hop: Hop) -> str:
    """Return the consumer group of a hop."""
    return group_id if hop is Hop.INPUTS else f"{group_id}.{hop.value}"


class Task(NamedTuple):
    """Worker number and hop of one process."""

    worker: int = 0
    hop: Hop = Hop.INPUTS

    @property
    def label(self) -> str:
        """Return a name that is unique within the instance and stable over restarts."""
        return f"{self.worker}" if self.hop is Hop.INPUTS else f"{self.worker}-{self.hop.value}"

    def transactional_id(self, group_id: str, instance: str) -> str:
        """Return the `transactional.id` of its producer, unique in the cluster.

        A `/` occurs in no group and no instance name. The id begins with the group because ACLs on
        transactional ids are granted by prefix.
        """
        return f"{group_id}/{instance}/{self.label}"

    def member_id(self, group_id: str, instance: str) -> str:
        """Return the `group.instance.id` of its consumer, unique within its group.

        Kafka compares it only within a group, so different groups may have equal ids. It is the
        same in every version, so that a member of a newer version replaces the older one.
        """
        return f"{group_id}-{instance}-{self.label}"


ONLY: Final = Task()
"""The only task of an instance with one worker and without scope `address`."""


def tasks_of(config: "Config") -> tuple[Task, ...]:
    """Return all tasks of an instance by its configuration file."""
    return tasks_on(hops_of(route.scope for route in config.routes), config.service.workers)


def tasks_on(hops: Sequence[Hop], workers: int) -> tuple[Task, ...]:
    """Return all tasks of an instance with these hops."""
    return tuple(Task(worker, hop) for worker in range(workers) for hop in hops)


def deciding_processes(config: "Config") -> int:
    """Return how many processes of an instance decide, and so have ids in memory."""
    decides = {Hop.ADDRESSES if route.is_repartitioned else Hop.INPUTS for route in config.routes}
    return sum(each.hop in decides for each in tasks_of(config))


def share_of(config: "Config") -> "Config":
    """Return the configuration of one process: the deciding processes share the id cache memory."""
    memory_mb = max(1, config.service.cache_memory_mb // max(1, deciding_processes(config)))
    return replace(config, service=replace(config.service, cache_memory_mb=memory_mb))
