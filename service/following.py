"""Following: what is set while the service runs, as one loop reads it and brings it into force.

A settings document that cannot hold here changes nothing: what held before goes on, and the fault
is told. A deciding partition has applied a document once all that it implies is committed: the
caches whose settings it changes are looked at, piece by piece, while decisions go by it already.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from service.caches import settings_of
from service.checks import Rules
from service.clock import Clock
from service.config import Config
from service.config_topic import Follower
from service.decide import resettle
from service.kafka import Clients
from service.overlay import Effective, lay_over
from service.partition import Facts, Partition
from service.plan import Output, Plan
from service.revisions import Document, in_force, is_alone, tried
from service.settings import Settings
from service.topics import config_topic
from state.edit import Source

PIECE_CACHES_MAX: Final = 256
"""How many caches one transaction settles."""


class Wanted(NamedTuple):
    """A document that is to come into force."""

    document: Document
    effective: Effective


class _Left(NamedTuple):
    """What is left to settle on a partition, since one takeover, from one document to another."""

    facts: Facts | None
    applied: int
    document: int
    caches: list[str]


class Following:
    """See the module."""

    def __init__(self, file: Config, clients: Clients, clock: Clock) -> None:
        self._file = file
        self._considered: int
        self._left: dict[Source, _Left] = {}
        self.revision: int
        """Of the config topic, by which is decided."""
        self.document: int
        """The revision of the document in force; 0 while the file alone holds."""
        self.effective: Effective
        self.fault: str | None = None
        """Why the newest document does not hold here."""
        self.follower = Follower(clients, config_topic(file.service.group_id), clock)
        try:
            self.follower.catch_up()
        except BaseException:
            self.follower.close()
            raise
        self._begin()

    @property
    def settings(self) -> Settings:
        """As far as the topic was read."""
        return self.follower.settings

    def poll(self, running: Iterable[Partition]) -> None:
        """Read what has come; up to the end where a partition knows of more."""
        settings = self.settings
        self.follower.poll()
        if any(partition.revision > settings.revision for partition in running):
            self.follower.catch_up()
            for partition in running:  # less than it was: the topic was made anew
                partition.revision = min(partition.revision, settings.revision)

    def has_more(self) -> bool:
        """Read to the end; tells whether there is something by which is not decided yet."""
        self.follower.catch_up()
        return self.settings.revision != self.revision

    def wanting(self, topic: str) -> str | None:
        """What this process has to have before it may say that no route reads an input.

        None where all has been read, and nobody with a newer file reads it.
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

    def wanted(self) -> Wanted | None:
        """A document that came since and can hold; one that cannot is refused."""
        newest = self.settings.documents.newest
        if newest is None or newest.revision == self._considered or is_alone(self._file):
            return None
        effective, fault = tried(self._file, newest)
        if fault is not None:
            self.refuse(newest, fault)
            return None
        return Wanted(newest, effective)

    def config_of(self, document: Document | None) -> Config:
        """What would hold with a document; what holds, where it cannot."""
        if document is None or is_alone(self._file):
            return self._file
        effective, fault = tried(self._file, document)
        return (self.effective if fault else effective).config

    def accept(self, wanted: Wanted) -> None:
        """It is in force from now on."""
        self._considered = self.document = wanted.document.revision
        self.effective, self.fault = wanted.effective, None

    def refuse(self, document: Document, sentence: str) -> None:
        """It does not hold here; what held before does."""
        self._considered = document.revision
        self.fault = f"the settings of revision {document.revision} do not hold here: {sentence}"

    def step_back(self, sentence: str) -> bool:
        """The topics contradict the document in force: an older one holds; False for the file."""
        documents = self.settings.documents
        document = documents.at(self.document)
        if document is None:
            return False
        if self.fault is None:
            self.refuse(document, sentence)
        older = [each for each in documents if each.number < document.number]
        self.effective, self.document = in_force(self._file, older)
        return True

    def goes_on(self) -> None:
        """All that was read is in force, or refused."""
        self.revision = self.settings.revision

    def is_late(self, partition: Partition) -> bool:
        """Whether its committed offset has something to tell that it does not."""
        is_behind = partition.revision < self.revision
        return is_behind or self.applied_by(partition) != partition.applied

    def applied_by(self, partition: Partition) -> int:
        """The revision of the document that a partition has wholly applied."""
        return partition.applied if self.left(partition) else self.document

    def left(self, partition: Partition) -> list[str]:
        """The caches of a partition that are still to be settled; take out what is done."""
        if partition.applied == self.document:
            return []
        steps = (partition.facts, partition.applied, self.document)
        known = self._left.get(partition.source)
        if known is None or known[0] is not steps[0] or known[1:3] != steps[1:]:
            known = self._left[partition.source] = _Left(*steps, self._changed(partition))
        return known.caches

    def settle(self, partition: Partition, rules: Rules, plan: Plan) -> Iterator[Sequence[Output]]:
        """Fill the plan with what new settings make of caches of a partition: so many at once.

        Of one partition, so that all of them are loaded before the transaction begins.
        """
        return resettle(partition, self.left(partition)[:PIECE_CACHES_MAX], rules, plan)

    def settled(self, partition: Partition) -> None:
        """What was settled last on a partition is committed."""
        del self.left(partition)[:PIECE_CACHES_MAX]

    def applied(self, running: Iterable[Partition]) -> int:
        """The least that is applied in this process."""
        deciding = [each.applied for each in running if each.changelog is not None]
        return min([self.document, *deciding])

    def close(self) -> None:
        """Let the consumer go."""
        self.follower.close()

    def _begin(self) -> None:
        """The newest document that can hold; the fault is that of the newest of all."""
        documents = self.settings.documents
        self.effective, self.document = in_force(self._file, documents)
        newest = documents.newest
        if newest and newest.revision != self.document and not is_alone(self._file):
            self.refuse(newest, tried(self._file, newest)[1] or "")
        self._considered, self.revision = documents.revision, self.settings.revision

    def _changed(self, partition: Partition) -> list[str]:
        """The caches whose settings are others than those by which they were settled last."""
        base = self.settings.documents.overlay_at(partition.applied)
        held = sorted(partition.addresses)
        if base is None:
            return held
        before = lay_over(self._file, base)[0].config.addresses
        now = self.effective.config.addresses
        return [cache for cache in held if settings_of(before, cache) != settings_of(now, cache)]
