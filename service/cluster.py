"""Cluster: the questions that neither consumer nor producer can answer, and topics to be made.

The simulation puts its own behind the same protocol. Every answer is asked for anew; who needs it
twice keeps it.
"""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple, Protocol

from confluent_kafka import (
    ConsumerGroupState,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from state.edit import Source

REQUEST_TIMEOUT_S: Final = 5.0
"""How long one question to the cluster may take before it counts as not answered."""

_ABSENT: Final = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.TOPIC_EXCEPTION})


class TopicInfo(NamedTuple):
    """What a topic is, as far as we depend on it."""

    topic_id: str
    partitions: int
    record_bytes_max: int
    cleanup_policy: str


class NewTopicInfo(NamedTuple):
    """A topic to make; `replication` -1 is the broker's default."""

    name: str
    partitions: int
    replication: int
    settings: Mapping[str, str]


class Cluster(Protocol):
    """Questions to the cluster. Each raises KafkaException when it is not answered in time."""

    def cluster_id(self) -> str:
        """The id that the cluster was formatted with."""
        ...

    def names(self) -> frozenset[str]:
        """All topics that we may see."""
        ...

    def topics(self, names: Iterable[str]) -> dict[str, TopicInfo]:
        """Those of the named topics that exist."""
        ...

    def create(self, topics: Iterable[NewTopicInfo]) -> None:
        """Make topics; one that is there already is left as it is."""
        ...

    def grow(self, name: str, partitions: int) -> None:
        """Give a topic more partitions."""
        ...

    def starts(self, sources: Iterable[Source]) -> dict[Source, int]:
        """The first offset that each log still has."""
        ...

    def ends(self, sources: Iterable[Source]) -> dict[Source, int]:
        """The high watermarks: the end of each log, open transactions included."""
        ...

    def assigned(self, group_id: str) -> frozenset[Source] | None:
        """Every partition that a member of the group has; None while the group is not stable."""
        ...


class KafkaCluster:
    """See `Cluster`. Keeps the admin client: its answers never come once it is collected."""

    def __init__(self, admin: AdminClient) -> None:
        self._admin = admin
        self.known_id: str | None = None
        """The cluster's id, once it was asked for."""

    def cluster_id(self) -> str:
        """See `Cluster.cluster_id`."""
        description = self._admin.describe_cluster(request_timeout=REQUEST_TIMEOUT_S)
        self.known_id = str(description.result(REQUEST_TIMEOUT_S).cluster_id)
        return self.known_id

    def names(self) -> frozenset[str]:
        """See `Cluster.names`."""
        return frozenset(self._admin.list_topics(timeout=REQUEST_TIMEOUT_S).topics)

    def topics(self, names: Iterable[str]) -> dict[str, TopicInfo]:
        """See `Cluster.topics`."""
        wanted = sorted(set(names))
        if not wanted:
            return {}
        described = self._admin.describe_topics(
            TopicCollection(wanted), request_timeout=REQUEST_TIMEOUT_S
        )
        found = {}
        for name, future in described.items():
            try:
                found[name] = future.result(REQUEST_TIMEOUT_S)
            except KafkaException as error:
                if error.args[0].code() not in _ABSENT:
                    raise
        settings = self._settings(list(found))
        return {
            name: TopicInfo(
                topic_id=str(topic.topic_id),
                partitions=len(topic.partitions),
                record_bytes_max=int(settings[name]["max.message.bytes"]),
                cleanup_policy=settings[name]["cleanup.policy"],
            )
            for name, topic in found.items()
        }

    def create(self, topics: Iterable[NewTopicInfo]) -> None:
        """See `Cluster.create`."""
        new = [
            NewTopic(
                topic.name,
                num_partitions=topic.partitions,
                replication_factor=topic.replication,
                config=dict(topic.settings),
            )
            for topic in topics
        ]
        if not new:
            return
        for future in self._admin.create_topics(new, request_timeout=REQUEST_TIMEOUT_S).values():
            try:
                future.result(REQUEST_TIMEOUT_S)
            except KafkaException as error:
                if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    raise

    def grow(self, name: str, partitions: int) -> None:
        """See `Cluster.grow`."""
        grown = self._admin.create_partitions(
            [NewPartitions(name, partitions)], request_timeout=REQUEST_TIMEOUT_S
        )
        grown[name].result(REQUEST_TIMEOUT_S)

    def starts(self, sources: Iterable[Source]) -> dict[Source, int]:
        """See `Cluster.starts`."""
        return self._offsets(sources, OffsetSpec.earliest())  # type: ignore[no-untyped-call]  # the binding leaves it untyped

    def ends(self, sources: Iterable[Source]) -> dict[Source, int]:
        """See `Cluster.ends`; a consumer would tell the last stable offset instead."""
        return self._offsets(sources, OffsetSpec.latest())  # type: ignore[no-untyped-call]  # the binding leaves it untyped

    def assigned(self, group_id: str) -> frozenset[Source] | None:
        """See `Cluster.assigned`."""
        asked = self._admin.describe_consumer_groups([group_id], request_timeout=REQUEST_TIMEOUT_S)
        group = asked[group_id].result(REQUEST_TIMEOUT_S)
        if group.state is not ConsumerGroupState.STABLE:
            return None
        places = [place for m in group.members for place in m.assignment.topic_partitions]
        return frozenset(Source(place.topic, place.partition) for place in places)

    def _offsets(self, sources: Iterable[Source], spec: OffsetSpec) -> dict[Source, int]:
        asked = {TopicPartition(source.topic, source.partition): spec for source in sources}
        if not asked:
            return {}
        answers = self._admin.list_offsets(asked, request_timeout=REQUEST_TIMEOUT_S)
        return {
            Source(place.topic, place.partition): future.result(REQUEST_TIMEOUT_S).offset
            for place, future in answers.items()
        }

    def _settings(self, names: list[str]) -> dict[str, dict[str, str]]:
        if not names:
            return {}
        resources = [ConfigResource(ResourceType.TOPIC, name) for name in names]
        answers = self._admin.describe_configs(resources, request_timeout=REQUEST_TIMEOUT_S)
        return {
            resource.name: {
                entry.name: str(entry.value) for entry in future.result(REQUEST_TIMEOUT_S).values()
            }
            for resource, future in answers.items()
        }
