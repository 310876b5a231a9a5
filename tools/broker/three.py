"""Cluster of three nodes, each broker and controller: any one may fail, and none is special.

Every topic has three replicas and needs two in sync. Each node can be stopped, killed, frozen and
restarted by itself; without two of them there is no quorum until one is back.
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
    """A cluster of three embedded brokers; `nodes` maps Kafka's node ids to them."""

    def __init__(
        self,
        folder: Path,
        *,
        properties: Mapping[str, str] | None = None,
        doors: Sequence[Door] = (),
    ) -> None:
        """`doors`, one per node, are listeners for clients that connect through a proxy."""
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
        """Return the librdkafka properties of a client."""
        return {"bootstrap.servers": self.bootstrap_servers}

    def start(self) -> None:
        """Start those that do not run, in parallel, and wait until all are in sync."""
        with ThreadPoolExecutor(len(self.nodes)) as all_at_once:
            list(all_at_once.map(EmbeddedBroker.start, self.nodes.values()))
        self.wait_in_sync()

    def stop(self) -> None:
        """Kill all of them: without a quorum none can stop gracefully."""
        self._admin = None
        for broker in self.nodes.values():
            if broker.is_alive:
                broker.kill()
            broker.stop()

    def wait_in_sync(self, timeout_s: float = START_TIMEOUT_S) -> None:
        """Wait until all three are members and every replica of every topic is in sync."""
        self._wait(self._is_whole, timeout_s, "the three brokers are not in sync")

    def leader(self, topic: str, partition: int = 0) -> int:
        """Return the node id of a partition's leader, once there is one."""
        return self._leader(topic, lambda _count: partition)

    def group_coordinator(self, group_id: str) -> int:
        """Return the node id of a group's coordinator, once any group was used."""
        return self._leader("__consumer_offsets", lambda count: _hashed(group_id) % count)

    def transaction_coordinator(self, transactional_id: str) -> int:
        """Return the node id of a producer's coordinator, once any producer was initialised."""
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
        metadata = self._metadata()
        partitions = (
            each for topic in metadata.topics.values() for each in topic.partitions.values()
        )
        return len(metadata.brokers) == len(self.nodes) and all(
            len(each.isrs) == len(each.replicas) and each.leader in self.nodes
            for each in partitions
        )

    def _leader(self, topic: str, choose: Callable[[int], int]) -> int:
        """Return the leader of the partition that `choose` returns, given their count."""
        found: list[int] = []

        def is_led() -> bool:
            topics = self._metadata().topics
            partitions = topics[topic].partitions if topic in topics else {}
            chosen = choose(len(partitions)) if partitions else None
            found[:] = [each.leader for each in partitions.values() if each.id == chosen]
            return found in ([number] for number in NUMBERS)

        self._wait(is_led, START_TIMEOUT_S, f"{topic} has no leader")
        return found[0]

    def _metadata(self) -> ClusterMetadata:
        if self._admin is None:
            quick = {"log_level": 0, "reconnect.backoff.max.ms": 500}
            self._admin = AdminClient({**self.client_properties, **quick})
        return self._admin.list_topics(timeout=_ANSWER_S)

    def _wait(self, condition: Callable[[], bool], timeout_s: float, failure: str) -> None:
        deadline = time.monotonic() + timeout_s
        while True:
            with suppress(KafkaException):
                if condition():
                    return
            if time.monotonic() > deadline:
                logs = ", ".join(str(broker.log_path) for broker in self.nodes.values())
                raise BrokerError(f"After {timeout_s:.0f} s {failure}; look at the logs: {logs}.")
            time.sleep(_POLL_S)


def _hashed(name: str) -> int:
    """Return Java's hash of a text without its sign, by which Kafka assigns coordinators."""
    value, units = 0, name.encode("utf-16-be")
    for at in range(0, len(units), 2):
        value = (31 * value + int.from_bytes(units[at : at + 2])) & 0xFFFF_FFFF
    return min(value, (1 << 32) - value)
