"""Settings service: makes one change at a time across all instances, and keeps the history.

A change is validated as the file is, against the newest settings, and is written together with the
topology that follows from it, or not at all.
"""

from collections.abc import Callable
from typing import Final

from confluent_kafka import Consumer, KafkaException, TopicPartition

from service.clock import Clock
from service.config.load import Config
from service.config.tasks import Hop, hops_of
from service.dedup.route import input_topics_of, resolve
from service.kafka.clients import Clients
from service.kafka.topics import config_topic
from service.metadata.image import MetadataImage
from service.metadata.layout import Topology, contradiction
from service.metadata.record import MetadataRecord
from service.metadata.settings_change import Change, SettingsChange, SettingsSnapshot, checked
from service.metadata.topic import MetadataWriter
from service.metadata.watcher import MetadataWatcher
from service.queries.errors import NotPossible, Unavailable
from state.offset_metadata import OffsetMetadata, decode

_QUESTION_S: Final = 1.0

_PAUSE_S: Final = 0.02

Has = Callable[[OffsetMetadata], bool]


class RevisionBarrier:
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
    input_topics = input_topics_of(service, clients.part.hop, routes, cluster.topics(routes), {})
    return [
        TopicPartition(name, number)
        for name, reading in input_topics.items()
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


_SEEN_S: Final = 2.0


class SettingsService:
    """See `SettingsDesk`; safe on any thread."""

    def __init__(
        self,
        file: Config,
        clients: Callable[[Hop], Clients],
        metadata_watcher: MetadataWatcher,
        clock: Clock,
    ) -> None:
        self._file = file
        self._clients = clients
        self._metadata_watcher = metadata_watcher
        self._clock = clock
        self._applied = RevisionBarrier(clients, clock)
        self._writer = MetadataWriter(
            lambda: clients(Hop.INPUTS), config_topic(file.service.group_id), clock
        )

    def read(self) -> SettingsSnapshot:
        """See `SettingsDesk.read`."""
        return SettingsSnapshot.of(self._file, self._metadata_watcher.read())

    def config(self) -> Config:
        """The configuration that holds; until the settings are read, that of the file."""
        try:
            return self.read().effective.config
        except Unavailable:
            return self._file

    def try_out(self, change: Change) -> SettingsChange:
        """See `SettingsDesk.try_out`."""
        standing = self.read()
        overlay = change(standing)
        return SettingsChange(standing, overlay, checked(standing, overlay), standing.revision)

    def edit(self, change: Change, *, actor: str, reason: str) -> SettingsChange:
        """See `SettingsDesk.edit`. What changes nothing is not written."""
        made: list[SettingsChange] = []

        def records(settings: MetadataImage) -> list[MetadataRecord]:
            standing = SettingsSnapshot.of(self._file, settings.documents.copy())
            overlay = change(standing)
            effective = checked(standing, overlay)
            made.append(SettingsChange(standing, overlay, effective, standing.revision))
            newest = standing.documents.newest
            if newest is not None and newest.overlay == overlay:
                raise _NoChangeError
            told = settings.documents.records(
                overlay, actor=actor, reason=reason, time_ms=self._clock.wall_ms()
            )
            return [*self._layout(settings, effective.config), *told]

        try:
            revision = self._writer.write(records)
        except _NoChangeError:
            return made[-1]
        except KafkaException as error:
            sentence = (
                f"The broker answered {error.args[0].name()}; look whether the change was made, "
                "and ask again."
            )
            raise Unavailable(sentence) from error
        self._metadata_watcher.wait(revision, _SEEN_S)
        return made[-1]._replace(revision=revision)

    def wait(self, edited: SettingsChange, timeout_s: float) -> bool:
        """See `SettingsDesk.wait`."""
        config, revision = edited.effective.config, edited.revision
        try:
            return not self._applied.wait(config, lambda m: m.applied >= revision, timeout_s)
        except KafkaException:
            return False

    def _layout(self, settings: MetadataImage, config: Config) -> list[MetadataRecord]:
        """The layout with the routes that come, and without those that go, where it is another."""
        cluster, group_id = self._clients(Hop.INPUTS).cluster, config.service.group_id
        inputs = resolve(config.routes, cluster.names(), group_id)
        layout = Topology.of(config, cluster.topics(inputs))
        if settings.layout is None or layout == settings.layout:
            return []
        sentence = contradiction(settings.layout, layout)
        if sentence is not None:
            raise NotPossible(sentence)
        return [layout.record]


class _NoChangeError(Exception):
    """What is to be set is set already."""
