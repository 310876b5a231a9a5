"""Assignment: partitions come and go, and what has to be done before one is read.

    granted ──▶ ASSIGNED ──▶ RESTORING ──▶ RUNNING
                   ▲  │           │           │
                   └──┼── retake ─┴───────────┤   (store damaged, offset lost)
                      ▼                       ▼
                   revoked or lost: everything local is dropped

The group's callbacks only record; the work is done by `step`, in the loop. A partition is given
to the consumer's fetcher only when it runs, with its exact offset, so that nothing is fetched
before and no position has to be corrected. Invariant: a store is open iff its partition is owned
and past ASSIGNED.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from service import takeover
from service.clock import Clock
from service.cluster import Cluster, TopicInfo
from service.config import ServiceSettings
from service.errors import ExitError
from service.kafka import Clients
from service.partition import Facts, Log, Partition, Phase, addresses_of
from service.route import InputRoute
from service.topics import changelog, fallback
from service.unread import Unread
from state.cache import Cache
from state.changelog import decode
from state.edit import Source
from state.restore import Replay, Restorer
from state.run import FORMAT
from state.store import Identity, Position, Store, StoreCorruptError, Stores

_COMMITTED_TIMEOUT_S: Final = 0.5
_RESTORE_SLICE_S: Final = 0.05


class Assignment:
    """The partitions that the group has given to this consumer."""

    def __init__(
        self,
        clients: Clients,
        stores: Stores,
        cache: Cache,
        settings: ServiceSettings,
        clock: Clock,
    ) -> None:
        self._cluster: Cluster = clients.cluster
        self._cluster_id = clients.cluster.cluster_id()
        self._stores = stores
        self._cache = cache
        self._settings = settings
        self._clock = clock
        self._restorer = Restorer(clients.restorer)
        self._consumer: Consumer = clients.consumer()
        self._routes: Mapping[str, InputRoute] = {}
        self._topics: Mapping[str, TopicInfo] = {}
        self.partitions: dict[Source, Partition] = {}
        self.running: dict[Source, Partition] = {}
        self.rebalances = 0
        """How often the group has spoken; none before it was joined."""
        self._unread = Unread(clients.cluster, settings.group_id, clock)
        self._asks_to_look = False

    @property
    def consumer(self) -> Consumer:
        """The member of the group."""
        return self._consumer

    @property
    def restorer(self) -> Restorer:
        """What is being restored."""
        return self._restorer

    @property
    def settled(self) -> bool:
        """Whether every partition that we own runs."""
        return len(self.running) == len(self.partitions)

    def subscribe(self, routes: Mapping[str, InputRoute], topics: Mapping[str, TopicInfo]) -> None:
        """Read these topics; called again when the inputs change."""
        self._topics = topics
        if routes.keys() == self._routes.keys():
            return
        self._routes = routes
        self._join()

    def _join(self) -> None:
        topics = sorted(self._routes)
        if self._asks_to_look:
            topics.append(fallback(self._settings.group_id))
        self._consumer.subscribe(
            topics,
            on_assign=self._on_assign,
            on_revoke=self._on_revoke,
            on_lost=self._on_revoke,
        )

    def step(self) -> str | None:
        """Move every partition that does not run yet a little; tells what it waits for, if so."""
        waiting = self._take_over([p for p in self.partitions.values() if _is(p, Phase.ASSIGNED)])
        if self._restorer.replays:
            self._restorer.step(_RESTORE_SLICE_S)
            for partition in list(self.partitions.values()):
                replay = self._restorer.replays.get(partition.changelog)
                if replay is not None and replay.done:
                    self._finish(partition, replay)
        return waiting or self._nobody_reads()

    def rewind(self) -> None:
        """Read every running partition again from what is committed: an abort rewinds nothing."""
        places = [_place(p, p.next_offset) for p in self.running.values()]
        self._consumer.incremental_unassign(places)
        self._consumer.incremental_assign(places)

    def retake(self, source: Source, *, wipe: bool) -> None:
        """Take a partition over anew: its store is damaged or its offset is gone."""
        partition = self.partitions.get(source)
        if partition is None:
            return
        self._release(partition)
        if wipe:
            self._stores.wipe(source)
        partition.phase = Phase.ASSIGNED

    def close(self) -> None:
        """Leave the group and close every store."""
        self._consumer.close()
        self.running.clear()  # nothing is fetched any more; a closed consumer must not be asked
        for partition in list(self.partitions.values()):
            self._release(partition)
        self.partitions.clear()
        self._restorer.close()

    # The callbacks run inside `consume`; an exception there would lose the batch it returns.

    def _on_assign(self, consumer: Consumer, granted: list[TopicPartition]) -> None:
        self.rebalances += 1
        consumer.incremental_assign([])
        for place in granted:
            source = Source(place.topic, place.partition)
            route = self._routes.get(place.topic)
            if route is None:
                continue
            log = Source(changelog(self._settings.group_id, place.topic), place.partition)
            count = self._topics[place.topic].partitions
            self.partitions[source] = Partition(source, route, log, count)

    def _on_revoke(self, consumer: Consumer, taken: list[TopicPartition]) -> None:
        self.rebalances += 1
        gone = [Source(place.topic, place.partition) for place in taken]
        fetched = [_place(self.running[source]) for source in gone if source in self.running]
        if fetched:
            consumer.incremental_unassign(fetched)
        for source in gone:
            self.running.pop(source, None)
            partition = self.partitions.pop(source, None)
            if partition is not None:
                self._release(partition)

    def _nobody_reads(self) -> str | None:
        """Have the group share out partitions that it settled without, and tell of them.

        The client joins anew only for a different subscription: it gets a topic more, of which
        nothing is ever fetched, or one less.
        """
        if not self.rebalances or self.has_all:
            self._unread.forget()
        elif self._unread.look(self._all()):
            self._asks_to_look = not self._asks_to_look
            self._join()
        unread = sorted(self._unread.partitions)
        if not unread:
            return None
        names = ", ".join(f"{source.topic}-{source.partition}" for source in unread[:5])
        return f"the group to share out {len(unread)} partitions that nobody reads: {names}"

    @property
    def has_all(self) -> bool:
        """Whether no other instance owns a partition of an input."""
        return len(self.partitions) == sum(t.partitions for t in self._topics.values())

    def _all(self) -> frozenset[Source]:
        counts = {name: topic.partitions for name, topic in self._topics.items()}
        return frozenset(Source(name, n) for name, count in counts.items() for n in range(count))

    # Taking over, in the order of the protocol.

    def _take_over(self, partitions: list[Partition]) -> str | None:
        if not partitions:
            return None
        try:
            committed = self._consumer.committed(
                [_place(partition) for partition in partitions], timeout=_COMMITTED_TIMEOUT_S
            )
        except KafkaException as error:
            if error.args[0].code() != KafkaError._TIMED_OUT:  # noqa: SLF001 - its name
                raise
            names = ", ".join(f"{p.source.topic}-{p.source.partition}" for p in partitions)
            return (
                f"the committed offsets of {names}: an earlier transaction is still open, "
                "or the broker does not answer"
            )
        facts = self._facts(partitions, committed)
        for partition in partitions:
            self._begin_restore(partition, facts[partition.source])
        return None

    def _facts(
        self, partitions: list[Partition], committed: Iterable[TopicPartition]
    ) -> dict[Source, Facts]:
        for place in committed:
            if place.error is not None:
                raise KafkaException(place.error)
        logs = [log for p in partitions for log in (p.source, p.changelog)]
        topics = self._cluster.topics({log.topic for log in logs})
        ends, starts = self._cluster.ends(logs), self._cluster.starts(logs)
        found = {}
        for partition, place in zip(partitions, committed, strict=True):
            source, log = partition.source, partition.changelog
            found[source] = Facts(
                committed_offset=place.offset if place.offset >= 0 else None,
                metadata=decode(place.metadata),
                input=Log(starts[source], ends[source]),
                changelog=Log(starts[log], ends[log]),
                identity=Identity(
                    self._cluster_id,
                    topics[source.topic].topic_id,
                    topics[log.topic].topic_id,
                    FORMAT,
                ),
            )
        return found

    def _begin_restore(self, partition: Partition, facts: Facts) -> None:
        takeover.check_identity(partition, facts)
        partition.facts = facts
        partition.store = self._opened(partition, facts)
        position = partition.store.position() or Position(
            facts.identity, 0, facts.changelog.start, self._clock.wall_ms()
        )
        partition.phase = Phase.RESTORING
        replay = Replay(partition.changelog, partition.store, position, facts.changelog.end)
        if replay.done:
            self._finish(partition, replay)
        else:
            self._restorer.add(replay)

    def _opened(self, partition: Partition, facts: Facts) -> Store:
        """The store of a partition, wiped when it is damaged or not the copy that we need."""
        source = partition.source
        try:
            store = self._stores.open(source)
        except StoreCorruptError:
            fault: str | None = "damaged"
        else:
            fault = takeover.store_fault(store.position(), facts, self._clock.wall_ms())
            if fault is None:
                return store
            store.close()
        self._stores.wipe(source)
        return self._stores.open(source)

    def _finish(self, partition: Partition, replay: Replay) -> None:
        """The store equals the changelog: check it against the offset, then read."""
        self._restorer.remove(partition.changelog)
        facts, store = partition.facts, replay.store
        assert facts is not None  # set when the restore began
        if takeover.is_too_old(replay.position, self._clock.wall_ms()):
            self.retake(partition.source, wipe=True)
            return
        partition.addresses = addresses_of(store)
        try:
            takeover.check_changelog(partition, facts, replay.position.changelog_next)
            offset, partition.to_clear = takeover.start_offset(
                partition, facts, self._settings, remembered=bool(partition.addresses)
            )
        except ExitError:
            if self._is_outdated(partition, facts):
                self.retake(partition.source, wipe=False)
                return
            raise
        partition.committed_offset = facts.committed_offset
        partition.next_offset = offset
        partition.changelog_next = replay.position.changelog_next
        partition.restored_records = replay.records
        self._consumer.incremental_assign([_place(partition, offset)])
        partition.phase = Phase.RUNNING
        self.running[partition.source] = partition

    def _is_outdated(self, partition: Partition, facts: Facts) -> bool:
        """Whether another owner has committed since: then it was us who stood still."""
        try:
            (now,) = self._consumer.committed([_place(partition)], timeout=_COMMITTED_TIMEOUT_S)
        except KafkaException:
            return True
        return (now.offset if now.offset >= 0 else None) != facts.committed_offset

    def _release(self, partition: Partition) -> None:
        """Drop everything local: fetching, memory, store."""
        if self.running.pop(partition.source, None) is not None:
            self._consumer.incremental_unassign([_place(partition)])
        self._restorer.remove(partition.changelog)
        self._cache.drop(partition.source)
        if partition.store is not None:
            partition.store.close()
            partition.store = None


def _is(partition: Partition, phase: Phase) -> bool:
    return partition.phase is phase


def _place(partition: Partition, offset: int = -1001) -> TopicPartition:
    return TopicPartition(partition.source.topic, partition.source.partition, offset)
