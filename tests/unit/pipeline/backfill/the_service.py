"""What the service says of records: its own deciding code, on batches that are committed.

Every record bears its place as its value, so what goes out tells which record it was.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from random import Random
from typing import NamedTuple

from confluent_kafka import Message

from ringfence_api.resources.id_schemas import ImportedLine
from ringfence_api.resources.publishers import Number as NumberIn
from ringfence_client.headers import MARK, DeadLetter, Headers
from ringfence_pipeline.backfill.decider import ACCEPTED, SparkRecord
from ringfence_pipeline.backfill.inputs import BackfillInputs
from ringfence_pipeline.backfill.seed import SeedNumber
from ringfence_service.dedup.batch import Batch, Slice, read
from ringfence_service.dedup.checks import DecisionContext
from ringfence_service.dedup.decider import decide, import_ids, set_publisher_position
from ringfence_service.dedup.output import OutputResolver
from ringfence_service.dedup.partition import (
    LogRange,
    OwnedPartition,
    PartitionPhase,
    TakeoverFacts,
)
from ringfence_service.dedup.plan import Plan
from ringfence_service.dedup.record import name_of, origin_header
from ringfence_service.dedup.route import finder
from ringfence_service.import_ids.source import IdLine
from ringfence_service.kafka.compression import Compression
from ringfence_service.kafka.model import TopicInfo
from ringfence_service.kafka.topics import OutputTopics
from ringfence_service.processor.apply import apply
from ringfence_state.cache import Cache
from ringfence_state.memory_store import MemoryStore
from ringfence_state.model import Claim, PartitionId
from ringfence_state.store import Identity
from tests.fakes.admin import FakeAdmin
from tests.fakes.log import FakeCluster

CHANGELOG = PartitionId("changelog", 0)
FALLBACK = "fallback"


class Said(NamedTuple):
    """What is compared."""

    verdict: str
    original: str | None


class TheService:
    """One deciding partition."""

    def __init__(
        self, decider: PartitionId, inputs: BackfillInputs, random: Random, now_ms: int
    ) -> None:
        self._random, self._now_ms = random, now_ms
        self._is_own = decider.topic in inputs.by_topic
        self._partition = OwnedPartition(
            source=decider,
            input_partition=inputs.input_partition(decider),
            changelog=CHANGELOG,
            phase=PartitionPhase.RUNNING,
            store=MemoryStore(),
            facts=TakeoverFacts(
                None, None, LogRange(0, 0), LogRange(0, 0), Identity("", "", "", 1)
            ),
        )
        cluster = FakeCluster()
        targets = {name for route in inputs.by_topic.values() for name in route.targets()}
        for name in (*targets, FALLBACK):
            cluster.create_topic(name, 1)
        found = OutputTopics(FakeAdmin(cluster))
        found.refresh([*targets, FALLBACK])
        self._cache = Cache(1 << 30)
        self._rules = DecisionContext(
            cluster_id="",
            group_id=inputs.group_id,
            epochs={},
            book=inputs.rules(self._cache).book,
            cache=self._cache,
            output_resolver=OutputResolver(
                found,
                FALLBACK,
                Compression("zstd"),
                refused={},
                undeliverable=set(),
                unanswerable=set(),
            ),
            input_partitions=finder(inputs.routes, inputs.group_id, _no_topics),
            by_address=inputs.by_address,
        )

    def say(self, rows: Sequence[SparkRecord]) -> Mapping[tuple[PartitionId, int], Said]:
        """The verdict on each record, decided in this order and in batches of any size."""
        said: dict[tuple[PartitionId, int], Said] = {}
        at = 0
        while at < len(rows):
            size = self._random.choice([1, 7, 100, 5_000])
            part = rows[at : at + size]
            self._say(part, at, said)
            at += size
        return said

    def know(self, told: Iterable[IdLine | SeedNumber]) -> None:
        """What the admin API would have it know."""
        for each in told:
            plan, partition = Plan(), self._partition
            if isinstance(each, IdLine):
                known = ImportedLine.model_validate_json(json.dumps(each.row)).placed()
                filled = import_ids(
                    partition, each.address, [known], self._rules, plan, self._now_ms
                )
            else:
                number = NumberIn.model_validate_json(json.dumps(each.row))
                assert number.topic is not None
                assert number.partition is not None
                claim = Claim(
                    publisher=each.publisher,
                    number=number.sequence,
                    stream=number.stream,
                    previous=0,
                )
                writes = PartitionId(number.topic, number.partition)
                filled = set_publisher_position(
                    partition,
                    number.address,
                    claim,
                    writes,
                    self._rules,
                    plan,
                    number.missing,
                )
            for _ in filled:
                pass
            apply(plan, {CHANGELOG: 10}, {partition.source: partition}, self._cache, self._now_ms)

    def _say(
        self, rows: Sequence[SparkRecord], first: int, said: dict[tuple[PartitionId, int], Said]
    ) -> None:
        messages = [self._message(row, at) for at, row in enumerate(rows, first)]
        plan, partition = Plan(), self._partition
        batch = Batch((Slice.of(partition, *read(messages)[:2]),), self._now_ms)
        for outputs in decide([batch], self._rules, plan):
            for _, value, _, _, _, _, _, headers in outputs:
                if value is not None and b"@" in value:
                    said[_place(value)] = _said(headers)
        apply(plan, {CHANGELOG: 10}, {partition.source: partition}, self._cache, self._now_ms)

    def _message(self, row: SparkRecord, position: int) -> Message:
        headers: list[tuple[str, str | bytes | None]] = list(row.headers)
        if not self._is_own:
            headers.append(origin_header(name_of(row.source), row.own_offset))
        return Message(
            topic=self._partition.source.topic,
            partition=self._partition.source.partition,
            offset=row.own_offset if self._is_own else position,
            key=row.own_key,
            value=value_of(row.source, row.own_offset),
            headers=headers,
            timestamp=(1, row.timestamp_ms),
        )


def value_of(source: PartitionId, offset: int) -> bytes:
    """What every record bears."""
    return f"{source.topic}-{source.partition}@{offset}".encode()


def _place(value: bytes) -> tuple[PartitionId, int]:
    name, _, offset = value.decode().rpartition("@")
    topic, _, partition = name.rpartition("-")
    return PartitionId(topic, int(partition)), int(offset)


def _said(headers: Headers) -> Said:
    told = {name: (value or b"").decode() for name, value in headers if name in _OURS}
    if MARK in told:
        return Said("duplicate", told[MARK] or None)
    reason = told.get(DeadLetter.REASON)
    return Said(ACCEPTED if reason is None else reason, told.get(DeadLetter.ORIGINAL))


_OURS = {*(name.value for name in DeadLetter), MARK}


def _no_topics() -> Mapping[str, TopicInfo]:
    return {}
