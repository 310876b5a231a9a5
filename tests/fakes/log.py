"""A Kafka cluster in memory: single-threaded, deterministic, its clock moved by waits.

Nothing runs behind the caller's back: `tick` does what brokers do on their own (markers, session
and transaction timeouts, rebalances) and is called by every client call and every wait.
`Chance` decides what a real cluster is free to do in several ways; `on_step`, which is called
before and after every effect, decides what goes wrong and when a process dies.
"""

import lzma
import zlib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from confluent_kafka import KafkaError, KafkaException

from ringfence_service.kafka.compression import Codec
from ringfence_service.kafka.model import UNLIMITED
from ringfence_state.model import PartitionId
from tests.fakes.errors import check_nothing_is_handled
from tests.fakes.group import Group
from tests.fakes.partition import Partition, Record
from tests.fakes.transactions import Producing

START_MS = 1_700_000_000_000
KEPT = {"retention.ms": "604800000", "retention.bytes": "-1"}
OTHERS = {
    "delete.retention.ms": "86400000",
    "message.timestamp.type": "CreateTime",
    "message.timestamp.before.max.ms": str(UNLIMITED),
    "message.timestamp.after.max.ms": "3600000",
    "compression.type": "producer",
    "min.compaction.lag.ms": "0",
    "max.compaction.lag.ms": str(UNLIMITED),
}
"""What brokers report where nothing is set."""


class Chance:
    """Every freedom of a real cluster; here each time the plainest choice."""

    def sends_now(self) -> bool:
        """Tell whether a produced record leaves the client before it is flushed."""
        return False

    def fetched(self, records_max: int) -> int:
        """Return how many records one partition delivers at most to one call."""
        return records_max

    def answers_after_ms(self, topic: str) -> int:
        """Return how long the answer to a fetch of records takes; nothing is waited for it."""
        del topic
        return 0

    def marker_now(self) -> bool:
        """Tell whether an owed marker is written at this tick."""
        return True

    def message_error(self, topics: Collection[str]) -> KafkaError | None:
        """Return an error that comes among the messages of a `consume` that fetches these."""
        del topics
        return None

    def lingers(self) -> bool:
        """Tell whether a partition that is taken away stays for a while where it was read."""
        return False

    def hurries(self) -> bool:
        """Tell whether a group shares out again before all have heard of the last time."""
        return False

    def ghost(self) -> bool:
        """Tell whether a request is sent twice: its connection is lost, and a copy is on its way.

        The client has sent it again and goes by the answer to that.
        """
        return False

    def arrives_now(self) -> bool:
        """Tell whether a copy that is on its way reaches the broker at this step."""
        return False

    def shuffle(self, markers: list[Callable[[], None]]) -> None:
        """Put the markers of one transaction into the order in which they will be written."""


@dataclass(frozen=True, slots=True)
class FakeTopic:
    """One topic."""

    id: str
    partitions: tuple[Partition, ...]
    record_bytes_max: int
    """What the topic's settings tell."""
    limit_bytes: int
    """What the broker takes."""
    cleanup_policy: str
    retention: Mapping[str, str]
    settings: Mapping[str, str]
    """Others."""

    refuses: Callable[[Record], bool] = lambda _record: False
    """Which records the broker refuses although the settings do not say so."""

    def refusal(self, record: Record, now_ms: int, codec: Codec | None = None) -> int | None:
        """Return the error code with which the broker refuses a record, or None."""
        age_ms = now_ms - record.timestamp_ms
        has_time = self.settings["message.timestamp.type"] == "CreateTime"
        past_ms = int(self.settings["message.timestamp.before.max.ms"])
        future_ms = int(self.settings["message.timestamp.after.max.ms"])
        if self.settings["compression.type"] == "uncompressed":
            codec = None
        if _is_larger(record, self.limit_bytes, codec):
            return KafkaError.MSG_SIZE_TOO_LARGE
        if record.key is None and "compact" in self.cleanup_policy.split(","):
            return KafkaError.INVALID_RECORD
        if self.refuses(record):
            return KafkaError.INVALID_RECORD
        if has_time and not -future_ms <= age_ms <= past_ms:
            return KafkaError.INVALID_TIMESTAMP
        return None


def size_bytes(record: Record) -> int:
    """Return about as many bytes as a batch with this record alone has."""
    headers = sum(len(name) + len(value or b"") for name, value in record.headers or [])
    return len(record.key or b"") + len(record.value or b"") + headers + 70


def _is_larger(record: Record, limit: int, codec: Codec | None) -> bool:
    """Return whether a batch with this record alone exceeds a limit as it is sent."""
    if size_bytes(record) <= limit or codec is None:
        return size_bytes(record) > limit
    headers = b"".join(name.encode() + (value or b"") for name, value in record.headers or [])
    return (
        70 + len(_PACKED[codec.name]((record.key or b"") + (record.value or b"") + headers)) > limit
    )


def _packed_far(content: bytes) -> bytes:
    """Pack content by what repeats at any distance, as zstd does and gzip does not."""
    return lzma.compress(content, filters=[{"id": lzma.FILTER_LZMA2, "dict_size": 1 << 24}])


_PACKED: Mapping[str, Callable[[bytes], bytes]] = {"gzip": zlib.compress, "zstd": _packed_far}


class FakeCluster:
    """Topics, transactions and groups of one cluster."""

    def __init__(
        self, chance: Chance | None = None, on_step: Callable[[str], None] | None = None
    ) -> None:
        self.now_ms = START_MS
        self.chance = chance or Chance()
        self.on_step = on_step or _no_step
        self.created = 0
        self.logs: dict[str, FakeTopic] = {}
        self.denied: set[tuple[str, str]] = set()
        """Topics, and groups with that word before their names, each with what is not granted."""
        self.known_cause: str | None = None
        """What is known to be wrong with the way to it."""
        self.groups: dict[str, Group] = {}
        self.producing: dict[str, Producing] = {}
        self.on_its_way: list[tuple[str, Callable[[], None]]] = []
        """Copies of requests that outlive their connections, by the names of the requests."""
        self.note = ""
        """What the offsets are committed for that are sent now; a test may say so."""
        self.hidden: dict[PartitionId, tuple[int, int]] = {}
        """How many of the last records of a partition no question for its end tells of, and until
        when."""
        self.aged: set[tuple[str, str]] = set()
        """Whose transactions were ended for their age, by transactional id and process."""
        self.met: Counter[str] = Counter()
        """How often something rare has happened."""
        self.unreported: set[str] = set()
        """Settings of topics that it does not report, as brokers of other makes."""
        self.names_records = True
        """Whether it says which records of a batch it refuses, as Kafka does since 2.4."""

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        *,
        record_bytes_max: int = 1 << 20,
        limit_bytes: int | None = None,
        cleanup_policy: str = "delete",
        retention: Mapping[str, str] = KEPT,
        settings: Mapping[str, str] = OTHERS,
    ) -> None:
        """Create a topic; its id is new each time."""
        self.created += 1
        logs = tuple(Partition(name, number) for number in range(partitions))
        self.logs[name] = FakeTopic(
            f"{name}-{self.created}",
            logs,
            record_bytes_max,
            record_bytes_max if limit_bytes is None else limit_bytes,
            cleanup_policy,
            retention,
            {**OTHERS, **settings},
        )

    def compact(self, tombstones_kept_ms: int, but: Collection[str] = ()) -> None:
        """Compact every topic that asks for it, but those."""
        for name, topic in self.logs.items():
            if topic.cleanup_policy == "compact" and name not in but:
                for log in topic.partitions:
                    log.compact(self.now_ms, tombstones_kept_ms)

    def grow_topic(self, name: str, partitions: int) -> None:
        """Give a topic more partitions; it stays the same topic."""
        topic = self.logs[name]
        more = tuple(Partition(name, number) for number in range(len(topic.partitions), partitions))
        self.logs[name] = replace(topic, partitions=topic.partitions + more)

    def denies(self, name: str, *operations: str) -> bool:
        """Tell whether one of these operations is not granted."""
        return any((name, operation) in self.denied for operation in operations)

    def log(self, topic: str, partition: int) -> Partition | None:
        """Return the log of one partition, or None where there is none."""
        found = self.logs.get(topic)
        if found is None or not 0 <= partition < len(found.partitions):
            return None
        return found.partitions[partition]

    def told_end(self, log: Partition) -> int:
        """Return the end of a log as its broker tells it: one that has just started may lag."""
        count, until_ms = self.hidden.get(PartitionId(log.topic, log.number), (0, 0))
        if self.now_ms >= until_ms:
            return log.end
        self.met["short ends"] += 1
        return max(log.start, log.end - count)

    def write(self, topic: str, partition: int, record: Record) -> int:
        """Append a record outside any transaction, as a plain publisher does."""
        log = self.log(topic, partition)
        assert log is not None, f"{topic}-{partition} does not exist"
        return log.append(record)

    def records(self, topic: str, partition: int = 0) -> list[Record]:
        """Return what a read_committed reader sees of one partition."""
        log = self.log(topic, partition)
        assert log is not None, f"{topic}-{partition} does not exist"
        return [entry.record for entry in log.records() if entry.record is not None]

    def group(self, name: str) -> Group:
        """Return a group, new at its first mention."""
        return self.groups.setdefault(name, Group(name))

    def transactional(self, name: str, timeout_ms: int) -> Producing:
        """Return what the coordinator knows of one transactional id."""
        return self.producing.setdefault(name, Producing(timeout_ms))

    def step(self, name: str) -> None:
        """Note that a client or store comes to `name`; here a process may die."""
        if name != "close":  # it does not fail
            check_nothing_is_handled()
        self.tick()
        if self.on_its_way and self.chance.arrives_now():
            self.deliver()
        self.on_step(name)

    def deliver(self) -> None:
        """Have the copy that is on its way for longest reach the broker, which may refuse it."""
        name, request = self.on_its_way.pop(0)
        try:
            request()
        except KafkaException:
            self.met[f"late {name} refused"] += 1
        else:
            self.met[f"late {name}"] += 1

    def wait(self, seconds: float) -> None:
        """Let time pass."""
        self.now_ms += max(int(seconds * 1000), 0)
        self.tick()

    def tick(self) -> None:
        """Do what the brokers do by themselves."""
        for name, producing in self.producing.items():
            if producing.open is not None and producing.expire(self.now_ms):
                self.met["ended by age"] += 1
                self.aged.add((name, producing.by))
            while producing.markers and self.chance.marker_now():
                producing.markers.pop()()
        for group in self.groups.values():
            if group.members:
                group.progress(self.now_ms, self._places, self.chance.hurries)

    def end_transaction(self, producing: Producing) -> None:
        """Order the markers of a transaction just decided, and write those due now."""
        self.chance.shuffle(producing.markers)
        self.tick()

    def _places(self, topics: Iterable[str]) -> Iterable[PartitionId]:
        found = [self.logs[t] for t in topics if t in self.logs]
        return [PartitionId(log.topic, log.number) for topic in found for log in topic.partitions]


def _no_step(_name: str) -> None:
    """Nothing goes wrong."""
