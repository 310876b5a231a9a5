"""Settings service: makes one change at a time across all instances, and keeps the history.

A change is validated like the file, on top of the newest settings. It is written in one transaction
with the topology that follows from it.
"""

from collections.abc import Callable
from typing import Final

from confluent_kafka import Consumer, KafkaException, TopicPartition

from ringfence_service.clock import Clock
from ringfence_service.config.model import Config
from ringfence_service.config.tasks import Hop, hops_of
from ringfence_service.dedup.route import input_topics_of, resolve
from ringfence_service.kafka.clients import Clients
from ringfence_service.kafka.topics import config_topic
from ringfence_service.metadata.image import MetadataImage
from ringfence_service.metadata.layout import Topology, as_started, contradiction
from ringfence_service.metadata.record import MetadataRecord
from ringfence_service.metadata.settings import SettingsHistory
from ringfence_service.metadata.settings_change import (
    Change,
    SettingsChange,
    SettingsSnapshot,
    checked,
)
from ringfence_service.metadata.topic import MetadataWriter, not_written
from ringfence_service.metadata.watcher import MetadataWatcher
from ringfence_service.queries.errors import NotPossible, Unavailable
from ringfence_state.offset_metadata import OffsetMetadata, decode

_QUESTION_S: Final = 1.0
"""How long one request for committed offsets may take, after which all of them count as late.

There is no answer while a transaction is open. The request is repeated until the caller's time is
up, which the last one may exceed by this.
"""

_PAUSE_S: Final = 0.02
"""Pause before the committed offsets are read again: a client waits, and each is a request."""

Has = Callable[[OffsetMetadata], bool]


class RevisionBarrier:
    """Waits until the committed offsets show that a revision is applied. Safe on any thread."""

    def __init__(self, clients: Callable[[Hop], Clients], clock: Clock) -> None:
        self._clients = clients
        self._clock = clock

    def wait(self, config: Config, has: Has, timeout_s: float) -> list[str]:
        """Wait until `has` holds for all deciding partitions; return those for which it does not.

        Their names have the form `topic-partition`.
        """
        deadline_s = self._clock.monotonic_s() + timeout_s
        late: list[str] = []
        for hop in hops_of(route.scope for route in config.routes):
            late += self._wait(hop, config, has, deadline_s)
        return late

    def _wait(self, hop: Hop, config: Config, has: Has, deadline_s: float) -> list[str]:
        clients = self._clients(hop)
        partitions, consumer = _deciding(clients, config), clients.restorer()
        try:
            while late := _late(consumer, partitions, has):
                if self._clock.monotonic_s() > deadline_s:
                    return [f"{each.topic}-{each.partition}" for each in late]
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


def _late(consumer: Consumer, partitions: list[TopicPartition], has: Has) -> list[TopicPartition]:
    """Return the partitions that have not committed it yet."""
    if not partitions:
        return []
    try:
        committed = consumer.committed(partitions, timeout=_QUESTION_S)
    except KafkaException:
        return partitions  # some offsets are in an open transaction, or the broker is busy
    return [each for each in committed if not _has(each, has)]


def _has(committed: TopicPartition, has: Has) -> bool:
    metadata = decode(committed.metadata)
    return metadata is not None and has(metadata)


_SEEN_S: Final = 2.0
"""How long a change waits until this instance has read it, so that the next request sees it.

It is made in any case. More than the watcher's pause after an error.
"""


class SettingsService:
    """Reads and changes the settings, as `SettingsEditor` specifies. Safe on any thread."""

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
        self._newest: SettingsSnapshot | None = None
        """That of the newest document: requests read it far more often than it changes."""

    def read(self) -> SettingsSnapshot:
        """Return the settings; Unavailable while they are not known."""
        return self._snapshot(self._metadata_watcher.read())

    def _snapshot(self, documents: SettingsHistory) -> SettingsSnapshot:
        """Return the snapshot of documents that no longer change, validated once."""
        found = self._newest
        if found is None or found.documents.newest != documents.newest:
            found = self._newest = SettingsSnapshot.of(self._file, documents)
        return found._replace(documents=documents)

    def config(self) -> Config:
        """Return the effective configuration; that of the file until the settings are known."""
        try:
            config = self.read().effective.config
        except Unavailable:
            return self._file
        return as_started(config, self._metadata_watcher.layout)

    def try_out(self, change: Change) -> SettingsChange:
        """Return what a change would do; InvalidSettingsError if it breaks a rule."""
        snapshot = self.read()
        overlay = change(snapshot)
        return SettingsChange(snapshot, overlay, checked(snapshot, overlay), snapshot.revision)

    def edit(self, change: Change, *, actor: str, reason: str) -> SettingsChange:
        """Make a change, unless it changes nothing; InvalidSettingsError, or Unavailable."""
        made: list[SettingsChange] = []

        def records(settings: MetadataImage) -> list[MetadataRecord]:
            snapshot = self._snapshot(settings.documents.copy())
            overlay = change(snapshot)
            effective = checked(snapshot, overlay)
            made.append(SettingsChange(snapshot, overlay, effective, snapshot.revision))
            newest = snapshot.documents.newest
            if newest is not None and newest.overlay == overlay:
                raise _NoChangeError
            documents = settings.documents.records(
                overlay, actor=actor, reason=reason, time_ms=self._clock.wall_ms()
            )
            return [*self._topology(settings, effective.config), *documents]

        try:
            revision = self._writer.write(records)
        except _NoChangeError:
            return made[-1]
        except KafkaException as error:
            again = "check whether the change was made, and try again."
            raise not_written(error, again) from error
        self._metadata_watcher.wait(revision, _SEEN_S)
        return made[-1]._replace(revision=revision)

    def wait(self, edited: SettingsChange, timeout_s: float) -> bool:
        """Return whether all deciding partitions apply a change within the timeout."""
        config, revision = edited.effective.config, edited.revision
        try:
            return not self._applied.wait(config, lambda m: m.applied >= revision, timeout_s)
        except KafkaException:
            return False

    def _topology(self, settings: MetadataImage, config: Config) -> list[MetadataRecord]:
        """Return the topology record of a configuration if it differs from the stored one.

        Raise NotPossible if the configuration contradicts the stored topology.
        """
        cluster, group_id = self._clients(Hop.INPUTS).cluster, config.service.group_id
        inputs = resolve(config.routes, cluster.names(), group_id)
        started = as_started(config, settings.layout)
        topology = Topology.of(started, cluster.topics(inputs))
        if settings.layout is None or topology == settings.layout:
            return []
        issue = contradiction(settings.layout, topology)
        if issue is not None:
            raise NotPossible(str(issue))
        return [topology.record]


class _NoChangeError(Exception):
    """The settings have the requested values already."""
