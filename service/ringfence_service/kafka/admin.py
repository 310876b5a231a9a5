"""Cluster admin: queries that neither a consumer nor a producer can answer, and topic creation.

The simulation implements the same protocol. No answer is cached here.
"""

import struct
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, Final, TypeVar

import structlog
from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (
    AclOperation,
    AdminClient,
    AlterConfigOpType,
    ClusterMetadata,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
    TopicDescription,
)

from ringfence_service.kafka.model import Offset, TopicInfo, TopicSpec, VisibleTopics
from ringfence_state.model import PartitionId

_COUNT: Final = struct.Struct(">i")

_LENGTH: Final = struct.Struct(">h")

_VERSION_BYTES: Final = 2
"""The size of the field in Kafka's protocol."""


def shared_out(assignment: bytes) -> Iterator[PartitionId]:
    """Yield the partitions in a member's assignment; raise struct.error if it is malformed."""
    if not assignment:
        return  # a member without an assignment yet
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
"""How long one request to the cluster may take before it counts as unanswered."""

_GRACE_S: Final = 1.0
"""How much longer than a request its answer is waited for.

A request that timed out reports that itself, but only after its timeout.
"""

_ANSWER_S: Final = 2.0
"""How long a client may take to find a broker.

A loop waits for it without a heartbeat: less than the four seconds after which `/readyz` fails.
"""

ABSENT: Final = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.TOPIC_EXCEPTION})
"""Error codes for a topic that does not exist."""

SILENT: Final = frozenset(
    {KafkaError._TIMED_OUT, KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN}  # noqa: SLF001
)
"""Error codes of the client itself if no broker answers."""

_UNANSWERED: Final = SILENT | {KafkaError._NOENT}  # noqa: SLF001 - the client knows no leader

_LEADERLESS: Final = frozenset(
    {
        KafkaError._NOENT,  # noqa: SLF001 - the client itself knows no leader
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.UNKNOWN_LEADER_EPOCH,
        KafkaError.FENCED_LEADER_EPOCH,
    }
)
"""Error codes while some broker does not know the leader of a partition yet."""

_ELECTION_S: Final = 2.0
"""How long offsets are asked for while a partition has no leader, as after its creation.

The loop waits meanwhile. A longer absence is reported to it as an error, and it backs off.
"""

_PAUSE_S: Final = 0.1
"""Pause before offsets are asked for again: the answer that there is no leader comes at once."""

_REPLACE_AFTER_S: Final = 20.0
"""How long a client may find no broker before it is replaced.

Twice the longest pause after which librdkafka connects again (`reconnect.backoff.max.ms`, 10 s by
default), so a client that still knows its brokers comes back by itself.
"""


class KafkaClusterAdmin:
    """Requests over one admin client, replaced when it has not found a broker for a while.

    librdkafka forgets every broker for good once the metadata of a starting cluster name none (its
    issue #5301). Safe on any thread.
    """

    def __init__(
        self,
        make_admin: Callable[[], AdminClient],
        explain: Callable[[str], str | None] = lambda _cause: None,
    ) -> None:
        """`explain` is as in `ClusterAdmin`."""
        self._make_admin = make_admin
        self.explain = explain
        self._current: AdminClient | None = None
        self._answered_s = 0.0
        """When the client was created, or when it last had an answer."""
        self._is_unsure = False
        """Whether its last request was unanswered."""
        self.has_answered = False
        self.known_id: str | None = None
        """The cluster id, once `cluster_id` has returned it."""

    @contextmanager
    def _admin(self) -> Iterator[AdminClient]:
        """Provide the client, and a reference to it: once it is collected, no answers arrive.

        librdkafka sends most requests to one broker, the controller by the metadata that it has,
        and waits for that one although others are available. So after an unanswered request the
        metadata are read again, which any broker can answer.
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
        admin = self._current
        if admin is None:
            admin = self._current = self._make_admin()
            self._answered_s = time.monotonic()
        return admin

    def _metadata(self, admin: AdminClient) -> ClusterMetadata:
        """Read the metadata from any broker; drop a client that has found none for too long."""
        try:
            metadata = admin.list_topics(timeout=REQUEST_TIMEOUT_S)
        except KafkaException as error:
            is_late = time.monotonic() - self._answered_s > _REPLACE_AFTER_S
            if error.args[0].code() in _UNANSWERED and is_late and self._current is admin:
                self._current = None
            raise
        self._note_answer()
        return metadata

    def _note_answer(self) -> None:
        self._answered_s = time.monotonic()
        self._is_unsure, self.has_answered = False, True

    def cluster_id(self) -> str:
        """Return the cluster id, and keep it as `known_id`."""
        with self._admin() as admin:
            description = admin.describe_cluster(request_timeout=REQUEST_TIMEOUT_S)
            self.known_id = str(answered(description).cluster_id)
        return self.known_id

    def names(self) -> frozenset[str]:
        """Return the names of all topics that we may describe."""
        return frozenset(self._metadata(self._client()).topics)

    def topics(self, names: Iterable[str]) -> dict[str, TopicInfo]:
        """Return the named topics that exist; KafkaException if we may not describe one."""
        topics, hidden = self.visible(names)
        if hidden:
            raise KafkaException(hidden_error(hidden))
        return topics

    def visible(self, names: Iterable[str]) -> VisibleTopics:
        """Return the named topics as far as we may describe them."""
        requested = sorted(set(names))
        if not requested:
            return VisibleTopics({}, frozenset())
        with self._admin() as admin:
            described = admin.describe_topics(
                TopicCollection(requested),
                include_authorized_operations=True,
                request_timeout=REQUEST_TIMEOUT_S,
            )
            found, denied = _split(described)
            resources = [ConfigResource(ResourceType.TOPIC, name) for name in found]
            configs = (
                admin.describe_configs(resources, request_timeout=REQUEST_TIMEOUT_S)
                if resources
                else {}
            )
            entries, unread = _split({each.name: future for each, future in configs.items()})
        topics = {
            name: TopicInfo.of(
                name,
                str(topic.topic_id),
                len(topic.partitions),
                {entry.name: entry.value for entry in entries[name].values()},
                is_readable=_is_granted(topic, AclOperation.READ),
                is_writable=_is_granted(topic, AclOperation.WRITE),
            )
            for name, topic in found.items()
            if name in entries
        }
        return VisibleTopics(topics, frozenset(denied | unread))

    def create(self, topics: Iterable[TopicSpec]) -> None:
        """Create topics; an existing one stays unchanged."""
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
        """Raise the number of partitions of a topic."""
        with self._admin() as admin:
            grown = admin.create_partitions(
                [NewPartitions(name, partitions)], request_timeout=REQUEST_TIMEOUT_S
            )
            answered(grown[name])

    def raise_limits(self, name: str, limits: Mapping[str, int]) -> None:
        """Raise these limits of a topic, by setting; its other settings stay unchanged."""
        entries = [
            ConfigEntry(setting, str(value), incremental_operation=AlterConfigOpType.SET)
            for setting, value in limits.items()
        ]
        topic = ConfigResource(ResourceType.TOPIC, name, incremental_configs=entries)
        with self._admin() as admin:
            altered = admin.incremental_alter_configs([topic], request_timeout=REQUEST_TIMEOUT_S)
            answered(altered[topic])

    def starts(self, sources: Iterable[PartitionId]) -> dict[PartitionId, int]:
        """Return the log start offset of each partition."""
        return self._offsets(sources, OffsetSpec.earliest())  # type: ignore[no-untyped-call]  # the binding leaves it untyped

    def ends(self, sources: Iterable[PartitionId]) -> dict[PartitionId, int]:
        """Return each partition's high watermark; a consumer reports the last stable offset."""
        return self._offsets(sources, OffsetSpec.latest())  # type: ignore[no-untyped-call]  # the binding leaves it untyped

    def delete_before(self, offsets: Mapping[PartitionId, int]) -> None:
        """Request deletion of all records before these offsets; a refusal is only logged."""
        partitions = [TopicPartition(*source, offset) for source, offset in offsets.items()]
        if not partitions:
            return
        with self._admin() as admin:
            deletions = admin.delete_records(partitions, request_timeout=REQUEST_TIMEOUT_S)
        for future in deletions.values():
            future.add_done_callback(_log_refusal)

    def deletion_fault(self, source: PartitionId, offset: int) -> KafkaError | None:
        """Request deletion of the records of a partition before an offset; return the refusal."""
        end = TopicPartition(*source, offset)
        with self._admin() as admin:
            deletion = admin.delete_records([end], request_timeout=REQUEST_TIMEOUT_S)[end]
            try:
                answered(deletion)
            except KafkaException as error:
                fault: KafkaError = error.args[0]
                return fault
        return None

    def assigned(self, group_id: str) -> dict[PartitionId, str] | None:
        """Return the member id of the owner of each partition; None during a rebalance."""
        # The older call, without its deprecation warning: `describe_consumer_groups` aborts the
        # whole process if the connection breaks during the request (librdkafka #4605).
        with self._admin() as admin:
            list_groups: Callable[..., list[Any]] = super(AdminClient, admin).list_groups
            groups = list_groups(group_id, timeout=REQUEST_TIMEOUT_S)
        found = next((group for group in groups if group.id == group_id), None)
        if found is not None and found.state not in {"Stable", "Empty", "Dead"}:
            return None
        members = [] if found is None else found.members
        return {source: member.id for member in members for source in shared_out(member.assignment)}

    def ask_ends(self, sources: Iterable[PartitionId]) -> Mapping[PartitionId, Future[Offset]]:
        """Request the high watermark of each partition, and return without an answer."""
        latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]  # the binding leaves it untyped
        specs = {TopicPartition(*source): latest for source in sources}
        with self._admin() as admin:
            answers = admin.list_offsets(specs, request_timeout=REQUEST_TIMEOUT_S)
        return {PartitionId(each.topic, each.partition): future for each, future in answers.items()}

    def _offsets(self, sources: Iterable[PartitionId], spec: OffsetSpec) -> dict[PartitionId, int]:
        """List offsets; retry briefly while no leader is known, as for a topic just created."""
        specs = {TopicPartition(source.topic, source.partition): spec for source in sources}
        deadline_s = time.monotonic() + _ELECTION_S
        while specs:
            try:
                return self._listed(specs)
            except KafkaException as error:
                is_leaderless = error.args[0].code() in _LEADERLESS
                if not is_leaderless or time.monotonic() > deadline_s:
                    raise
            time.sleep(_PAUSE_S)
        return {}

    def _listed(self, specs: dict[TopicPartition, OffsetSpec]) -> dict[PartitionId, int]:
        with self._admin() as admin:
            answers = admin.list_offsets(specs, request_timeout=REQUEST_TIMEOUT_S)
            return {
                PartitionId(partition.topic, partition.partition): answered(future).offset
                for partition, future in answers.items()
            }


def new_topics(topics: Iterable[TopicSpec]) -> list[NewTopic]:
    """Convert topics to the admin client's type; of several with one name the first counts.

    The client crashes with a name that is there twice.
    """
    first = {topic.name: topic for topic in reversed(list(topics))}
    return [
        NewTopic(
            topic.name,
            num_partitions=topic.partitions,
            replication_factor=topic.replication,
            config=dict(topic.settings),
        )
        for topic in first.values()
    ]


def hidden_error(topics: Iterable[str]) -> KafkaError:
    """Return the broker's error for topics that we may not describe, with their names."""
    sentence = f"DESCRIBE and DESCRIBE_CONFIGS are not granted on {', '.join(sorted(topics))}"
    return KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED, sentence)


def _split(answers: "Mapping[str, Future[Any]]") -> tuple[dict[str, Any], set[str]]:
    """Return the answers for topics that exist, and the names of those that are denied to us."""
    found, denied = dict[str, Any](), set[str]()
    for name, future in answers.items():
        try:
            found[name] = answered(future)
        except KafkaException as error:
            if error.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                denied.add(name)
            elif error.args[0].code() not in ABSENT:
                raise
    return found, denied


def _is_granted(described: TopicDescription, operation: AclOperation) -> bool:
    """Whether we have a right, as far as the broker reports any."""
    return not described.authorized_operations or operation in described.authorized_operations


def _log_refusal(future: "Future[Any]") -> None:
    error = future.exception()
    if error is not None:
        _log.warning("records_not_deleted", error=str(error))


def answered(future: "Future[T]") -> T:
    """Wait for the cluster's answer; raise KafkaException if it is an error, or does not come."""
    try:
        error = future.exception(REQUEST_TIMEOUT_S + _GRACE_S)
    except TimeoutError:
        silent = KafkaError(KafkaError._TIMED_OUT, "no answer in time")  # noqa: SLF001 - its name
        raise KafkaException(silent) from None
    if isinstance(error, KafkaException):
        # A new exception: the traceback of the future's own would keep the future and the client.
        raise KafkaException(*error.args)
    return future.result()


def finds_a_broker(client: Consumer, topic: str) -> bool:
    """Whether any broker answers this client, asked for a topic's metadata; takes up to 2 s."""
    try:
        client.list_topics(topic, timeout=_ANSWER_S)
    except KafkaException:
        return False
    return True
