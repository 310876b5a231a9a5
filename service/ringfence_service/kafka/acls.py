"""ACLs: the operations that the broker permits, and the required ones that it does not.

A broker without an authorizer permits all operations; for one that is too old to report them the
operations are None.
"""

import time
from collections import ChainMap
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future
from typing import Any, Final, Protocol

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from ringfence_service.config.kafka_properties import Property
from ringfence_service.errors import ConfigIssue
from ringfence_service.kafka.admin import ABSENT, REQUEST_TIMEOUT_S, answered, new_topics
from ringfence_service.kafka.connection_faults import REPLICATION
from ringfence_service.kafka.coordinator_topics import (
    OFFSETS,
    TRANSACTIONS,
    CoordinatorTopic,
    coordinator_topics,
)
from ringfence_service.kafka.model import TopicSpec

Granted = frozenset[str] | None
"""Permitted operations by Kafka's names; None if the broker does not report them."""

LOOKING: Final = frozenset({"DESCRIBE", "DESCRIBE_CONFIGS"})
"""Operations that describing a topic requires."""
READING: Final = LOOKING | {"READ"}
WRITING: Final = LOOKING | {"WRITE"}

_REFUSED: Final = frozenset(
    {
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    }
)
_COORDINATOR_STARTING: Final = frozenset(
    {
        KafkaError.NOT_COORDINATOR,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    }
)
_COORDINATOR_S: Final = 15.0
"""How long `check` waits for the coordinator, which a broker without groups starts first."""
_PAUSE_S: Final = 0.5
"""Pause before the coordinator is asked again: one that starts refuses at once."""
_TRANSACTION_MAX: Final = "transaction.max.timeout.ms"


class AclQueries(Protocol):
    """Read-only queries. Each raises KafkaException if it gets no answer."""

    def of_topics(self, names: Iterable[str]) -> dict[str, Granted]:
        """Return our permitted operations by topic, without topics that do not exist.

        A topic that we may not describe is included, whether it exists or not.
        """
        ...

    def of_groups(self, group_ids: Iterable[str]) -> dict[str, Granted]:
        """Return our permitted operations by consumer group."""
        ...

    def unmakeable(self, topics: Iterable[TopicSpec]) -> dict[str, KafkaError]:
        """Return the error of each topic that the broker would refuse to create."""
        ...

    def transaction_max_ms(self) -> int | None:
        """Return the broker's longest transaction timeout in ms; None if it may not be read."""
        ...

    def coordinator_topics(self) -> list[CoordinatorTopic]:
        """Return the topics of the coordinators, as far as their settings may be read."""
        ...


class KafkaAclQueries:
    """Queries over an admin client, kept here: once it is collected, its answers never arrive."""

    def __init__(self, admin: AdminClient) -> None:
        self._admin = admin

    def of_topics(self, names: Iterable[str]) -> dict[str, Granted]:
        """Return our permitted operations by topic, without topics that do not exist."""
        requested = sorted(set(names))
        if not requested:
            return {}
        described = self._admin.describe_topics(
            TopicCollection(requested),
            include_authorized_operations=True,
            request_timeout=REQUEST_TIMEOUT_S,
        )
        granted: dict[str, Granted] = {}
        for name, future in described.items():
            try:
                granted[name] = _granted(future)
            except KafkaException as error:
                if error.args[0].code() not in ABSENT:
                    raise
        return granted

    def of_groups(self, group_ids: Iterable[str]) -> dict[str, Granted]:
        """Return our permitted operations by consumer group.

        Waits for the group coordinator: a broker that never had a group has to start it first.
        """
        requested, deadline_s = sorted(set(group_ids)), time.monotonic() + _COORDINATOR_S
        while True:
            try:
                return self._of_groups(requested)
            except KafkaException as error:
                is_starting = error.args[0].code() in _COORDINATOR_STARTING
                if not is_starting or time.monotonic() > deadline_s:
                    raise
            time.sleep(_PAUSE_S)

    def _of_groups(self, group_ids: list[str]) -> dict[str, Granted]:
        described = self._admin.describe_consumer_groups(
            group_ids,
            include_authorized_operations=True,
            request_timeout=REQUEST_TIMEOUT_S,
        )
        return {group_id: _granted(future) for group_id, future in described.items()}

    def unmakeable(self, topics: Iterable[TopicSpec]) -> dict[str, KafkaError]:
        """Return the error of each topic that the broker would refuse to create."""
        new = new_topics(topics)
        if not new:
            return {}
        validated = self._admin.create_topics(
            new, validate_only=True, request_timeout=REQUEST_TIMEOUT_S
        )
        refused = {}
        for name, future in validated.items():
            try:
                answered(future)
            except KafkaException as error:
                fault = error.args[0]
                if fault.retriable() or fault.code() == KafkaError._TIMED_OUT:  # noqa: SLF001 - its name
                    raise
                if fault.code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    refused[name] = fault
        return refused

    def transaction_max_ms(self) -> int | None:
        """Return the broker's longest transaction timeout in ms; None if it may not be read."""
        description = answered(self._admin.describe_cluster(request_timeout=REQUEST_TIMEOUT_S))
        resource = ConfigResource(ResourceType.BROKER, str(description.nodes[0].id))
        described = self._admin.describe_configs([resource], request_timeout=REQUEST_TIMEOUT_S)
        try:
            settings = answered(described[resource])
        except KafkaException as error:
            if error.args[0].code() in _REFUSED:
                return None
            raise
        entry = settings.get(_TRANSACTION_MAX)
        return None if entry is None or entry.value is None else int(entry.value)

    def coordinator_topics(self) -> list[CoordinatorTopic]:
        """Return the topics of the coordinators, as far as their settings may be read."""
        return coordinator_topics(self._admin, (OFFSETS, TRANSACTIONS))


def ungranted(
    kind: str, needs: Mapping[str, Iterable[str]], granted: Mapping[str, Granted], user: str
) -> Iterator[ConfigIssue]:
    """Yield a problem for each operation on a resource that is needed but not granted."""
    for name in sorted(needs.keys() & granted.keys()):
        has = granted[name]
        for operation in sorted(needs[name]) if has is not None else ():
            if operation not in (has or ()):
                yield _not_granted(operation, kind, name, user)


def not_makeable(refused: Mapping[str, KafkaError], user: str) -> Iterator[ConfigIssue]:
    """Yield a problem for each topic that has to be created and would be refused."""
    for name, fault in sorted(refused.items()):
        if fault.code() in _REFUSED:
            yield _not_granted("CREATE", "topic", name, user)
        else:
            what = f'the topic "{name}" cannot be created ({fault.name()}: {fault.str()})'
            is_factor = fault.code() == KafkaError.INVALID_REPLICATION_FACTOR
            fix = "change what the broker objects to, or create it yourself"
            yield ConfigIssue(what, REPLICATION.fix if is_factor else fix)


def unseen(granted: Mapping[str, Granted]) -> frozenset[str]:
    """Return the topics that we may not describe."""
    return frozenset(name for name, has in granted.items() if has is not None and LOOKING - has)


def user_of(*layers: Mapping[str, Property]) -> str:
    """Return the Kafka user for a sentence on missing rights; later layers have precedence."""
    name = ChainMap(*map(dict, reversed(layers))).get("sasl.username")
    return "the user that the service connects as" if name is None else f"User:{name}"


def _not_granted(operation: str, kind: str, name: str, user: str) -> ConfigIssue:
    what = f'{operation} on the {kind} "{name}" is not granted'
    return ConfigIssue(what, f"grant {operation} on {kind} {name} to {user}")


def _granted(described: "Future[Any]") -> Granted:
    """Return the operations in a description; none if describing the resource is not permitted."""
    try:
        operations = answered(described).authorized_operations
    except KafkaException as error:
        if error.args[0].code() in _REFUSED:
            return frozenset()
        raise
    if operations is None:
        return None
    return frozenset(each.name for each in operations)
