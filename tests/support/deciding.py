"""What the tests of decisions share: a partition, its rules over a fake cluster, and records."""

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

from confluent_kafka import Message

from ringfence_client.headers import DUPLICATE_ID, DeadLetter, Headers
from ringfence_service.config.addresses import AddressBook
from ringfence_service.config.model import RouteSettings
from ringfence_service.config.tasks import Hop
from ringfence_service.dedup.batch import Batch, Slice, read
from ringfence_service.dedup.checks import DecisionContext
from ringfence_service.dedup.dead_letter import Mode, RedrivenRecord
from ringfence_service.dedup.decider import decide, redrive
from ringfence_service.dedup.output import OutputResolver
from ringfence_service.dedup.partition import (
    LogRange,
    OwnedPartition,
    PartitionPhase,
    TakeoverFacts,
)
from ringfence_service.dedup.plan import Output, Plan
from ringfence_service.dedup.record import RejectedError
from ringfence_service.dedup.redecision import Outcome
from ringfence_service.dedup.route import InputPartition, InputRoute, finder
from ringfence_service.kafka.compression import Compression, UncompressedError
from ringfence_service.kafka.model import TopicInfo
from ringfence_service.kafka.topics import OutputTopics, RepartitionTopic
from ringfence_service.processor.apply import apply
from ringfence_state.cache import Cache
from ringfence_state.memory_store import MemoryStore
from ringfence_state.model import PartitionId
from ringfence_state.store import Identity
from tests.fakes.admin import FakeAdmin
from tests.fakes.log import FakeCluster
from tests.fakes.native import as_produced

NOW_MS = 1_700_000_000_000
SOURCE = PartitionId("orders", 1)
CHANGELOG = PartitionId("g.changelog.orders", 1)
BY_ADDRESS = PartitionId("g.by-address", 1)
FALLBACK = "g.dead-letters"
ACKS = "g.acks"
IDENTITY = Identity("cluster", "input-id", "changelog-id", 1)


def record(
    offset: int,
    *headers: tuple[str, bytes | None],
    key: bytes | None = b"k",
    value: bytes | None = b"v",
    timestamp_ms: int = NOW_MS - 1000,
) -> Message:
    return Message(
        topic=SOURCE.topic,
        partition=SOURCE.partition,
        offset=offset,
        key=key,
        value=value,
        headers=list(headers),
        timestamp=(1, timestamp_ms),
    )


def named(offset: int, identifier: bytes, **rest: bytes | None) -> Message:
    return record(offset, (DUPLICATE_ID, identifier), **rest)  # type: ignore[arg-type]


def cluster_of(**topics: int) -> FakeCluster:
    """Topics by name (`_` is a dot) with their number of partitions."""
    cluster = FakeCluster()
    for name, partitions in topics.items():
        cluster.create_topic(name.replace("_", "."), partitions)
    cluster.create_topic(FALLBACK, 1)
    return cluster


@dataclass
class Decided(Plan):
    """A plan with what goes out beside it."""

    outputs: list[Output] = field(default_factory=list)
    acks: list[Output] = field(default_factory=list)

    def take(self, parts: Iterable[Sequence[Output]]) -> None:
        for output in as_produced(list(chain.from_iterable(parts))):
            (self.acks if output[0] == ACKS else self.outputs).append(output)


@dataclass
class World:
    """One deciding partition of `orders`, which has three."""

    settings: RouteSettings = field(
        default_factory=lambda: RouteSettings(name="orders", inputs=("orders",), scope="partition")
    )
    addresses: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    cluster: FakeCluster = field(default_factory=lambda: cluster_of(orders_unique=3, orders_dlq=3))
    compression: Compression = field(default_factory=lambda: Compression("none"))
    refused: dict[tuple[PartitionId, int], RejectedError] = field(default_factory=dict)
    epochs: dict[str, int] = field(default_factory=dict)
    undeliverable: set[tuple[PartitionId, int]] = field(default_factory=set)
    unanswerable: set[tuple[PartitionId, int]] = field(default_factory=set)
    batch_bytes_max: int = sys.maxsize
    hop: Hop = Hop.INPUTS

    def __post_init__(self) -> None:
        self.cache = Cache(1 << 30)
        self.store = MemoryStore()
        self.targets = OutputTopics(FakeAdmin(self.cluster))
        input_partition = InputPartition(SOURCE, InputRoute.bind(self.settings, SOURCE.topic), 3)
        by_address = self.hop is Hop.ADDRESSES
        decides = by_address or self.settings.scope == "partition"
        self.partition = OwnedPartition(
            source=BY_ADDRESS if by_address else SOURCE,
            input_partition=None if by_address else input_partition,
            changelog=CHANGELOG if decides else None,
            phase=PartitionPhase.RUNNING,
            store=self.store if decides else None,
            facts=TakeoverFacts(None, None, LogRange(0, 0), LogRange(0, 0), IDENTITY),
        )
        routes = [InputRoute.bind(self.settings, name) for name in self.settings.inputs]
        self.targets.refresh(set().union(*(route.targets() for route in routes), [FALLBACK]))

    def rules(self) -> DecisionContext:
        return DecisionContext(
            cluster_id="cluster",
            group_id="g",
            epochs=self.epochs,
            book=AddressBook.of(self.addresses),
            cache=self.cache,
            output_resolver=OutputResolver(
                targets=self.targets,
                fallback=FALLBACK,
                compression=self.compression,
                refused=self.refused,
                undeliverable=self.undeliverable,
                unanswerable=self.unanswerable,
            ),
            input_partitions=self._find,
            by_address=RepartitionTopic(BY_ADDRESS.topic, 12),
            batch_bytes_max=self.batch_bytes_max,
        )

    def _find(self, input_partition: bytes) -> InputPartition:
        """By the settings as they are now."""
        return finder([self.settings], "g", self._inputs)(input_partition)

    def _inputs(self) -> dict[str, TopicInfo]:
        return FakeAdmin(self.cluster).topics(self.settings.inputs)

    def decide(self, *messages: Message) -> "Decided":
        """The plan for one batch, which is then dropped."""
        return self.decide_pieces([messages])

    def decide_pieces(self, pieces: Iterable[Sequence[Message]]) -> "Decided":
        """The same for several."""
        given, seen = iter(pieces), list[Sequence[Message]]()

        def again() -> Iterator[Sequence[Message]]:
            yield from seen
            for messages in given:
                seen.append(messages)
                yield messages

        while True:
            plan = Decided()
            slices = (Slice.of(self.partition, *read(messages)[:2]) for messages in again())
            try:
                plan.take(decide((Batch((part,), NOW_MS) for part in slices), self.rules(), plan))
            except UncompressedError:
                continue  # as the loop, which reads the batch again
            return plan

    def unread(
        self,
        fill: Callable[..., Iterable[Sequence[Output]]],
        *given: object,
        after: Sequence[object],
    ) -> "Decided":
        """What is decided otherwise than by reading: by a function of the same module."""
        plan = Decided()
        plan.take(fill(self.partition, *given, self.rules(), plan, *after))
        return plan

    def redrive(self, mode: Mode, *letters: RedrivenRecord) -> tuple[list[Outcome], "Decided"]:
        outcomes = list[Outcome]()
        return outcomes, self.unread(redrive, letters, mode, after=(NOW_MS, outcomes))

    def commit(self, *messages: Message) -> "Decided":
        """The same, committed."""
        plan = self.decide(*messages)
        apply(plan, {CHANGELOG: 10}, {self.partition.source: self.partition}, self.cache, NOW_MS)
        return plan


def topics(plan: Decided) -> list[str]:
    return [output[0] for output in plan.outputs]


def told(headers: Headers) -> dict[str, str]:
    """The envelope: what we say in the headers of a dead letter."""
    ours = {str(name) for name in DeadLetter}
    return {name: (value or b"").decode() for name, value in headers if name in ours}


def reasons(outputs: Sequence[Output]) -> list[str | None]:
    return [told(output[-1]).get(DeadLetter.REASON) for output in outputs]
