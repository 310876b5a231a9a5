"""ACLs: the operations that the broker permits, and the required ones that it does not.

A broker without an authorizer permits all operations; one that is too old to report them has
`None`.
"""

import time
from collections import ChainMap
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future
from typing import Any, Final, Protocol

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from service.config.kafka_properties import Property
from service.errors import ConfigIssue
from service.kafka.admin import ABSENT, REQUEST_TIMEOUT_S, TopicSpec, answered, new_topics

Granted = frozenset[str] | None
"""Operations as Kafka names them; None where they are not told."""

LOOKING: Final = frozenset({"DESCRIBE", "DESCRIBE_CONFIGS"})
"""What it takes to be told what a topic is."""
READING: Final = LOOKING | {"READ"}
WRITING: Final = LOOKING | {"WRITE"}

_REFUSED: Final = frozenset(
    {
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    }
)
_COMING: Final = frozenset(
    {
        KafkaError.NOT_COORDINATOR,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    }
)
_COORDINATOR_S: Final = 15.0
_PAUSE_S: Final = 0.5
_TRANSACTION_MAX: Final = "transaction.max.timeout.ms"


class AclQueries(Protocol):
    """Questions that change nothing. Each raises KafkaException when it is not answered."""

    def of_topics(self, names: Iterable[str]) -> dict[str, Granted]:
        """What we may do with those of the named topics that exist, or may not be seen."""
        ...

    def of_groups(self, group_ids: Iterable[str]) -> dict[str, Granted]:
        """What we may do with consumer groups."""
        ...

    def unmakeable(self, topics: Iterable[TopicSpec]) -> dict[str, KafkaError]:
        """Those of the new topics that the broker would not make."""
        ...

    def transaction_max_ms(self) -> int | None:
        """The longest transaction that a producer may ask for; None where it is not told."""
        ...


class KafkaAclQueries:
    """See `AclQueries`. Keeps the admin client: its answers never come once it is collected."""

    def __init__(self, admin: AdminClient) -> None:
        self._admin = admin

    def of_topics(self, names: Iterable[str]) -> dict[str, Granted]:
        """See `AclQueries.of_topics`."""
        wanted = sorted(set(names))
        if not wanted:
            return {}
        described = self._admin.describe_topics(
            TopicCollection(wanted),
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
        """See `AclQueries.of_groups`; a broker that never had a group makes itself ready first."""
        wanted, deadline_s = sorted(set(group_ids)), time.monotonic() + _COORDINATOR_S
        while True:
            try:
                return self._of_groups(wanted)
            except KafkaException as error:
                is_coming = error.args[0].code() in _COMING
                if not is_coming or time.monotonic() > deadline_s:
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
        """See `AclQueries.unmakeable`."""
        new = new_topics(topics)
        if not new:
            return {}
        tried = self._admin.create_topics(
            new, validate_only=True, request_timeout=REQUEST_TIMEOUT_S
        )
        refused = {}
        for name, future in tried.items():
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
        """See `AclQueries.transaction_max_ms`."""
        description = answered(self._admin.describe_cluster(request_timeout=REQUEST_TIMEOUT_S))
        resource = ConfigResource(ResourceType.BROKER, str(description.nodes[0].id))
        asked = self._admin.describe_configs([resource], request_timeout=REQUEST_TIMEOUT_S)
        try:
            settings = answered(asked[resource])
        except KafkaException as error:
            if error.args[0].code() in _REFUSED:
                return None
            raise
        entry = settings.get(_TRANSACTION_MAX)
        return None if entry is None or entry.value is None else int(entry.value)


def ungranted(
    kind: str, needs: Mapping[str, Iterable[str]], granted: Mapping[str, Granted], user: str
) -> Iterator[ConfigIssue]:
    """Yield a problem for each operation that is needed of a resource, and not granted."""
    for name in sorted(needs.keys() & granted.keys()):
        has = granted[name]
        for operation in sorted(needs[name]) if has is not None else ():
            if operation not in (has or ()):
                yield _not_granted(operation, kind, name, user)


def not_makeable(refused: Mapping[str, KafkaError], user: str) -> Iterator[ConfigIssue]:
    """Yield a problem for each topic that has to be made, and would not be."""
    for name, fault in sorted(refused.items()):
        if fault.code() in _REFUSED:
            yield _not_granted("CREATE", "topic", name, user)
        else:
            what = f'the topic "{name}" cannot be made ({fault.name()}: {fault.str()})'
            yield ConfigIssue(what, "change what the broker objects to, or make the topic by hand")


def unseen(granted: Mapping[str, Granted]) -> frozenset[str]:
    """Topics of which we may not ask what they are."""
    return frozenset(name for name, has in granted.items() if has is not None and LOOKING - has)


def user_of(*layers: Mapping[str, Property]) -> str:
    """To whom a right has to be granted, for a sentence; the last of the properties go first."""
    name = ChainMap(*map(dict, reversed(layers))).get("sasl.username")
    return "the user that the service connects as" if name is None else f"User:{name}"


def _not_granted(operation: str, kind: str, name: str, user: str) -> ConfigIssue:
    what = f'{operation} on the {kind} "{name}" is not granted'
    return ConfigIssue(what, f"grant {operation} on {kind} {name} to {user}")


def _granted(described: "Future[Any]") -> Granted:
    """What the answer about a topic or a group tells; nothing, of one that may not be described."""
    try:
        operations = answered(described).authorized_operations
    except KafkaException as error:
        if error.args[0].code() in _REFUSED:
            return frozenset()
        raise
    if operations is None:
        return None
    return frozenset(each.name for each in operations)
