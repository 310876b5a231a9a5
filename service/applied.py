"""Applied: waits until every deciding partition has committed what was set.

Whoever owns them: the committed offsets tell it.
"""

from collections.abc import Callable
from typing import Final

from confluent_kafka import Consumer, KafkaException, TopicPartition

from service.clock import Clock
from service.config import Config
from service.inputs import readings_of
from service.kafka import Clients
from service.part import Hop, hops_of
from service.route import resolve
from state.changelog import OffsetMetadata, decode

_QUESTION_S: Final = 1.0
_PAUSE_S: Final = 0.02

Has = Callable[[OffsetMetadata], bool]


class Applied:
    """Blocks while it waits; safe on any thread."""

    def __init__(self, clients: Callable[[Hop], Clients], clock: Clock) -> None:
        self._clients = clients
        self._clock = clock

    def wait(self, config: Config, has: Has, timeout_s: float) -> list[str]:
        """Until all deciding partitions of a configuration have it; those that do not by then."""
        deadline_s = self._clock.monotonic_s() + timeout_s
        late: list[str] = []
        for hop in hops_of(route.scope for route in config.routes):
            late += self._wait(hop, config, has, deadline_s)
        return late

    def _wait(self, hop: Hop, config: Config, has: Has, deadline_s: float) -> list[str]:
        clients = self._clients(hop)
        places, consumer = _deciding(clients, config), clients.restorer()
        try:
            while late := _late(consumer, places, has):
                if self._clock.monotonic_s() > deadline_s:
                    return [f"{place.topic}-{place.partition}" for place in late]
                self._clock.sleep(_PAUSE_S)
        finally:
            consumer.close()
        return []


def _deciding(clients: Clients, config: Config) -> list[TopicPartition]:
    service, cluster = config.service, clients.cluster
    routes = resolve(config.routes, cluster.names(), service.group_id)
    readings = readings_of(service, clients.part.hop, routes, cluster.topics(routes), {})
    return [
        TopicPartition(name, number)
        for name, reading in readings.items()
        for number in range(reading.partitions)
        if reading.changelog is not None
    ]


def _late(consumer: Consumer, places: list[TopicPartition], has: Has) -> list[TopicPartition]:
    """The partitions that have not committed it yet."""
    if not places:
        return []
    try:
        committed = consumer.committed(places, timeout=_QUESTION_S)
    except KafkaException:
        return places  # a transaction holds some of the offsets, or the broker is busy
    return [place for place in committed if not _has(place, has)]


def _has(place: TopicPartition, has: Has) -> bool:
    metadata = decode(place.metadata)
    return metadata is not None and has(metadata)
