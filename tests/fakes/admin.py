"""The fake's answers to `ringfence_service.kafka.model.ClusterAdmin`."""

from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from ringfence_service.kafka.admin import SILENT, hidden_error
from ringfence_service.kafka.model import POLICY, RECORD_LIMIT, TopicInfo, TopicSpec, VisibleTopics
from ringfence_state.model import PartitionId
from tests.fakes.log import KEPT, OTHERS, FakeCluster, FakeTopic
from tests.fakes.partition import Partition


class FakeAdmin:
    """A fake `kafka.model.ClusterAdmin`; each call is a step at which a process may die."""

    def __init__(self, log: FakeCluster) -> None:
        self._log = log
        self.has_answered = False

    def explain(self, cause: str) -> str | None:
        del cause
        return self._log.known_cause

    def cluster_id(self) -> str:
        self._step("cluster_id")
        return "fake-cluster"

    def names(self) -> frozenset[str]:
        self._step("names")
        return frozenset(name for name in self._log.logs if not self._log.denies(name, "DESCRIBE"))

    def topics(self, names: Iterable[str]) -> dict[str, TopicInfo]:
        topics, hidden = self.visible(names)
        if hidden:
            raise KafkaException(hidden_error(hidden))
        return topics

    def visible(self, names: Iterable[str]) -> VisibleTopics:
        self._step("topics")
        names = set(names)
        hidden = {n for n in names if self._log.denies(n, "DESCRIBE", "DESCRIBE_CONFIGS")}
        found = {n: self._log.logs[n] for n in sorted(names - hidden) if n in self._log.logs}
        topics = {
            name: TopicInfo.of(
                name,
                topic.id,
                len(topic.partitions),
                self._reported(topic),
                is_readable=not self._log.denies(name, "READ"),
                is_writable=not self._log.denies(name, "WRITE"),
            )
            for name, topic in found.items()
        }
        return VisibleTopics(topics, frozenset(hidden))

    def _reported(self, topic: FakeTopic) -> dict[str, str | None]:
        settings = {
            RECORD_LIMIT: str(topic.record_bytes_max),
            POLICY: topic.cleanup_policy,
            **topic.retention,
            **topic.settings,
        }
        return {name: value for name, value in settings.items() if name not in self._log.unreported}

    def create(self, topics: Iterable[TopicSpec]) -> None:
        self._step("create")
        for topic in topics:
            if topic.name not in self._log.logs:
                self._log.create_topic(
                    topic.name,
                    topic.partitions,
                    record_bytes_max=int(topic.settings.get("max.message.bytes", "1048588")),
                    cleanup_policy=topic.settings.get("cleanup.policy", "delete"),
                    retention={each: topic.settings.get(each, KEPT[each]) for each in KEPT},
                    settings={each: topic.settings.get(each, OTHERS[each]) for each in OTHERS},
                )

    def grow(self, name: str, partitions: int) -> None:
        self._step("grow")
        self._log.grow_topic(name, partitions)

    def raise_limits(self, name: str, limits: Mapping[str, int]) -> None:
        self._log.step("raise_limits")
        if self._log.denies(name, "ALTER_CONFIGS"):
            raise KafkaException(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED))
        topic = self._log.logs[name]
        record_bytes_max = limits.get(RECORD_LIMIT)
        if record_bytes_max is not None:
            topic = replace(topic, record_bytes_max=record_bytes_max, limit_bytes=record_bytes_max)
        others = {each: str(value) for each, value in limits.items() if each != RECORD_LIMIT}
        self._log.logs[name] = replace(topic, settings={**topic.settings, **others})

    def starts(self, sources: Iterable[PartitionId]) -> dict[PartitionId, int]:
        self._step("starts")
        return {source: self._known(source).start for source in sources}

    def ends(self, sources: Iterable[PartitionId]) -> dict[PartitionId, int]:
        self._step("ends")
        return {source: self._log.told_end(self._known(source)) for source in sources}

    def ask_ends(self, sources: Iterable[PartitionId]) -> dict[PartitionId, Future[Any]]:
        self._step("ends")
        found = {}
        for source in sources:
            future = found[source] = Future[Any]()
            future.set_result(SimpleNamespace(offset=self._log.told_end(self._known(source))))
        return found

    def delete_before(self, offsets: Mapping[PartitionId, int]) -> None:
        self._step("delete_before")
        for source, offset in offsets.items():
            self._known(source).delete_before(offset)

    def assigned(self, group_id: str) -> dict[PartitionId, str] | None:
        self._step("assigned")
        group = self._log.group(group_id)
        if group.rebalancing or any(member.moves for member in group.members.values()):
            return None
        return {place: member.id for member in group.members.values() for place in member.held}

    def _step(self, name: str) -> None:
        try:
            self._log.step(name)
        except KafkaException as error:
            self.has_answered = self.has_answered or error.args[0].code() not in SILENT
            raise
        self.has_answered = True

    def _known(self, source: PartitionId) -> Partition:
        log = self._log.log(source.topic, source.partition)
        assert log is not None, f"{source.topic}-{source.partition} does not exist"
        return log
