"""Active settings: the configuration that a loop decides by, and how it changes.

It holds the effective settings, the topics that they name, and the decision rules derived from
both. All three change together, between two batches and nowhere else. A document that the topics
contradict changes none of them: the previous settings stay, and the error is reported.
"""

from dataclasses import replace
from typing import Final

from ringfence_service.clock import Clock
from ringfence_service.config.addresses import is_elsewhere, settings_of
from ringfence_service.config.model import Config
from ringfence_service.dedup.checks import DecisionContext
from ringfence_service.dedup.output import OutputResolver
from ringfence_service.dedup.partition import OwnedPartition
from ringfence_service.dedup.poison_records import PoisonRecords
from ringfence_service.dedup.route import Find, finder
from ringfence_service.errors import ExitError
from ringfence_service.kafka.clients import Clients
from ringfence_service.kafka.compression import Compression
from ringfence_service.kafka.errors import OUTDATED
from ringfence_service.kafka.topics import OutputTopics, RepartitionTopic, by_address, fallback
from ringfence_service.metadata.image import MetadataImage
from ringfence_service.metadata.layout import Topology, as_started
from ringfence_service.processor.input_topics import InputTopics
from ringfence_service.processor.settings_follower import PendingSettings, SettingsFollower
from ringfence_service.processor.transaction import TransactionAbortedError
from ringfence_state.cache import Cache

_ABSENT_S: Final = 3.0
"""How long a missing topic counts as missing; records that name it are rejected meanwhile."""

_REFUSED_S: Final = 30.0
"""How long the settings of a topic by which records are refused count as unchanged."""


class ActiveSettings:
    """The configuration that the loop decides by: settings, topics and decision rules."""

    def __init__(
        self,
        settings_follower: SettingsFollower,
        clients: Clients,
        clock: Clock,
        cache: Cache,
        poison_records: PoisonRecords,
        compression: Compression,
    ) -> None:
        self.settings_follower = settings_follower
        service, cluster = self.config.service, clients.cluster
        self.inputs = self._first_inputs(clients, clock)
        self._clock = clock
        self._are_targets_stale: bool
        self.targets = OutputTopics(cluster, are_made=service.create_topics)
        self._refresh_targets()
        self.rules = DecisionContext(
            cluster_id=cluster.cluster_id(),
            group_id=service.group_id,
            epochs=settings_follower.settings.sessions.epochs,
            book=self.config.addresses,
            cache=cache,
            output_resolver=OutputResolver(
                targets=self.targets,
                fallback=fallback(service.group_id),
                compression=compression,
                refused=poison_records.by_position,
                undeliverable=poison_records.undeliverable,
                unanswerable=poison_records.unanswerable,
            ),
            input_partitions=self._finder(),
            by_address=RepartitionTopic(
                by_address(service.group_id), service.by_address_partitions
            ),
            batch_bytes_max=service.batch_bytes_max,
        )

    @property
    def config(self) -> Config:
        """The file overlaid with the settings made over REST."""
        return self.settings_follower.effective.config

    @property
    def revision(self) -> int:
        """The revision of the metadata topic by which the loop decides."""
        return self.settings_follower.revision

    @property
    def is_in_doubt(self) -> bool:
        """Whether an input topic may be another one by now."""
        return self.inputs.is_suspect

    def applied_by(self, partition: OwnedPartition) -> int:
        """Return the revision of the settings document that a partition has fully applied."""
        return self.settings_follower.applied_by(partition)

    def layout(self, settings: MetadataImage) -> Topology:
        """Return the topology under the newest document."""
        config = self.settings_follower.config_of(settings.documents.newest)
        return Topology.of(as_started(config, settings.layout), self.inputs.topics)

    def find_inputs(self) -> bool:
        """Refresh the inputs if it is time; return whether they changed."""
        are_new = self.inputs.refresh()
        self._are_targets_stale = self._are_targets_stale or are_new
        return are_new

    def find_targets(self) -> None:
        """Refresh the target topics if they may have changed."""
        asked_s = self._clock.monotonic_s() - self._targets_asked_s
        if asked_s >= _REFUSED_S and self.targets.has_refused:
            self._are_targets_stale = True
        if asked_s >= _ABSENT_S:
            # Missing topics that records still name are asked for again; the others are forgotten.
            self._are_targets_stale = self._are_targets_stale or self.targets.is_missed
            self.targets.forget_absences()
        if self._are_targets_stale:
            self._refresh_targets()

    def _refresh_targets(self) -> None:
        self.targets.refresh(self.inputs.targets())
        self._are_targets_stale = False
        self._targets_asked_s = self._clock.monotonic_s()

    def doubt_targets(self) -> None:
        """Have the target topics refreshed: a missing one may have been created."""
        self._are_targets_stale = True

    def activate(self, pending: PendingSettings) -> bool:
        """Make a settings document effective; return False if the topics contradict it."""
        before = self.config.addresses
        try:
            self.inputs.configure(pending.effective.config)
        except ExitError as error:
            self.settings_follower.refuse(pending.document, error.sentence)
            return False
        self.settings_follower.accept(pending)
        self._are_targets_stale = True
        book = self.config.addresses
        self.rules = replace(self.rules, book=book, input_partitions=self._finder())
        self.rules.cache.dismiss_where(
            lambda cache: is_elsewhere(settings_of(before, cache), settings_of(book, cache))
        )
        return True

    def _first_inputs(self, clients: Clients, clock: Clock) -> InputTopics:
        """Resolve the inputs by the newest document that the topics allow, as at run time."""
        while True:
            try:
                return InputTopics(self.config, clients.cluster, clock, clients.part.hop)
            except ExitError as error:
                if not self.settings_follower.fall_back(error.sentence):
                    raise

    def _finder(self) -> Find:
        """Return the finder of input partitions by the effective routes."""
        group_id = self.config.service.group_id
        return finder(self.config.routes, group_id, lambda: self.inputs.topics, self._doubt)

    def _doubt(self, topic: str) -> None:
        """Raise TransactionAbortedError if another instance may know a route for this topic.

        The instance that repartitioned a record may have newer settings, or a newer file.
        """
        if self.settings_follower.has_more():
            raise TransactionAbortedError(OUTDATED)
        awaited = self.settings_follower.missing_for(topic)
        if awaited is not None:
            cause = f"no route here reads {topic}, and another instance may have one"
            raise TransactionAbortedError(OUTDATED._replace(cause=cause, waits_for=awaited))
