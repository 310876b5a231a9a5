"""Inputs: which topics are read now, asked again from time to time, and the logs they need."""

from collections.abc import Mapping
from typing import Final

from service.clock import Clock
from service.cluster import Cluster, NewTopicInfo, TopicInfo
from service.config import Config
from service.errors import ExitCode, ExitError
from service.route import InputRoute, missing_inputs, resolve, written_topics
from service.topics import changelog, fallback, new_changelog, new_fallback, new_target

_REFRESH_S: Final = 30.0
_MISSING_REFRESH_S: Final = 3.0


class Inputs:
    """The inputs of all routes, each with its route and its changelog."""

    def __init__(self, config: Config, cluster: Cluster, clock: Clock) -> None:
        self._config = config
        self._cluster = cluster
        self._clock = clock
        self._asked_s = clock.monotonic_s()
        self.missing: tuple[str, ...] = ()
        """Inputs that the configuration names and the broker does not have."""
        self.routes: Mapping[str, InputRoute] = {}
        self.topics: Mapping[str, TopicInfo] = {}
        self._resolve()

    def refresh(self) -> bool:
        """Ask again when it is time; tells whether the answer is new."""
        every_s = _MISSING_REFRESH_S if self.missing else _REFRESH_S
        if self._clock.monotonic_s() - self._asked_s < every_s:
            return False
        before = self.topics
        self._resolve()
        self._asked_s = self._clock.monotonic_s()
        return self.topics != before

    def suspect(self) -> None:
        """Ask again at once: the broker may be gone."""
        self._asked_s = float("-inf")

    def targets(self) -> set[str]:
        """Every topic that the routes may write."""
        return written_topics(self.routes)

    def _resolve(self) -> None:
        service = self._config.service
        names = self._cluster.names()
        routes = resolve(self._config.routes, names, service.group_id)
        topics = self._cluster.topics(routes)
        self._make_logs(routes, topics)
        self.routes, self.topics = routes, topics
        self.missing = tuple(missing_inputs(self._config.routes, names))

    def _make_logs(self, routes: Mapping[str, InputRoute], topics: Mapping[str, TopicInfo]) -> None:
        service = self._config.service
        logs = {changelog(service.group_id, name): name for name in topics}
        there = self._cluster.topics({*logs, fallback(service.group_id)})
        missing = [
            new_changelog(
                service.group_id, name, topics[name].partitions, service.internal_replication
            )
            for log, name in logs.items()
            if log not in there
        ]
        if fallback(service.group_id) not in there:
            missing.append(new_fallback(service.group_id, service.internal_replication))
        if service.create_topics:
            missing += self._outputs(routes, topics)
        self._cluster.create(missing)
        for log, name in logs.items():
            if log in there and there[log].partitions < topics[name].partitions:
                self._grow(log, routes[name], there[log].partitions, topics[name].partitions)

    def _outputs(
        self, routes: Mapping[str, InputRoute], topics: Mapping[str, TopicInfo]
    ) -> list[NewTopicInfo]:
        """Outputs and dead-letter topics that are missing, with as many partitions as the input."""
        there = self._cluster.topics(written_topics(routes))
        wanted = {
            target: topics[name]
            for name, route in routes.items()
            for target in sorted(route.targets() - there.keys())
        }
        replication = self._config.service.internal_replication
        return [new_target(name, input_, replication) for name, input_ in wanted.items()]

    def _grow(self, log: str, route: InputRoute, has: int, needs: int) -> None:
        if route.settings.on_partitions_added == "keep":
            self._cluster.grow(log, needs)
            return
        sentence = (
            f"The input {route.topic} has {needs} partitions, its changelog {log} has {has}; "
            'set on_partitions_added = "keep" for the route if keys may have moved.'
        )
        raise ExitError(ExitCode.CONTRADICTION, sentence)
