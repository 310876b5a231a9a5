"""Cluster admin: queries that neither a consumer nor a producer can answer, and topic creation.

The simulation implements the same protocol. No answer is cached here.
"""

import struct
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, Final, NamedTuple, Protocol, TypeVar

import structlog
from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ClusterMetadata,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from state.model import PartitionId

_COUNT: Final = struct.Struct(">i")

_LENGTH: Final = struct.Struct(">h")

_VERSION_BYTES: Final = 2


def shared_out(assignment: bytes) -> Iterator[PartitionId]:
    """The partitions of one member; struct.error for what is no assignment."""
    if not assignment:
        return  # a member that was given nothing yet
    position = _VERSION_BYTES
    topics, position = _number(_COUNT, assignment, position)
    for _ in range(topics):
        length, position = _number(_LENGTH, assignment, position)
        name = assignment[position : position + length].decode()
        count, position = _number(_COUNT, assignment, position + length)
        for _ in range(count):
            partition, position = _number(_COUNT, assignment, position)
            yield PartitionId(name, partition)


def _number(kind: struct.Struct, text: bytes, position: int) -> tuple[int, int]:
    (number,) = kind.unpack_from(text, position)
    return int(number), position + kind.size


T = TypeVar("T")

_log = structlog.stdlib.get_logger(__name__)

REQUEST_TIMEOUT_S: Final = 5.0
"""How long one question to the cluster may take before it counts as not answered."""

RETENTION: Final = ("retention.ms", "retention.bytes")


# A question that was not answered in time says so itself, but not before its time is over.
_GRACE_S: Final = 1.0

_ANSWER_S: Final = 2.0

ABSENT: Final = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.TOPIC_EXCEPTION})
"""What is answered of a topic that does not exist."""

SILENT: Final = frozenset(
    {KafkaError._TIMED_OUT, KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN}  # noqa: SLF001
)
"""What the client answers itself, when no broker does."""

_UNANSWERED: Final = SILENT | {KafkaError._NOENT}  # noqa: SLF001 - it knows no leader of anything

_LEADERLESS: Final = frozenset(
    {
        KafkaError._NOENT,  # noqa: SLF001 - the client itself knows no leader
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.UNKNOWN_LEADER_EPOCH,
        KafkaError.FENCED_LEADER_EPOCH,
    }
)
"""What is answered before every broker has heard who leads."""

_ELECTION_S: Final = 2.0

_PAUSE_S: Final = 0.1

_FORGETFUL_S: Final = 20.0


class TopicInfo(NamedTuple):
    """What a topic is, as far as we depend on it."""

    topic_id: str
    partitions: int
    record_bytes_max: int
    cleanup_policy: str
    retention: Mapping[str, str]
    """Its settings of how long, and how many bytes, it keeps."""
    tombstones_kept_ms: int = 24 * 60 * 60 * 1000
    timestamp_type: str = "CreateTime"


class TopicSpec(NamedTuple):
    """A topic to make; `replication` -1 is the broker's default."""

    name: str
    partitions: int
    replication: int
    settings: Mapping[str, str]


class ClusterAdmin(Protocol):
    """Questions to the cluster. Each raises KafkaException when it is not answered in time."""

    @property
    def has_answered(self) -> bool:
        """Whether any broker has answered anything yet: the address is right, the network too."""
        ...

    def cluster_id(self) -> str:
        """The id that the cluster was formatted with."""
        ...

    def names(self) -> frozenset[str]:
        """All topics that we may see."""
        ...

    def topics(self, names: Iterable[str]) -> dict[str, TopicInfo]:
        """Those of the named topics that exist."""
        ...

    def create(self, topics: Iterable[TopicSpec]) -> None:
        """Make topics; one that is there already is left as it is."""
        ...

    def grow(self, name: str, partitions: int) -> None:
        """Give a topic more partitions."""
        ...

    def raise_limit(self, name: str, record_bytes_max: int) -> None:
        """Have a topic take larger records."""
        ...

    def starts(self, sources: Iterable[PartitionId]) -> dict[PartitionId, int]:
        """The first offset that each log still has."""
        ...

    def ends(self, sources: Iterable[PartitionId]) -> dict[PartitionId, int]:
        """The high watermarks: the end of each log, open transactions included."""
        ...

    def delete_before(self, offsets: Mapping[PartitionId, int]) -> None:
        """Have what lies before these offsets deleted; nobody waits for it."""
        ...

    def assigned(self, group_id: str) -> frozenset[PartitionId] | None:
        """Every partition that a member of the group has; None while they are shared out."""
        ...


class KafkaClusterAdmin:
    """See `ClusterAdmin`. Asks by one admin client, until that has long enough found no broker.

    librdkafka forgets every broker, and for good, once a cluster that is just starting names none
    (its issue #5301). Safe on any thread.
    """

    def __init__(self, make_admin: Callable[[], AdminClient]) -> None:
        self._make_admin = make_admin
        self._kept: AdminClient | None = None
        self._answered_s = 0.0
        """When it was made, or answered last."""
        self._is_unsure = False
        """Whether its last question was not answered."""
        self.has_answered = False
        self.known_id: str | None = None
        """The cluster's id, once it was asked for."""

    @contextmanager
    def _admin(self) -> Iterator[AdminClient]:
        """The client, held while it is asked: its answers never come once it is collected.

        It sends most questions to one broker, the controller by the metadata it has, and waits for
        that one although others are there. So after a question without an answer it reads the
        metadata again, which any broker tells.
        """
        admin = self._client()
        if self._is_unsure:
            self._metadata(admin)
        try:
            yield admin
        except KafkaException as error:
            self._is_unsure = error.args[0].code() in _UNANSWERED
            self.has_answered = self.has_answered or not self._is_unsure
            raise
        else:
            self._note_answer()

    def _client(self) -> AdminClient:
        admin = self._kept
        if admin is None:
            admin = self._kept = self._make_admin()
            self._answered_s = time.monotonic()
        return admin

    def _metadata(self, admin: AdminClient) -> ClusterMetadata:
        """Ask whichever broker is there; a client that has long enough found none is replaced."""
        try:
            told = admin.list_topics(timeout=REQUEST_TIMEOUT_S)
        except KafkaException as error:
            is_late = time.monotonic() - self._answered_s > _FORGETFUL_S
            if error.args[0].code() in _UNANSWERED and is_late and self._kept is admin:
                self._kept = None
            raise
        self._note_answer()
        return told

    def _note_answer(self) -> None:
        self._answered_s = time.monotonic()
        self._is_unsure, self.has_answered = False, True

    def cluster_id(self) -> str:
        """See `ClusterAdmin.cluster_id`."""
        with self._admin() as admin:
            description = admin.describe_cluster(request_timeout=REQUEST_TIMEOUT_S)
            self.known_id = str(answered(description).cluster_id)
        return self.known_id

    def names(self) -> frozenset[str]:
        """See `ClusterAdmin.names`."""
        return frozenset(self._metadata(self._client()).topics)

    def topics(self, names: Iterable[str]) -> dict[str, TopicInfo]:
        """See `ClusterAdmin.topics`."""
        wanted = sorted(set(names))
        if not wanted:
            return {}
        found = {}
        with self._admin() as admin:
            described = admin.describe_topics(
                TopicCollection(wanted), request_timeout=REQUEST_TIMEOUT_S
            )
            for name, future in described.items():
                try:
                    found[name] = answered(future)
                except KafkaException as error:
                    if error.args[0].code() not in ABSENT:
                        raise
        settings = self._settings(list(found))
        return {
            name: TopicInfo(
                topic_id=str(topic.topic_id),
                partitions=len(topic.partitions),
                record_bytes_max=int(settings[name]["max.message.bytes"]),
                cleanup_policy=settings[name]["cleanup.policy"],
                retention={each: settings[name][each] for each in RETENTION},
                tombstones_kept_ms=int(settings[name]["delete.retention.ms"]),
                timestamp_type=settings[name]["message.timestamp.type"],
            )
            for name, topic in found.items()
        }

    def create(self, topics: Iterable[TopicSpec]) -> None:
        """See `ClusterAdmin.create`."""
        new = new_topics(topics)
        if not new:
            return
        with self._admin() as admin:
            for future in admin.create_topics(new, request_timeout=REQUEST_TIMEOUT_S).values():
                try:
                    answered(future)
                except KafkaException as error:
                    if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                        raise

    def grow(self, name: str, partitions: int) -> None:
        """See `ClusterAdmin.grow`."""
        with self._admin() as admin:
            grown = admin.create_partitions(
                [NewPartitions(name, partitions)], request_timeout=REQUEST_TIMEOUT_S
            )
            answered(grown[name])

    def raise_limit(self, name: str, record_bytes_max: int) -> None:
        """See `ClusterAdmin.raise_limit`; all other settings stay."""
        limit = ConfigEntry(
            "max.message.bytes",
            str(record_bytes_max),
            incremental_operation=AlterConfigOpType.SET,
        )
        topic = ConfigResource(ResourceType.TOPIC, name, incremental_configs=[limit])
        with self._admin() as admin:
            altered = admin.incremental_alter_configs([topic], request_timeout=REQUEST_TIMEOUT_S)
            answered(altered[topic])

    def starts(self, sources: Iterable[PartitionId]) -> dict[PartitionId, int]:
        """See `ClusterAdmin.starts`."""
        return self._offsets(sources, OffsetSpec.earliest())  # type: ignore[no-untyped-call]  # the binding leaves it untyped

    def ends(self, sources: Iterable[PartitionId]) -> dict[PartitionId, int]:
        """See `ClusterAdmin.ends`; a consumer would tell the last stable offset instead."""
        return self._offsets(sources, OffsetSpec.latest())  # type: ignore[no-untyped-call]  # the binding leaves it untyped

    def delete_before(self, offsets: Mapping[PartitionId, int]) -> None:
        """See `ClusterAdmin.delete_before`; a refusal is told in the log."""
        places = [TopicPartition(*source, offset) for source, offset in offsets.items()]
        if not places:
            return
        with self._admin() as admin:
            asked = admin.delete_records(places, request_timeout=REQUEST_TIMEOUT_S)
        for future in asked.values():
            future.add_done_callback(_tell_refusal)

    def assigned(self, group_id: str) -> frozenset[PartitionId] | None:
        """See `ClusterAdmin.assigned`."""
        # By the older call, past its deprecation: `describe_consumer_groups` aborts the whole
        # process when the connection goes while it is asked (librdkafka #4605).
        with self._admin() as admin:
            ask: Callable[..., list[Any]] = super(AdminClient, admin).list_groups
            groups = ask(group_id, timeout=REQUEST_TIMEOUT_S)
        for group in groups:
            if group.id == group_id and group.state in {"Stable", "Empty"}:
                shares = (shared_out(member.assignment) for member in group.members)
                return frozenset(source for share in shares for source in share)
        return None

    def _offsets(self, sources: Iterable[PartitionId], spec: OffsetSpec) -> dict[PartitionId, int]:
        """Ask again for a moment where no leader is known: a topic that was just made has none."""
        asked = {TopicPartition(source.topic, source.partition): spec for source in sources}
        deadline_s = time.monotonic() + _ELECTION_S
        while asked:
            try:
                return self._listed(asked)
            except KafkaException as error:
                is_leaderless = error.args[0].code() in _LEADERLESS
                if not is_leaderless or time.monotonic() > deadline_s:
                    raise
            time.sleep(_PAUSE_S)
        return {}

    def _listed(self, asked: dict[TopicPartition, OffsetSpec]) -> dict[PartitionId, int]:
        with self._admin() as admin:
            answers = admin.list_offsets(asked, request_timeout=REQUEST_TIMEOUT_S)
            return {
                PartitionId(place.topic, place.partition): answered(future).offset
                for place, future in answers.items()
            }

    def _settings(self, names: list[str]) -> dict[str, dict[str, str]]:
        if not names:
            return {}
        resources = [ConfigResource(ResourceType.TOPIC, name) for name in names]
        with self._admin() as admin:
            answers = admin.describe_configs(resources, request_timeout=REQUEST_TIMEOUT_S)
            return {
                resource.name: {entry.name: str(entry.value) for entry in answered(future).values()}
                for resource, future in answers.items()
            }


def new_topics(topics: Iterable[TopicSpec]) -> list[NewTopic]:
    """As the admin client has them."""
    return [
        NewTopic(
            topic.name,
            num_partitions=topic.partitions,
            replication_factor=topic.replication,
            config=dict(topic.settings),
        )
        for topic in topics
    ]


def _tell_refusal(future: "Future[Any]") -> None:
    error = future.exception()
    if error is not None:
        _log.warning("records_not_deleted", error=str(error))


def answered(future: "Future[T]") -> T:
    """What the cluster answers; KafkaException when it does not, late as it may be."""
    try:
        error = future.exception(REQUEST_TIMEOUT_S + _GRACE_S)
    except TimeoutError:
        silent = KafkaError(KafkaError._TIMED_OUT, "no answer in time")  # noqa: SLF001 - its name
        raise KafkaException(silent) from None
    if isinstance(error, KafkaException):
        # Not the one that the future holds: its traceback would hold the future, and the client.
        raise KafkaException(*error.args)
    return future.result()


def finds_a_broker(client: Consumer, topic: str) -> bool:
    """Whether any broker answers this client, which may take two seconds; whose the topic is."""
    try:
        client.list_topics(topic, timeout=_ANSWER_S)
    except KafkaException:
        return False
    return True
