"""Coordinator topics: whether the brokers can create and write what their coordinators need.

A broker creates `__consumer_offsets` and `__transaction_state` when a client first needs them, with
a replication factor of its own configuration. It does not report to the client that it cannot.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from ringfence_service.errors import ConfigIssue
from ringfence_service.formatting import plural
from ringfence_service.kafka.admin import ABSENT, REQUEST_TIMEOUT_S, answered

OFFSETS: Final = "__consumer_offsets"
TRANSACTIONS: Final = "__transaction_state"
_MIN_ISR: Final = "min.insync.replicas"
_SETTINGS: Final[Mapping[str, tuple[str, str, str]]] = {
    OFFSETS: ("offsets.topic.replication.factor", _MIN_ISR, "no consumer group works"),
    TRANSACTIONS: (
        "transaction.state.log.replication.factor",
        "transaction.state.log.min.isr",
        "no transaction begins",
    ),
}
"""By topic: the brokers' settings of its replicas and of those in sync, and what fails else."""


class CoordinatorTopic(NamedTuple):
    """What decides whether the brokers can keep one of these topics."""

    name: str
    exists: bool
    replicas: int
    """Replicas that it has, or those that it would be created with."""
    min_isr: int
    """How many replicas have to be in sync for a write."""
    brokers: int
    """Brokers that the cluster has now."""

    def problems(self) -> Iterator[ConfigIssue]:
        """Yield what keeps the brokers from creating or writing it."""
        factor, min_isr, fails = _SETTINGS[self.name]
        if not self.exists and self.replicas > self.brokers:
            yield ConfigIssue(
                f"{factor} of the brokers is {self.replicas}, and the cluster has "
                f"{plural(self.brokers, 'broker')}: {self.name} cannot be created, and {fails}",
                f"set {factor} to at most {self.brokers} on the brokers and restart them, or start "
                "more brokers",
            )
        elif self.min_isr > self.replicas:
            one = f"set {min_isr} to at most {self.replicas} on the brokers and restart them"
            own = f"set {_MIN_ISR} of the topic {self.name} to at most {self.replicas}"
            yield ConfigIssue(
                f"{self.name} has {plural(self.replicas, 'replica')}, and {self.min_isr} have to "
                f"be in sync: the brokers cannot write it, and {fails}",
                own if self.exists else one,
            )


def coordinator_topics(admin: AdminClient, names: Sequence[str]) -> list[CoordinatorTopic]:
    """Return the named topics, without those whose settings we may not read.

    KafkaException if the brokers do not answer.
    """
    brokers = answered(admin.describe_cluster(request_timeout=REQUEST_TIMEOUT_S)).nodes
    settings = _settings(admin, ConfigResource(ResourceType.BROKER, str(brokers[0].id)))
    described = admin.describe_topics(
        TopicCollection(list(names)), request_timeout=REQUEST_TIMEOUT_S
    )
    found = []
    for name, future in described.items():
        factor, min_isr, _ = _SETTINGS[name]
        try:
            partitions = answered(future).partitions
        except KafkaException as error:
            if error.args[0].code() not in ABSENT:
                continue  # it is kept from us, whether it exists or not
            exists, replicas, least = False, settings.get(factor), settings.get(min_isr)
        else:
            own = _settings(admin, ConfigResource(ResourceType.TOPIC, name))
            exists, least = True, own.get(_MIN_ISR)
            replicas = min((len(each.replicas) for each in partitions), default=None)
        if replicas is not None:
            known = CoordinatorTopic(name, exists, int(replicas), int(least or 1), len(brokers))
            found.append(known)
    return found


def _settings(admin: AdminClient, resource: ConfigResource) -> dict[str, Any]:
    """Return the settings of a broker or a topic; none if we may not read them."""
    described = admin.describe_configs([resource], request_timeout=REQUEST_TIMEOUT_S)[resource]
    try:
        entries = answered(described)
    except KafkaException as error:
        if error.args[0].code() == KafkaError._TIMED_OUT:  # noqa: SLF001 - the binding's name
            raise
        return {}
    return {name: entry.value for name, entry in entries.items() if entry.value is not None}
