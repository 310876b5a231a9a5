"""A cluster of three nodes, each broker and controller: any one of them may go, none is special.

Everything has three replicas and is acknowledged by two. Each node can be stopped, killed, frozen
and started again by itself; with two away, nothing is decided until one of them is back.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, ClusterMetadata

from tools.broker.config import Door, door_properties, member_properties
from tools.broker.embedded import EmbeddedBroker
from tools.broker.errors import BrokerError
from tools.broker.node import Machine, new_cluster_id
from tools.broker.ready import START_TIMEOUT_S

NUMBERS: Final = (1, 2, 3)
_SMALL: Final = Machine(heap_mb=384, short_lived=True)
_ANSWER_S: Final = 5.0
_POLL_S: Final = 0.1


class ThreeBrokers:
    """See the module. `nodes` has them by their numbers, which are Kafka's node ids."""

    def __init__(
        self,
        folder: Path,
        *,
        properties: Mapping[str, str] | None = None,
        doors: Sequence[Door] = (),
    ) -> None:
        """`doors`, one for each node, are listeners for clients that come through a proxy."""
        cluster_id = new_cluster_id()
        self.nodes: Final[Mapping[int, EmbeddedBroker]] = {
            number: EmbeddedBroker(folder / str(number), machine=_SMALL, cluster_id=cluster_id)
            for number in NUMBERS
        }
        ports = {number: broker.node.ports for number, broker in self.nodes.items()}
        for number, broker in self.nodes.items():
            broker.configure(member_properties(number, ports) | dict(properties or {}))
        for broker, door in zip(self.nodes.values(), doors, strict=bool(doors)):
            broker.configure(door_properties(broker.node.ports, door))
        self._admin: AdminClient | None = None

    @property
    def bootstrap_servers(self) -> str:
        """Return the addresses of all three."""
        return ",".join(broker.bootstrap_servers for broker in self.nodes.values())

    @property
    def client_properties(self) -> Mapping[str, str]:
        """Return all that a client needs to connect."""
        return {"bootstrap.servers": self.bootstrap_servers}

    def start(self) -> None:
        """Start those that do not run, all at once, and return when the cluster is whole."""
        with ThreadPoolExecutor(len(self.nodes)) as all_at_once:
            list(all_at_once.map(EmbeddedBroker.start, self.nodes.values()))
        self.wait_in_sync()

    def stop(self) -> None:
        """End all of them, as a power cut would: without a majority none can end in order."""
        self._admin = None
        for broker in self.nodes.values():
            if broker.is_alive:
                broker.kill()
            broker.stop()

    def wait_in_sync(self, timeout_s: float = START_TIMEOUT_S) -> None:
        """Return when all three are members and every replica of every topic is in sync."""
        self._wait(self._is_whole, timeout_s, "the three brokers are not in sync")

    def leader(self, topic: str, partition: int = 0) -> int:
        """Return the number of the node that leads a partition, once one does."""
        return self._leader(topic, lambda _count: partition)

    def group_coordinator(self, group_id: str) -> int:
        """Return the number of the node that coordinates a group, once any group was used."""
        return self._leader("__consumer_offsets", lambda count: _hashed(group_id) % count)

    def transaction_coordinator(self, transactional_id: str) -> int:
        """Return the same for a producer's transactions, once any producer was initialised."""
        return self._leader("__transaction_state", lambda count: _hashed(transactional_id) % count)

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def _is_whole(self) -> bool:
        told = self._metadata()
        replicas = (each for topic in told.topics.values() for each in topic.partitions.values())
        return len(told.brokers) == len(self.nodes) and all(
            len(each.isrs) == len(each.replicas) and each.leader in self.nodes for each in replicas
        )

    def _leader(self, topic: str, choose: Callable[[int], int]) -> int:
        """`choose` is told how many partitions there are."""
        found: list[int] = []

        def is_led() -> bool:
            topics = self._metadata().topics
            partitions = topics[topic].partitions if topic in topics else {}
            place = choose(len(partitions)) if partitions else None
            found[:] = [each.leader for each in partitions.values() if each.id == place]
            return found in ([number] for number in NUMBERS)

        self._wait(is_led, START_TIMEOUT_S, f"{topic} has no leader")
        return found[0]

    def _metadata(self) -> ClusterMetadata:
        if self._admin is None:
            quick = {"log_level": 0, "reconnect.backoff.max.ms": 500}
            self._admin = AdminClient({**self.client_properties, **quick})
        return self._admin.list_topics(timeout=_ANSWER_S)

    def _wait(self, is_so: Callable[[], bool], timeout_s: float, otherwise: str) -> None:
        deadline = time.monotonic() + timeout_s
        while True:
            with suppress(KafkaException):
                if is_so():
                    return
            if time.monotonic() > deadline:
                logs = ", ".join(str(broker.log_path) for broker in self.nodes.values())
                raise BrokerError(f"After {timeout_s:.0f} s {otherwise}; their logs: {logs}.")
            time.sleep(_POLL_S)


def _hashed(name: str) -> int:
    """Return Java's hash of a text without its sign: by that Kafka places groups and producers."""
    value, units = 0, name.encode("utf-16-be")
    for at in range(0, len(units), 2):
        value = (31 * value + int.from_bytes(units[at : at + 2])) & 0xFFFF_FFFF
    return min(value, (1 << 32) - value)
