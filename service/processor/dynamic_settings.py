"""Dynamic settings: the configuration that a loop decides by, and how it changes.

It holds the effective settings, the topics that they name, and the decision rules derived from
both. All three change together, between two batches and nowhere else. A document that the topics
contradict changes none of them: the previous settings stay, and the error is reported.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from confluent_kafka import TopicPartition

from service.clock import Clock
from service.config.addresses import is_elsewhere, settings_of
from service.config.load import Config
from service.dedup.checks import DecisionContext
from service.dedup.decider import apply_settings
from service.dedup.output import OutputResolver
from service.dedup.partition import OwnedPartition, TakeoverFacts
from service.dedup.plan import Output, Plan
from service.dedup.poison_records import PoisonRecords
from service.dedup.route import Find, finder
from service.errors import ExitError
from service.kafka.clients import Clients
from service.kafka.compression import Compression
from service.kafka.errors import DOUBTED, OUTDATED
from service.kafka.topics import OutputTopics, RepartitionTopic, by_address, config_topic, fallback
from service.metadata.image import MetadataImage
from service.metadata.layout import Topology, as_started
from service.metadata.settings import (
    EffectiveSettings,
    SettingsRevision,
    apply_overlay,
    effective_settings,
    evaluate,
    is_file_managed,
)
from service.metadata.topic import MetadataReader
from service.processor.input_topics import InputTopics
from service.processor.transaction import TransactionAbortedError
from state.cache import Cache
from state.model import PartitionId
from state.offset_metadata import OffsetMetadata, encode
from state.segment import FORMAT

PIECE_CACHES_MAX: Final = 256
"""Maximum number of caches that one transaction brings in line with new settings."""


class PendingSettings(NamedTuple):
    """A document that is to become effective."""

    document: SettingsRevision
    effective: EffectiveSettings


class _UnappliedCaches(NamedTuple):
    """Caches that a change of documents still has to be applied to, since one takeover."""

    facts: TakeoverFacts | None
    applied: int
    document: int
    caches: list[str]


class SettingsFollower:
    """Follows the metadata topic; holds the effective settings and which caches lack them."""

    def __init__(self, file: Config, clients: Clients, clock: Clock) -> None:
        self._file = file
        self._considered: int
        self._unapplied: dict[PartitionId, _UnappliedCaches] = {}
        self.revision: int
        """The revision of the metadata topic by which the loop decides."""
        self.document: int
        """The revision of the effective document; 0 while only the file applies."""
        self.effective: EffectiveSettings
        self.fault: str | None = None
        """Why the newest document cannot become effective here."""
        self.follower = MetadataReader(clients, config_topic(file.service.group_id), clock)
        try:
            self.follower.catch_up()
        except BaseException:
            self.follower.close()
            raise
        self._begin()

    @property
    def settings(self) -> MetadataImage:
        """The metadata, as far as the topic was read."""
        return self.follower.settings

    def poll(self, running: Iterable[OwnedPartition]) -> None:
        """Read new records; read to the end if a partition has a newer revision than we."""
        settings = self.settings
        self.follower.poll()
        if any(partition.revision > settings.revision for partition in running):
            self.follower.catch_up()
            for partition in running:  # lower than before: the topic was created again
                partition.revision = min(partition.revision, settings.revision)

    def has_more(self) -> bool:
        """Read to the end; return whether there are records that are not effective yet."""
        self.follower.catch_up()
        return self.settings.revision != self.revision

    def missing_for(self, topic: str) -> str | None:
        """Return what this process lacks to conclude that no route reads an input, as a sentence.

        None if all settings are effective, and no instance with a newer file reads the input.
        """
        if self.fault is not None:
            return f"settings that may have a route for {topic}: {self.fault}"
        document, instance = self.settings.documents.at(self.document), self._file.service.instance
        replaced = document.overlay.routes if document and document.overlay else {}
        newer = self.settings.file_routes.newer(instance, topic, replaced)
        if newer is None:
            return None
        return (
            f"a newer file: that of instance {newer} has a route for {topic}, and the file of "
            f"instance {instance} has none; replace this instance too, or add the route to its file"
        )

    def pending(self) -> PendingSettings | None:
        """Return a new document that can become effective; refuse one that cannot."""
        newest = self.settings.documents.newest
        if newest is None or newest.revision == self._considered or is_file_managed(self._file):
            return None
        effective, fault = evaluate(self._file, newest)
        if fault is not None:
            self.refuse(newest, fault)
            return None
        return PendingSettings(newest, self._as_started(effective))

    def config_of(self, document: SettingsRevision | None) -> Config:
        """Return the configuration with a document; the effective one if it is invalid."""
        if document is None or is_file_managed(self._file):
            return self._file
        effective, fault = evaluate(self._file, document)
        return (self.effective if fault else effective).config

    def _as_started(self, effective: EffectiveSettings) -> EffectiveSettings:
        """Return settings in which routes that have started keep the meaning of their templates."""
        return effective._replace(config=as_started(effective.config, self.settings.layout))

    def accept(self, pending: PendingSettings) -> None:
        """Make a document effective."""
        self._considered = self.document = pending.document.revision
        self.effective, self.fault = pending.effective, None

    def refuse(self, document: SettingsRevision, sentence: str) -> None:
        """Record why a document is not effective here; the previous settings stay."""
        self._considered = document.revision
        self.fault = f"the settings of revision {document.revision} do not hold here: {sentence}"

    def fall_back(self, sentence: str) -> bool:
        """Make an older document effective, since the topics contradict the current one.

        Returns False if the file alone applies: there is nothing older.
        """
        documents = self.settings.documents
        document = documents.at(self.document)
        if document is None:
            return False
        if self.fault is None:
            self.refuse(document, sentence)
        older = [each for each in documents if each.number < document.number]
        effective, self.document = effective_settings(self._file, older)
        self.effective = self._as_started(effective)
        return True

    def mark_current(self) -> None:
        """Note that all metadata read so far is effective, or refused."""
        self.revision = self.settings.revision

    def is_late(self, partition: OwnedPartition) -> bool:
        """Whether the metadata of its committed offset is behind the effective settings."""
        is_behind = partition.revision < self.revision
        return is_behind or self.applied_by(partition) != partition.applied

    def applied_by(self, partition: OwnedPartition) -> int:
        """Return the revision of the document that a partition has fully applied."""
        return partition.applied if self.unapplied_caches(partition) else self.document

    def unapplied_caches(self, partition: OwnedPartition) -> list[str]:
        """Return the live list of caches that the effective document is not applied to yet."""
        if partition.applied == self.document:
            return []
        steps = (partition.facts, partition.applied, self.document)
        known = self._unapplied.get(partition.source)
        if known is None or known[0] is not steps[0] or known[1:3] != steps[1:]:
            known = self._unapplied[partition.source] = _UnappliedCaches(
                *steps, self._changed(partition)
            )
        return known.caches

    def apply_to(
        self, partition: OwnedPartition, rules: DecisionContext, plan: Plan
    ) -> Iterator[Sequence[Output]]:
        """Fill the plan with the new settings' changes to up to `PIECE_CACHES_MAX` caches.

        They are of one partition, so that all of them are loaded before the transaction begins.
        """
        return apply_settings(
            partition, self.unapplied_caches(partition)[:PIECE_CACHES_MAX], rules, plan
        )

    def mark_applied(self, partition: OwnedPartition) -> None:
        """Remove the caches of the last `apply_to` from the list: its transaction is committed."""
        del self.unapplied_caches(partition)[:PIECE_CACHES_MAX]

    def applied(self, running: Iterable[OwnedPartition]) -> int:
        """Return the oldest document revision that a partition of this process has applied."""
        deciding = [each.applied for each in running if each.changelog is not None]
        return min([self.document, *deciding])

    def close(self) -> None:
        """Close the consumer."""
        self.follower.close()

    def _begin(self) -> None:
        """Start with the newest valid document; `fault` is that of the newest of all."""
        documents = self.settings.documents
        effective, self.document = effective_settings(self._file, documents)
        self.effective = self._as_started(effective)
        newest = documents.newest
        if newest and newest.revision != self.document and not is_file_managed(self._file):
            self.refuse(newest, evaluate(self._file, newest)[1] or "")
        self._considered, self.revision = documents.revision, self.settings.revision

    def _changed(self, partition: OwnedPartition) -> list[str]:
        """Return the caches whose settings differ from those that were last applied to them."""
        base = self.settings.documents.overlay_at(partition.applied)
        held = sorted(partition.addresses)
        if base is None:
            return held
        before = apply_overlay(self._file, base)[0].config.addresses
        now = self.effective.config.addresses
        return [cache for cache in held if settings_of(before, cache) != settings_of(now, cache)]


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


def offset_to_commit(
    partition: OwnedPartition,
    offset: int,
    changelog_next: Mapping[PartitionId, int],
    plan: Plan,
    settings_follower: SettingsFollower,
) -> TopicPartition:
    """Return the offset to commit, with the metadata that a takeover checks.

    A plan that clears only a part of the state gets no metadata, see `clear_plans`. Where the next
    offset of the changelog is not known yet, the records most likely follow those of the
    transaction before, and its marker.
    """
    facts, source = partition.facts, partition.source
    assert facts is not None  # it is RUNNING
    log, log_next = partition.changelog, partition.changelog_next
    if log is not None and log in changelog_next:
        log_next = changelog_next[log]
        _check_changelog(partition, log_next - len(plan.edits[log]))
    elif log is not None and plan.edits.get(log):
        log_next += 1 + len(plan.edits[log])
    if plan.is_partial:
        return TopicPartition(source.topic, source.partition, offset)
    metadata = OffsetMetadata(
        last_offset=log_next - 1,
        format=FORMAT,
        input_topic_id=facts.identity.input_topic_id,
        changelog_topic_id=facts.identity.changelog_topic_id,
        time_ms=plan.times_ms.get(source, partition.time_ms),
        revision=settings_follower.revision,
        changelog_start=facts.changelog.start,
        applied=settings_follower.applied_by(partition),
    )
    return TopicPartition(source.topic, source.partition, offset, encode(metadata))


def _check_changelog(partition: OwnedPartition, first: int) -> None:
    """Check that new changelog records follow the earlier ones, else abort and note the offset.

    If they do not, the changelog is another topic by now, which its id shows, or was truncated.
    """
    if first < partition.changelog_next:
        partition.written_at = first
        raise TransactionAbortedError(DOUBTED)
