"""Terms: by what a loop decides: what is set, the topics that this names, the rules of both.

All three change together, between two batches and nowhere else. A document that the topics
contradict changes none of them: what held before goes on, and the fault is told.
"""

from dataclasses import replace
from typing import Final

from service.caches import is_elsewhere, settings_of
from service.checks import Rules
from service.clock import Clock
from service.commit import TransactionAbortedError
from service.config import Config
from service.errors import ExitError
from service.faults import OUTDATED
from service.following import Following, Wanted
from service.inlets import Find, finder
from service.inputs import Inputs
from service.kafka import Clients
from service.kafka_properties import compresses
from service.layout import Layout
from service.refusals import Refusals
from service.settings import Settings
from service.target import Placing
from service.topics import ByAddress, Targets, by_address, fallback
from state.cache import Cache

_ABSENT_S: Final = 3.0
"""For how long a topic that was absent counts as absent: a record that names it is rejected."""


class Terms:
    """See the module."""

    def __init__(
        self,
        following: Following,
        clients: Clients,
        clock: Clock,
        cache: Cache,
        refusals: Refusals,
    ) -> None:
        self.following = following
        service, cluster = self.config.service, clients.cluster
        self.inputs = self._first_inputs(clients, clock)
        self._clock = clock
        self._are_targets_stale = False
        self.targets = Targets(cluster, are_made=service.create_topics)
        self._refresh_targets()
        self.rules = Rules(
            cluster_id=cluster.cluster_id(),
            group_id=service.group_id,
            epochs=following.settings.sessions.epochs,
            book=self.config.addresses,
            cache=cache,
            placing=Placing(
                targets=self.targets,
                fallback=fallback(service.group_id),
                compressing=compresses(self.config.kafka.producer),
                refused=refusals.by_place,
                homeless=refusals.homeless,
            ),
            inlets=self._finder(),
            by_address=ByAddress(by_address(service.group_id), service.by_address_partitions),
            batch_bytes_max=service.batch_bytes_max,
        )

    @property
    def config(self) -> Config:
        """The file, and what was set over REST."""
        return self.following.effective.config

    def layout(self, settings: Settings) -> Layout:
        """As it is with what is set."""
        config = self.following.config_of(settings.documents.newest)
        return Layout.of(config, self.inputs.topics)

    def find_inputs(self) -> bool:
        """Ask for the inputs when it is time; tells whether others are to be read."""
        are_new = self.inputs.refresh()
        self._are_targets_stale = self._are_targets_stale or are_new
        return are_new

    def find_targets(self) -> None:
        """Ask what the topics are that are written, where they may be others than is known."""
        if self._clock.monotonic_s() - self._targets_asked_s >= _ABSENT_S:
            # Where records go on naming them, it is asked; else it is not known any more.
            self._are_targets_stale = self._are_targets_stale or self.targets.is_missed
            self.targets.forget_absences()
        if self._are_targets_stale:
            self._refresh_targets()

    def _refresh_targets(self) -> None:
        self.targets.refresh(self.inputs.targets())
        self._are_targets_stale = False
        self._targets_asked_s = self._clock.monotonic_s()

    def doubt_targets(self) -> None:
        """One that did not exist may have been made meanwhile."""
        self._are_targets_stale = True

    def bring_in(self, wanted: Wanted) -> bool:
        """A settings document comes into force; False where the topics contradict it."""
        before = self.config.addresses
        try:
            self.inputs.configure(wanted.effective.config)
        except ExitError as error:
            self.following.refuse(wanted.document, error.sentence)
            return False
        self.following.accept(wanted)
        self._are_targets_stale = True
        book = self.config.addresses
        self.rules = replace(self.rules, book=book, inlets=self._finder())
        self.rules.cache.dismiss_where(
            lambda cache: is_elsewhere(settings_of(before, cache), settings_of(book, cache))
        )
        return True

    def _first_inputs(self, clients: Clients, clock: Clock) -> Inputs:
        """By the newest document that the topics allow: what is refused later is so at a start."""
        while True:
            try:
                return Inputs(self.config, clients.cluster, clock, clients.part.hop)
            except ExitError as error:
                if not self.following.step_back(error.sentence):
                    raise

    def _finder(self) -> Find:
        """What finds inlets by the routes in force."""
        group_id = self.config.service.group_id
        return finder(self.config.routes, group_id, lambda: self.inputs.topics, self._doubt)

    def _doubt(self, topic: str) -> None:
        """Whoever carried a record may know more than we: from what is set, or from its file."""
        if self.following.has_more():
            raise TransactionAbortedError(OUTDATED)
        wanted = self.following.wanting(topic)
        if wanted is not None:
            cause = f"no route here reads {topic}, and another instance may have one"
            raise TransactionAbortedError(OUTDATED._replace(cause=cause, waits_for=wanted))
