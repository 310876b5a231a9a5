"""Kafka admin client for Spark jobs: topics, offsets and groups, through Spark's Java client.

Every request has a time limit. A failure is a PipelineError: one sentence and an exit code.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from types import TracebackType
from typing import Any, Final, NamedTuple, Self, TypeVar, cast

from py4j.java_gateway import JavaPackage  # type: ignore[import-untyped]  # it ships none
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]  # it ships none
from pyspark.sql import SparkSession

from ringfence_pipeline.errors import USAGE, PipelineError, request_failed

T = TypeVar("T")

_LIMIT_S: Final = 30
"""How long a command waits for one answer of the broker before it ends with an error.

Less than Kafka's `default.api.timeout.ms` (60 s), so that this limit is the one that counts.
Within it the client repeats requests, for example while a partition gets another leader.
"""
_BROKER_TIME: Final = "LogAppendTime"


class KafkaPartition(NamedTuple):
    """A partition of a topic."""

    topic: str
    number: int


class OffsetSpan(NamedTuple):
    """A range of offsets of a partition, [begin, end)."""

    begin: int
    end: int


class KafkaAdmin:
    """An admin client; a context manager that closes it. Every method raises PipelineError."""

    def __init__(self, spark: SparkSession, servers: str, properties: Mapping[str, str]) -> None:
        # PySpark has no public access to the Kafka clients on its class path.
        self._jvm = cast("Any", spark._jvm)  # noqa: SLF001
        if isinstance(self._kafka.clients.admin.Admin, JavaPackage):
            raise PipelineError(
                "the session has no Kafka client (org.apache.kafka.clients): give spark-submit "
                "--packages org.apache.spark:spark-sql-kafka-0-10_2.13:4.0.0; the connector of "
                "Databricks has its client under another name",
                exit_code=USAGE,
            )
        self._servers = servers
        properties = {**properties, "bootstrap.servers": servers}
        settings = self._jvm.java.util.Properties()
        for name, value in properties.items():
            settings.put(name, value)
        self._client = self._call(lambda: self._kafka.clients.admin.Admin.create(settings))

    @property
    def _kafka(self) -> Any:  # noqa: ANN401 - a package of the JVM
        return self._jvm.org.apache.kafka

    def cluster_id(self) -> str:
        """Return the id of the cluster, with which stamped ids begin."""
        return str(self._get(lambda: self._client.describeCluster().clusterId()))

    def topics(self) -> set[str]:
        """Return the names of all topics."""
        return {str(name) for name in self._get(lambda: self._client.listTopics().names())}

    def topics_like(self, topics: Collection[str]) -> set[str]:
        """Return the existing topics of these names or expressions, which start with ^."""
        pattern = self._jvm.java.util.regex.Pattern
        there = self.topics()
        expressions = [pattern.compile(name) for name in topics if name.startswith("^")]
        like = {name for name in there for each in expressions if each.matcher(name).find()}
        return like | there.intersection(topics)

    def partitions(self, topics: Collection[str]) -> list[KafkaPartition]:
        """Return all partitions of these topics."""
        found = self._get(lambda: self._client.describeTopics(sorted(topics)).allTopicNames())
        return [
            KafkaPartition(str(name), number)
            for name in found
            for number in range(found[name].partitions().size())
        ]

    def begins(self, partitions: Iterable[KafkaPartition]) -> dict[KafkaPartition, int]:
        """Return the first offset of each partition."""
        return self._offsets(partitions, "earliest", "READ_UNCOMMITTED")

    def ends(self, partitions: Iterable[KafkaPartition]) -> dict[KafkaPartition, int]:
        """Return the end offset of each partition, open transactions included."""
        return self._offsets(partitions, "latest", "READ_UNCOMMITTED")

    def stable_ends(self, partitions: Iterable[KafkaPartition]) -> dict[KafkaPartition, int]:
        """Return the last stable offset of each partition."""
        return self._offsets(partitions, "latest", "READ_COMMITTED")

    def committed(self, group: str) -> dict[KafkaPartition, int]:
        """Return the committed offsets of a group; partitions without one are left out."""
        found = self._get(
            lambda: self._client.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata()
        )
        return {
            KafkaPartition(str(each.topic()), each.partition()): found[each].offset()
            for each in found
            if found[each] is not None
        }

    def appended(self, topics: Collection[str]) -> set[str]:
        """Return the topics with LogAppendTime, where the broker overwrites timestamps."""
        kind = self._kafka.common.config.ConfigResource
        resources = [kind(kind.Type.TOPIC, name) for name in topics]
        found = self._get(lambda: self._client.describeConfigs(resources).all())
        name = "message.timestamp.type"
        return {str(each.name()) for each in found if found[each].get(name).value() == _BROKER_TIME}

    def _offsets(
        self, partitions: Iterable[KafkaPartition], which: str, isolation: str
    ) -> dict[KafkaPartition, int]:
        admin, common = self._kafka.clients.admin, self._kafka.common
        requested = self._jvm.java.util.HashMap()
        for topic, number in partitions:
            requested.put(common.TopicPartition(topic, number), getattr(admin.OffsetSpec, which)())
        options = admin.ListOffsetsOptions(getattr(common.IsolationLevel, isolation))
        found = self._get(lambda: self._client.listOffsets(requested, options).all())
        return {
            KafkaPartition(str(each.topic()), each.partition()): found[each].offset()
            for each in found
        }

    def _get(self, request: Callable[[], Any]) -> Any:  # noqa: ANN401 - any result of the JVM
        seconds = self._jvm.java.util.concurrent.TimeUnit.SECONDS
        return self._call(lambda: request().get(_LIMIT_S, seconds))

    def _call(self, request: Callable[[], T]) -> T:
        try:
            return request()
        except Py4JJavaError as error:
            raise request_failed(self._servers, str(error.java_exception)) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _failure: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        self._client.close()
