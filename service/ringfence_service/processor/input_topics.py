"""Input topics: the topics to read, refreshed from time to time, and the internal topics they need.

Also purges decided records from the topic by-address.
"""

from collections.abc import Iterable, Mapping
from typing import Final

import structlog
from confluent_kafka import KafkaException

from ringfence_service.clock import Clock
from ringfence_service.config.model import Config, ServiceSettings
from ringfence_service.config.tasks import Hop
from ringfence_service.dedup.route import (
    InputRoute,
    InputTopic,
    decides_by_address,
    input_topics_of,
    missing_inputs,
    resolve,
    written_topics,
)
from ringfence_service.errors import ExitCode, ExitError
from ringfence_service.kafka.admin import SILENT
from ringfence_service.kafka.model import ClusterAdmin, TopicInfo, TopicSpec
from ringfence_service.kafka.topics import (
    BY_ADDRESS,
    RECORD_BYTES_DEFAULT,
    as_settings,
    by_address,
    changelog,
    config_topic,
    fallback,
    limits_to_raise,
    neighbours,
    new_acknowledgements,
    new_by_address,
    new_changelog,
    new_config_topic,
    new_dead_letters,
    new_target,
)

_logger = structlog.stdlib.get_logger(__name__)

_REFRESH_S: Final = 30.0
"""How often the topics and their ids are refreshed; a new topic of an expression waits for it.

The loop waits for the answers of the broker, so more often would delay records. After an error that
puts a topic in doubt, the loop asks at once (`suspect`).
"""

_MISSING_REFRESH_S: Final = 3.0
"""The same while a named input does not exist: it is read within seconds of its creation."""


def internal_topics(
    config: Config, routes: Mapping[str, InputRoute], topics: Mapping[str, TopicInfo]
) -> list[TopicSpec]:
    """Return the internal topics that the existing inputs require."""
    service = config.service
    group, replication = service.group_id, service.internal_replication
    expected = [
        new_dead_letters(fallback(group), replication),
        new_config_topic(group, replication),
    ]
    if config.addresses.covers:
        expected.append(new_acknowledgements(group, replication))
    decided = [name for name in topics if _log(group, routes[name]) is not None]
    for name in decided:
        count, largest = topics[name].partitions, topics[name].record_bytes_max
        expected.append(new_changelog(group, name, count, largest, replication))
    if decides_by_address(config):
        carried = [topics[name].record_bytes_max for name in topics.keys() - set(decided)]
        count, largest = service.by_address_partitions, max(carried, default=RECORD_BYTES_DEFAULT)
        time_limits = set[str]().union(*(each.time_limits for each in topics.values()))
        expected.append(new_by_address(group, count, largest, replication, sorted(time_limits)))
        expected.append(new_changelog(group, BY_ADDRESS, count, largest, replication))
    return expected


def target_topics(
    config: Config, routes: Mapping[str, InputRoute], topics: Mapping[str, TopicInfo]
) -> list[TopicSpec]:
    """Return the targets of the existing inputs as the service creates them where it has to."""
    readers: dict[str, list[InputRoute]] = {}
    for name in topics:
        for target in sorted(routes[name].targets()):
            readers.setdefault(target, []).append(routes[name])
    return [
        new_target(
            target,
            [topics[route.topic] for route in found],
            config.service.internal_replication,
            is_output=all(route.takes_accepted_only(target) for route in found),
        )
        for target, found in readers.items()
    ]


def make_config_topic(service: ServiceSettings, cluster: ClusterAdmin) -> None:
    """Create the metadata topic, which is read before other topics are known to be needed.

    Raises ExitError at the first start of a group whose topics can be those of another group.
    """
    name = config_topic(service.group_id)
    if name not in cluster.topics([name]):
        for problem in neighbours(service.group_id, cluster.names()).problems:
            raise ExitError(ExitCode.CONTRADICTION, str(problem))
        cluster.create([new_config_topic(service.group_id, service.internal_replication)])


class InputTopics:
    """The inputs of all routes, and the topics that one hop reads."""

    def __init__(self, config: Config, cluster: ClusterAdmin, clock: Clock, hop: Hop) -> None:
        self._config = config
        self._cluster = cluster
        self._clock = clock
        self._hop = hop
        self._asked_s = clock.monotonic_s()
        self.missing: tuple[str, ...] = ()
        """Inputs that the configuration names and that do not exist, or may not be read."""
        self.routes: Mapping[str, InputRoute]
        self.topics: Mapping[str, TopicInfo]
        self.input_topics: Mapping[str, InputTopic]
        self._own: Mapping[str, str]
        """Internal topics and their ids."""
        self._not_raised: dict[str, Mapping[str, int]] = {}
        """The limits that the broker refused to set, by topic: tried and logged once."""
        self._resolve()

    def refresh(self) -> bool:
        """Ask the cluster again if it is time; return whether topics have changed."""
        every_s = _MISSING_REFRESH_S if self.missing else _REFRESH_S
        if self._clock.monotonic_s() - self._asked_s < every_s:
            return False
        before = self.topics, self._own
        self._resolve()
        self._asked_s = self._clock.monotonic_s()
        return (self.topics, self._own) != before

    def configure(self, config: Config) -> None:
        """Switch to other routes; an exception leaves everything unchanged."""
        before, self._config = self._config, config
        try:
            self._resolve()
        except BaseException:
            self._config = before
            raise
        self._asked_s = self._clock.monotonic_s()

    def suspect(self) -> None:
        """Make the next `refresh` ask at once: the broker may be gone, or a topic replaced."""
        self._asked_s = float("-inf")

    @property
    def is_suspect(self) -> bool:
        """Whether `suspect` was called and nothing was refreshed since."""
        return self._asked_s == float("-inf")

    def targets(self) -> set[str]:
        """Return every topic that we may write: those of the routes, and the internal ones."""
        return written_topics(self.routes) | self._own.keys()

    def _resolve(self) -> None:
        service = self._config.service
        names = self._cluster.names()
        routes = resolve(self._config.routes, names, service.group_id)
        topics, denied = self._cluster.visible(routes)
        if self._hop is Hop.INPUTS:
            denied = denied.union(name for name, has in topics.items() if not has.is_readable)
        if denied:
            names -= denied
            routes = {name: each for name, each in routes.items() if name not in denied}
            topics = {name: each for name, each in topics.items() if name not in denied}
        own = self._make_logs(routes, topics)
        self.routes, self.topics, self._own = routes, topics, own  # all or nothing
        self.input_topics = input_topics_of(service, self._hop, routes, topics, self._own)
        if self._hop is Hop.INPUTS:
            self.missing = tuple(missing_inputs(self._config.routes, names))

    def _make_logs(
        self, routes: Mapping[str, InputRoute], topics: Mapping[str, TopicInfo]
    ) -> dict[str, str]:
        """Create missing topics and grow changelogs; return the internal topics and their ids."""
        service = self._config.service
        decided = {name: log for name in topics if (log := _log(service.group_id, routes[name]))}
        self._check_own_log(decided, routes)
        expected = internal_topics(self._config, routes, topics)
        existing = self._cluster.topics(topic.name for topic in expected)
        missing = [topic for topic in expected if topic.name not in existing]
        created = {topic.name for topic in missing}
        if service.create_topics:
            missing += self._outputs(routes, topics)
        self._cluster.create(missing)
        existing |= self._cluster.topics(created)
        self._raise_limits(expected, topics, existing)
        self._check_by_address(existing.get(by_address(service.group_id)))
        for name, log in decided.items():
            if log in existing and existing[log].partitions < topics[name].partitions:
                self._grow(log, routes[name], existing[log].partitions, topics[name].partitions)
        # A topic that was just created may not be described yet: the next refresh gets its id.
        ids = {name: topic.topic_id for name, topic in existing.items()}
        return {topic.name: ids.get(topic.name, "") for topic in expected}

    def _raise_limits(
        self,
        expected: Iterable[TopicSpec],
        topics: Mapping[str, TopicInfo],
        existing: Mapping[str, TopicInfo],
    ) -> None:
        """Raise the limits of internal topics to those of their inputs.

        Where the broker refuses it, the records beyond them are dead-lettered.
        """
        group_id = self._config.service.group_id
        for name, needs in limits_to_raise(group_id, expected, topics, existing).items():
            if self._not_raised.get(name) == needs:
                continue
            try:
                self._cluster.raise_limits(name, needs)
            except KafkaException as error:
                if error.args[0].code() in SILENT:
                    raise
                self._not_raised[name] = needs
                _logger.warning(
                    "limit_not_raised",
                    topic=name,
                    has={setting: existing[name].limit(setting) for setting in needs},
                    fix=f"set its {as_settings(needs)}, or grant ALTER_CONFIGS on it",
                    error=str(error),
                )

    def _check_own_log(self, decided: Mapping[str, str], routes: Mapping[str, InputRoute]) -> None:
        if decides_by_address(self._config) and BY_ADDRESS in decided:
            sentence = (
                f'The input {BY_ADDRESS} of route "{routes[BY_ADDRESS].settings.name}" would share '
                f"the changelog {decided[BY_ADDRESS]} with all routes of scope address; "
                "read it with a service.group_id of its own."
            )
            raise ExitError(ExitCode.CONTRADICTION, sentence)

    def _check_by_address(self, topic: TopicInfo | None) -> None:
        count = self._config.service.by_address_partitions
        if topic is not None and topic.partitions != count:
            sentence = (
                f"{by_address(self._config.service.group_id)} has {topic.partitions} partitions, "
                f"and service.by_address_partitions is {count}; write {topic.partitions}: the "
                "number is fixed once the topic exists. If partitions were added, addresses "
                "have moved: use a new service.group_id."
            )
            raise ExitError(ExitCode.CONTRADICTION, sentence)

    def _outputs(
        self, routes: Mapping[str, InputRoute], topics: Mapping[str, TopicInfo]
    ) -> list[TopicSpec]:
        """Return the missing output, dead-letter and reply topics."""
        existing, hidden = self._cluster.visible(written_topics(routes))
        expected = target_topics(self._config, routes, topics)
        return [each for each in expected if each.name not in existing.keys() | hidden]

    def _grow(self, log: str, route: InputRoute, has: int, needs: int) -> None:
        if route.settings.on_partitions_added == "keep":
            self._cluster.grow(log, needs)
            return
        sentence = (
            f"The input {route.topic} has {needs} partitions, its changelog {log} has {has}; "
            'set on_partitions_added = "keep" for the route if keys may have moved.'
        )
        raise ExitError(ExitCode.CONTRADICTION, sentence)


def _log(group_id: str, route: InputRoute) -> str | None:
    """Return the changelog of an input with scope `partition`, else None."""
    return None if route.settings.is_repartitioned else changelog(group_id, route.topic)
