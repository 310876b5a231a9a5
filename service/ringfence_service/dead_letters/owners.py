"""Owners: the dead-letter topics of a group, and the partition that decides each dead letter."""

import re
from collections.abc import Collection, Mapping, Sequence
from time import monotonic
from typing import Final, Literal

from ringfence_client.headers import Reason
from ringfence_service.config.model import Config, RouteSettings
from ringfence_service.dedup.record import RejectedError, name_of
from ringfence_service.dedup.repartition_keys import RepartitionKeys
from ringfence_service.dedup.route import InputPartition, InputRoute, Template, finder, resolve
from ringfence_service.kafka.model import ClusterAdmin, TopicInfo
from ringfence_service.kafka.topics import RepartitionTopic, by_address, fallback
from ringfence_service.queries.dead_letters import DeadLetterView, letter_of
from ringfence_service.schemas.documents import begin_transaction
from ringfence_state.model import PartitionId

Skip = Literal[
    "foreign", "unreadable-headers", "unreadable-batch", "no-route", "no-input", "no-address"
]
_INCOMPLETE: Final[Mapping[str, Skip]] = {
    Reason.UNREADABLE_HEADERS: "unreadable-headers",  # it lacks the original headers
    Reason.UNREADABLE_BATCH: "unreadable-batch",  # it stands for records that nobody has read
}
_ANYTHING: Final = ".+"


def dead_letter_topics(
    routes: Sequence[RouteSettings], names: Collection[str], group_id: str
) -> tuple[str, ...]:
    """Return the group's dead-letter topics among existing topics, sorted.

    A template that depends on the record stands for those allowed outputs that it can produce.
    """
    found = {fallback(group_id)}
    inputs = list(resolve(routes, names, group_id).values())
    inputs += [  # inputs that may be deleted while their dead letters still exist
        InputRoute.bind(route, name)
        for route in routes
        for name in route.inputs
        if not name.startswith("^")
    ]
    for route in inputs:
        pattern = _pattern(route.dead_letter)
        candidates = route.settings.allowed_outputs
        found |= {name for name in candidates if pattern.fullmatch(name)}
        found |= {route.dead_letter.constant} - {None}  # type: ignore[arg-type]  # None is removed
    return tuple(sorted(found & set(names)))


class DeadLetterOwners:
    """Maps a dead letter to the partition that decides it, by the current routes and topics."""

    def __init__(self, config: Config, topics: Mapping[str, TopicInfo]) -> None:
        """`topics` are the inputs that exist."""
        service = config.service
        self._topics = topics
        self._find = finder(config.routes, service.group_id, lambda: topics)
        self._by_address = RepartitionTopic(
            by_address(service.group_id), service.by_address_partitions
        )
        self._book = config.addresses
        self._input_partitions: dict[PartitionId, InputPartition] = {}

    @classmethod
    def now(cls, config: Config, cluster: ClusterAdmin) -> "DeadLetterOwners":
        """Build it with the topics that exist now."""
        routes = resolve(config.routes, cluster.names(), config.service.group_id)
        begin_transaction(monotonic())
        return cls(config, cluster.topics(routes))

    def owner(self, view: DeadLetterView) -> PartitionId | Skip:
        """Return the partition that decides it, or why it cannot be redriven.

        RegistryUnavailableError if its address needs a schema and the registry does not answer.
        """
        letter = letter_of(view)
        if letter is None:
            return "foreign"
        incomplete = _INCOMPLETE.get(view.reason or "")
        if incomplete is not None:
            return incomplete
        input_partition = self._input_partition(letter.source)
        if input_partition.fault is not None:
            return "no-route"
        keys = RepartitionKeys(input_partition, self._book)
        try:
            key = keys.of(letter, letter.headers)
        except RejectedError:
            return "no-address"
        if input_partition.route.settings.is_repartitioned:
            return self._by_address.decider_of(key)
        return letter.source if self._exists(letter.source) else "no-input"

    def _exists(self, source: PartitionId) -> bool:
        info = self._topics.get(source.topic)
        return info is not None and source.partition < info.partitions

    def _input_partition(self, source: PartitionId) -> InputPartition:
        found = self._input_partitions.get(source)
        if found is None:
            found = self._input_partitions[source] = self._find(name_of(source))
        return found


def _pattern(template: Template) -> re.Pattern[str]:
    pieces = (re.escape(each) if isinstance(each, str) else _ANYTHING for each in template.pieces)
    return re.compile("".join(pieces))
