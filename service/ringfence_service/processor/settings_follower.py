"""Settings follower: reads the metadata topic, and says which settings are effective and where.

A document that the topics contradict does not become effective: the previous settings stay, and the
reason is kept. Invariant: settings change between two batches and nowhere else.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from ringfence_service.clock import Clock
from ringfence_service.config.addresses import settings_of
from ringfence_service.config.model import Config
from ringfence_service.dedup.checks import DecisionContext
from ringfence_service.dedup.decider import apply_settings
from ringfence_service.dedup.partition import OwnedPartition, TakeoverFacts
from ringfence_service.dedup.plan import Output, Plan
from ringfence_service.kafka.clients import Clients
from ringfence_service.kafka.topics import config_topic
from ringfence_service.metadata.image import MetadataImage
from ringfence_service.metadata.layout import as_started
from ringfence_service.metadata.overlay import (
    EffectiveSettings,
    apply_overlay,
    effective_settings,
    evaluate,
    is_file_managed,
)
from ringfence_service.metadata.settings import SettingsRevision
from ringfence_service.metadata.topic import MetadataReader
from ringfence_state.model import PartitionId

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
