"""Two clusters and a bridge between them; at the target, where it is asked for, a service.

The workload says nothing of time or chance: record n is the same in every run. Half of it names
no id, so that only the stamp can keep its copies out.
"""

import signal
from collections.abc import Iterator, Mapping
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from ringfence_client.headers import DUPLICATE_ID
from tests.broker.reading import committed, drained, ends
from tests.broker.service import BRIDGE, Service, Stage, configuration, properties
from tests.broker.topics import create_topic
from tests.broker.workload import FIRST_MS, Headers, Record, Seen
from tests.support.waiting import eventually

PARTITIONS = 4


def record(number: int) -> Record:
    """One of the workload: with and without key, value, note and id of its own."""
    key = None if number % 5 == 0 else b"k%d" % (number % 1000)
    value = None if number % 7 == 0 else b"v%d" % number
    headers: Headers = () if number % 3 else (("note", None), ("note", b"\xff"))
    if number % 2:
        name = DUPLICATE_ID if number % 4 == 1 else "_AMQ_DUPL_ID"
        headers = (*headers, (name, b"id-%d" % number))
    return Record(key, value, headers, FIRST_MS + number)


class TwoClusters(Stage):
    """One topic on both clusters, its workload, and the services that process it."""

    def __init__(
        self, source: Mapping[str, str], target: Mapping[str, str], folder: Path, name: str
    ) -> None:
        super().__init__(source, folder, f"{name}-bridge")
        self.source, self.target = dict(source), dict(target)
        self.topic, self.initializer = name, f"far.{name}"
        self.sent: dict[int, list[Record]] = {number: [] for number in range(PARTITIONS)}

    def create(self, initializer: int = PARTITIONS, **config: str) -> None:
        """Both topics."""
        keep = {"retention.ms": "-1"}
        create_topic(self.source, self.topic, PARTITIONS, keep)
        settings = {name.replace("_", "."): value for name, value in config.items()}
        create_topic(self.target, self.initializer, initializer, keep | settings)

    def bridge(self, target: str = "", session_ms: int = 2000) -> Service:
        """A bridge, not yet started."""
        name = f"bridge-{len(self._services)}"
        return self.written(name, lambda at: self.text(at, target, session_ms), program=BRIDGE)

    def started(self) -> Service:
        """The same, started."""
        bridge = self.bridge()
        bridge.start()
        return bridge

    def text(self, port: int = 0, target: str = "", session_ms: int = 2000) -> str:
        """What the file of a bridge says."""
        return f"""
[api]
port = {port}
[bridge]
topics = ["{self.topic}"]
target_topic = "far.{{topic}}"
group_id = "{self.group}"
session_timeout_ms = {session_ms}
[bridge.source]
{properties(self.source)}
[bridge.target]
{properties(self.target)}
{target}
"""

    def service(self) -> Service:
        """A service at the target, not yet started."""
        return self.written(
            "service",
            lambda port: configuration(
                self.target,
                f"{self.topic}-far",
                self.folder / "state",
                port,
                service="create_topics = true",
                rest=f'[[routes]]\ninputs = ["{self.initializer}"]\nscope = "partition"',
            ),
        )

    def send(self, numbers: range) -> None:
        """These of the workload, to the source."""
        producer = Producer(
            {
                **self.source,
                "linger.ms": 5,
                "queue.buffering.max.messages": len(numbers) + 1,
                "enable.idempotence": True,  # a batch that is sent again stays in its place
            }
        )
        for number in numbers:
            each, partition = record(number), number % PARTITIONS
            self.sent[partition].append(each)
            producer.produce(
                self.topic,
                each.value,
                each.key,
                partition,
                timestamp=each.timestamp_ms,
                headers=list(each.headers),
            )
        assert producer.flush(30) == 0, "the source did not take the workload within 30 s"

    def stamped(self) -> Iterator[tuple[int, list[Record]]]:
        """What has to come out at the far end, by partition and in order."""
        cluster = self._admin().list_topics(timeout=10).cluster_id
        for number, records in self.sent.items():
            wanted = []
            for offset, each in enumerate(records):
                stamp = f"{cluster}/{self.topic}/{number}/{offset}".encode()
                has_id = any(name.endswith("_DUPL_ID") for name, _ in each.headers)
                more: Headers = () if has_id else ((DUPLICATE_ID, stamp),)
                wanted.append(each._replace(headers=(*each.headers, *more)))
            yield number, wanted

    def verify_arrived(self) -> None:
        """All that was sent has arrived in its order, though perhaps again."""
        arrived = self.read(self.initializer)
        for number, wanted in self.stamped():
            assert list(dict.fromkeys(arrived[number])) == wanted

    def arrived(self) -> int:
        """How many records stand in the target topic, copies included."""
        found: list[int] = []

        def are_told() -> bool:
            found[:] = ends(self.target, self.initializer, "read_uncommitted").values()
            return True

        eventually(are_told)  # the broker may be away, and a new partition without a leader
        return sum(found)

    def wait_arrived(self, count: int, bridge: Service) -> None:
        """Until so many stand in the target topic."""
        eventually(lambda: self.arrived() >= count, bridge)

    def wait_forwarded(self, bridge: Service) -> None:
        """Until everything that was sent is committed at the source."""
        self.wait_offsets(sum(map(len, self.sent.values())), bridge)

    def wait_offsets(self, wanted: int, bridge: Service) -> None:
        """Until the offsets that are committed at the source add up to this."""

        eventually(lambda: self.forwarded() == wanted, bridge)

    def forwarded(self) -> int:
        """The sum of the offsets that are committed at the source."""
        return sum(committed(self.source, self.group, self.topic, PARTITIONS, limit_s=5).values())

    def kill_ahead(self, bridge: Service) -> None:
        """Kill the bridge when records have arrived and their offsets are not committed.

        Nothing was sent twice before. It is killed too when all is forwarded.
        """

        def is_ahead() -> bool:
            bridge.signal(signal.SIGSTOP)
            bridge.wait_until_stopped()
            done = self.forwarded()
            if done < self.arrived() or done == sum(map(len, self.sent.values())):
                return True
            bridge.signal(signal.SIGCONT)
            return False

        eventually(is_ahead, bridge, pause_max_s=0.01)
        bridge.kill()

    def wait_decided(self, service: Service) -> None:
        """Until the service has decided all that has arrived."""
        arrived = self.arrived()

        def is_decided() -> bool:
            return sum(p["committed_offset"] or 0 for p in service.partitions()) >= arrived

        try:
            eventually(is_decided, service)
        except AssertionError as late:
            late.add_note(f"{arrived} arrived; it says {service.get('/v1/status')}")
            late.add_note(f"{service.get('/v1/partitions?scope=instance')}")
            raise

    def read(self, topic: str, partitions: int = PARTITIONS) -> dict[int, list[Record]]:
        """Everything in a topic of the target, by partition."""
        found: dict[int, list[Record]] = {number: [] for number in range(partitions)}
        for each in self.seen(topic, partitions):
            found[each.partition].append(each.record)
        return found

    def seen(self, topic: str, partitions: int = PARTITIONS) -> list[Seen]:
        """The same, each where it lies."""
        return drained(self.target, topic, partitions)

    def _admin(self) -> AdminClient:
        return AdminClient(dict(self.source))
