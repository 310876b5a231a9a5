"""What a broker tells of its topics and groups, asked with the Java client that Spark brings along.

Every question has a limit. What goes wrong is one sentence and an exit code.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from types import TracebackType
from typing import Any, Final, NamedTuple, Self, TypeVar, cast

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]  # it ships none
from pyspark.sql import SparkSession

from pipeline.errors import asking_failed

T = TypeVar("T")

_LIMIT_S: Final = 30
_APPENDED: Final = "LogAppendTime"


class KafkaPartition(NamedTuple):
    """A partition of a topic."""

    topic: str
    number: int


class OffsetSpan(NamedTuple):
    """Offsets of a partition, from the first to before the last."""

    begin: int
    end: int


class KafkaAdmin:
    """A client of the broker; a context manager that closes it."""

    def __init__(self, spark: SparkSession, servers: str, properties: Mapping[str, str]) -> None:
        # Spark has no other way to the clients that it brings along.
        self._jvm = cast("Any", spark._jvm)  # noqa: SLF001
        self._servers = servers
        given = {**properties, "bootstrap.servers": servers}
        settings = self._jvm.java.util.Properties()
        for name, value in given.items():
            settings.put(name, value)
        self._client = self._asked(lambda: self._kafka.clients.admin.Admin.create(settings))

    @property
    def _kafka(self) -> Any:  # noqa: ANN401 - a package of the JVM
        return self._jvm.org.apache.kafka

    def cluster_id(self) -> str:
        """What stamped ids begin with."""
        return str(self._get(lambda: self._client.describeCluster().clusterId()))

    def topics(self) -> set[str]:
        """All that there are."""
        return {str(name) for name in self._get(lambda: self._client.listTopics().names())}

    def partitions(self, topics: Collection[str]) -> list[KafkaPartition]:
        """All partitions of these topics."""
        found = self._get(lambda: self._client.describeTopics(sorted(topics)).allTopicNames())
        return [
            KafkaPartition(str(name), number)
            for name in found
            for number in range(found[name].partitions().size())
        ]

    def begins(self, partitions: Iterable[KafkaPartition]) -> dict[KafkaPartition, int]:
        """The first offset that each still has."""
        return self._offsets(partitions, "earliest", "READ_UNCOMMITTED")

    def ends(self, partitions: Iterable[KafkaPartition]) -> dict[KafkaPartition, int]:
        """The offset after all that was written, transactions that are open included."""
        return self._offsets(partitions, "latest", "READ_UNCOMMITTED")

    def stable_ends(self, partitions: Iterable[KafkaPartition]) -> dict[KafkaPartition, int]:
        """The offset up to which every transaction has ended."""
        return self._offsets(partitions, "latest", "READ_COMMITTED")

    def committed(self, group: str) -> dict[KafkaPartition, int]:
        """How far a group is, where it has committed."""
        found = self._get(
            lambda: self._client.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata()
        )
        return {
            KafkaPartition(str(each.topic()), each.partition()): found[each].offset()
            for each in found
            if found[each] is not None
        }

    def appended(self, topics: Collection[str]) -> set[str]:
        """Those of the topics that write the time of the broker over that of a record."""
        kind = self._kafka.common.config.ConfigResource
        wanted = [kind(kind.Type.TOPIC, name) for name in topics]
        found = self._get(lambda: self._client.describeConfigs(wanted).all())
        name = "message.timestamp.type"
        return {str(each.name()) for each in found if found[each].get(name).value() == _APPENDED}

    def _offsets(
        self, partitions: Iterable[KafkaPartition], which: str, isolation: str
    ) -> dict[KafkaPartition, int]:
        admin, common = self._kafka.clients.admin, self._kafka.common
        asked = self._jvm.java.util.HashMap()
        for topic, number in partitions:
            asked.put(common.TopicPartition(topic, number), getattr(admin.OffsetSpec, which)())
        options = admin.ListOffsetsOptions(getattr(common.IsolationLevel, isolation))
        found = self._get(lambda: self._client.listOffsets(asked, options).all())
        return {
            KafkaPartition(str(each.topic()), each.partition()): found[each].offset()
            for each in found
        }

    def _get(self, ask: Callable[[], Any]) -> Any:  # noqa: ANN401 - whatever the JVM answers
        seconds = self._jvm.java.util.concurrent.TimeUnit.SECONDS
        return self._asked(lambda: ask().get(_LIMIT_S, seconds))

    def _asked(self, ask: Callable[[], T]) -> T:
        try:
            return ask()
        except Py4JJavaError as error:
            raise asking_failed(self._servers, str(error.java_exception)) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _failure: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        self._client.close()
