"""The loop: poll → decide → commit → apply, on one thread, with one consumer and one producer.

A transaction is read, decided and sent in small pieces. A transaction during which the group
rebalances is aborted, so none commits records of another owner. Local state changes only after a
commit has succeeded, whatever fails.
"""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

from confluent_kafka import KafkaError, KafkaException, TopicPartition, murmur2

from service.clock import Clock
from service.config.addresses import home_of
from service.config.load import Config
from service.dedup.batch import Batch
from service.dedup.checks import DecisionContext
from service.dedup.decider import decide, give_up
from service.dedup.output import PoisonRecords, TargetMissingError
from service.dedup.partition import OwnedPartition
from service.dedup.plan import Output, Plan
from service.dedup.record import name_of
from service.kafka.admin import SILENT
from service.kafka.clients import Clients
from service.kafka.errors import (
    ASTRAY,
    CROWDED,
    DOUBTED,
    NOT_A_MEMBER,
    OUTDATED,
    REBALANCED,
    REFUSALS,
    KafkaFailure,
    Recovery,
    fault_of,
    without_frames,
)
from service.kafka.topics import config_topic
from service.metadata.file_routes import InstanceFileRoutes
from service.metadata.sessions import SessionTable
from service.metadata.topic import MetadataReader
from service.processor.assignment import Assignment
from service.processor.dynamic_settings import (
    ActiveSettings,
    SettingsFollower,
    check_layout,
    offset_to_commit,
)
from service.processor.input_topics import RepartitionPurger, make_config_topic
from service.processor.occupancy import OccupancyScanner
from service.processor.poll import Poller
from service.processor.reporter import AddressCounters, Reporter
from service.processor.retry import RetryPolicy
from service.processor.takeover import check_written
from service.processor.transaction import (
    EXPIRED,
    SLOW,
    OutcomeUnknownError,
    TransactionAbortedError,
    TransactionManager,
    apply,
    clear_plans,
)
from state.cache import BatchTooLargeError, Cache
from state.model import PartitionId
from state.store import StoreCorruptError, StoreFailedError, Stores
from state.strategies.base import CommittedState, Occupancy

_GONE: Final = frozenset(
    {
        KafkaError._ALL_BROKERS_DOWN,  # noqa: SLF001 - its name
        KafkaError._TRANSPORT,  # noqa: SLF001 - its name
        KafkaError.UNKNOWN_TOPIC_OR_PART,
    }
)
"""Errors after which the inputs are refreshed: the broker or a topic may be gone."""


class NotAppliedError(Exception):
    """A committed transaction could not be applied to store and memory: the process must end."""


class Loop:
    """One life of the processor: from joining the group until it ends or is fenced."""

    def __init__(
        self,
        config: Config,
        clients: Clients,
        stores: Stores,
        clock: Clock,
        reporter: Reporter,
        retry_policy: RetryPolicy,
    ) -> None:
        service = config.service
        self._clock, self._reporter, self._retry_policy = clock, reporter, retry_policy
        retry_policy.begin_life()
        self.cache = Cache(service.cache_memory_mb * 1024 * 1024, on_load=reporter.beat)
        self._poison_records = PoisonRecords(service.batch_records_max)
        self._load_s_max = service.transaction_timeout_ms / 4000
        """How long a transaction may load state; the rest of its timeout is for its commit."""
        self._began_s = 0.0
        """When deciding began for the current transaction."""
        # A client that is dropped without being closed may stay alive, with its threads.
        with contextlib.ExitStack() as undo:
            self._transaction_manager = TransactionManager(
                clients, service.transaction_timeout_ms, clock, retry_policy.on_wait
            )
            undo.callback(self._transaction_manager.close)
            make_config_topic(service, clients.cluster)
            settings_follower = SettingsFollower(config, clients, clock)
            undo.callback(settings_follower.close)
            reporter.beat()
            self._active_settings = active_settings = ActiveSettings(
                settings_follower, clients, clock, self.cache, self._poison_records
            )
            # First, so that a transaction that an earlier producer left open is ended before
            # committed offsets are read.
            self._transaction_manager.prepare(active_settings.targets.batch_bytes_max)
            reporter.beat()
            topic = config_topic(service.group_id)
            routes = InstanceFileRoutes.of(config)
            check_layout(
                active_settings.layout, routes, self.follower, clients, topic, clock, reporter.beat
            )
            self._purger = RepartitionPurger(clients.cluster, clock)
            self.assignment = Assignment(
                clients, stores, self.cache, service, clock, active_settings.inputs.suspect
            )
            undo.callback(self.assignment.close, leaves=False)
            self.assignment.fetching.pause(settings_follower.effective.paused, ())
            self.assignment.subscribe(active_settings.inputs.input_topics)
            self._poller = Poller(self.assignment, service, clock, reporter, self._on_client_error)
            self._plan = Plan()
            undo.pop_all()
        self._scanner = OccupancyScanner(self.cache)

    def turn(self) -> bool:
        """Run one turn: takeovers, changed settings, and at most one batch of records.

        Returns whether there were records.
        """
        self._reporter.beat()
        is_busy = False
        try:
            waiting = self._prepare()
            batch = self._poller.poll(self._poison_records.records_max)
            if self._active_settings.inputs.is_suspect and self._find_inputs():
                return False  # the records may be of other topics than we took over
            is_busy = bool(batch.slices)
            if is_busy:
                is_bounded = not self._poller.is_narrowest
                plan = Plan(on_headers=self._reporter.begun(), is_bounded=is_bounded)
                self._commit(plan, self._decided(batch, plan))
                self._poller.committed()
            self._scan_occupancy(is_busy=is_busy)
        except TransactionAbortedError as aborted:
            self.aborted(without_frames(aborted).fault)
        except TargetMissingError as missing:
            without_frames(missing)
            self.rewind()
            self._active_settings.doubt_targets()
            sentence = f"topic {missing.topic}: it does not exist; create it"
            self._retry_policy.back_off(sentence, until_commit=True)
        except KafkaException as error:
            without_frames(error)
            self.rewind()
            self._refused(error.args[0])
        except StoreCorruptError as damaged:
            self.damaged(damaged)
        else:
            self._retry_policy.turned(waiting, self.assignment.has_caught_up)
            if self._retry_policy.is_cut_off(finds_broker=not self.assignment.has_no_broker):
                raise OutcomeUnknownError(ASTRAY)
            self._reporter.turned(self.assignment, complete=self.assignment.has_all)
            self._reporter.sample(self.assignment.running, self._scanner, self.config.addresses)
        return is_busy

    def change(
        self, fill: Callable[[DecisionContext, Plan, int], Iterable[Sequence[Output]]]
    ) -> None:
        """Commit an administrator's change in a transaction that sends the offsets again.

        `fill` gets the rules, the plan and the time in ms. To be called between two turns. Raises
        TransactionAbortedError, OutcomeUnknownError and NotAppliedError like a commit; the first
        also after a rebalance whose callback runs only now, since partitions of `fill` may be gone.
        """
        rebalances = self.assignment.rebalances
        self._poller.run_callbacks()
        if self.assignment.rebalances != rebalances:
            raise TransactionAbortedError(REBALANCED)
        plan = Plan()
        try:
            self._commit(plan, fill(self._active_settings.rules, plan, self._clock.wall_ms()))
        except TargetMissingError:
            self._active_settings.doubt_targets()
            raise

    def aborted(self, fault: KafkaFailure) -> None:
        """Handle an abort: read the batch again, in halves if one of its records is to blame."""
        self._reporter.aborted(fault)
        self.rewind()
        if fault in {REBALANCED, OUTDATED}:
            return
        if fault in {SLOW, CROWDED}:
            if self._plan.tally.records_read:
                self._poller.narrow(self._plan.tally.records_read)
            return
        if fault == EXPIRED:
            self._poison_records.halve(self._plan)
        self._doubt_topics(fault)
        if fault == DOUBTED:
            return
        if self._retry_policy.is_passing(fault, self.assignment.rebalances):
            return
        if not (fault.of_record and self._poison_records.narrow(self._plan, fault)):
            sentence = f"the broker, which answered {fault.cause}; see its log"
            self._retry_policy.back_off(fault.waits_for or sentence, until_commit=True)

    def unchanged(self, fault: KafkaFailure) -> None:
        """Handle the abort of an administrator's change without waiting: its client retries."""
        self._reporter.aborted(fault)
        self.rewind()
        self._doubt_topics(fault)

    def _doubt_topics(self, fault: KafkaFailure) -> None:
        """Refresh the topics if the broker caused the abort."""
        if not (fault.of_record or fault.of_group):
            self._active_settings.inputs.suspect()
            self._active_settings.doubt_targets()

    def damaged(self, error: StoreCorruptError) -> None:
        """Handle a damaged store: wipe it and take its partition over again."""
        self._reporter.damaged(str(error))
        self.assignment.retake(error.source, wipe=True)
        self.rewind()

    def rewind(self) -> None:
        """Read again what was consumed and not committed; else the next commit would skip it."""
        self.cache.begin()  # the transaction is over, and with it its limits on loading
        try:
            self._poller.discard()
            self.assignment.rewind()
        except KafkaException as error:
            raise OutcomeUnknownError(fault_of(error.args[0])) from error

    def close(self, *, leaves: bool = False) -> None:
        """Close all clients and stores, even if some of it fails; no transaction is open.

        With `leaves` the consumer leaves the group, see `Assignment.close`.
        """
        with contextlib.ExitStack() as undo:
            undo.callback(self._transaction_manager.close)
            undo.callback(self.follower.close)
            self.assignment.close(leaves=leaves)

    @property
    def config(self) -> Config:
        """The effective configuration: the file overlaid with the settings made over REST."""
        return self._active_settings.config

    @property
    def sessions(self) -> SessionTable:
        """The sessions of publishers, as far as the metadata topic was read."""
        return self._active_settings.settings_follower.settings.sessions

    @property
    def follower(self) -> MetadataReader:
        """The reader of the metadata topic."""
        return self._active_settings.settings_follower.follower

    @property
    def address_counters(self) -> AddressCounters:
        """Counts of each address since the process started."""
        return self._reporter.address_counters

    @property
    def decides(self) -> bool:
        """Whether any partition here decides records; else they are only forwarded."""
        return any(each.changelog is not None for each in self.assignment.running.values())

    def extent(
        self, partition: OwnedPartition, address: str, memory: CommittedState | None = None
    ) -> Occupancy | None:
        """Return the occupancy of an address, like `OccupancyScanner.measure`."""
        return self._scanner.measure(partition, address, self.config.addresses, memory)

    def decider(self, address: str, source: PartitionId) -> OwnedPartition | None:
        """Return the partition here that decides records of an input for an address, or None."""
        running = self.assignment.running
        own = running.get(source)
        if own is not None and own.changelog is not None:
            return own
        rules = self._active_settings.rules
        input_partition, (topic, count) = rules.input_partitions(name_of(source)), rules.by_address
        if input_partition.fault is not None or input_partition.route.settings.scope != "address":
            return None
        # A constant address may begin with the prefix of another address's cache.
        is_own = input_partition.route.address.constant == address
        home = address if is_own else home_of(address)
        return running.get(PartitionId(topic, murmur2(home.encode(), count)))

    def _prepare(self) -> str | None:
        """Do all that precedes reading; return what the loop waits for, or None.

        Refreshes topics and settings, ensures the producer, and advances takeovers.
        """
        self._find_inputs()
        for partition in self.assignment.running.values():
            check_written(partition)
        self._refresh_targets()
        waiting = self.assignment.step()
        for partition in self._selected(lambda partition: partition.to_clear):
            for plan in clear_plans(partition, self.config.service.batch_records_max):
                self._commit(plan, ())
            self.assignment.retake(partition.source, wipe=False)
        self._follow_settings()
        self._give_up_groups()
        self._purger.purge(self.assignment.running.values())
        missing = self._active_settings.inputs.missing
        if missing and waiting is None:
            return f"the input {', '.join(missing)}: it does not exist; create it"
        return waiting

    def _find_inputs(self) -> bool:
        """Refresh the inputs if it is time; if they changed, subscribe to them and return True."""
        if not self._active_settings.find_inputs():
            return False
        self.rewind()
        self.assignment.subscribe(self._active_settings.inputs.input_topics)
        return True

    def _refresh_targets(self) -> None:
        """Refresh the target topics, and adapt the producer to their record limits."""
        self._active_settings.find_targets()
        self._reporter.beat()  # each request to the broker may have taken seconds
        self._transaction_manager.prepare(self._active_settings.targets.batch_bytes_max)

    def _follow_settings(self) -> None:
        """Make new settings effective, apply them to caches, and commit their revision."""
        follower, running = self._active_settings.settings_follower, self.assignment.running
        follower.poll(running.values())
        pending = follower.pending()
        if pending is not None and self._active_settings.activate(pending):
            self.rewind()
            self.assignment.fetching.pause(pending.effective.paused, running.values())
            self.assignment.subscribe(self._active_settings.inputs.input_topics)
            self._refresh_targets()
        follower.mark_current()
        for partition in self._selected(lambda each: bool(follower.unapplied_caches(each))):
            plan = Plan()
            self._commit(plan, follower.apply_to(partition, self._active_settings.rules, plan))
            follower.mark_applied(partition)
        late = self._selected(lambda each: follower.is_late(each) or self._begins_at_an_end(each))
        if late:
            plan = Plan()
            plan.next_offsets = {partition.source: partition.next_offset for partition in late}
            self._commit(plan, ())
        self._reporter.follows(follower, running.values())

    def _begins_at_an_end(self, partition: OwnedPartition) -> bool:
        """Whether `latest` chose the offset: the next owner must not choose another, later one."""
        service = self.config.service
        if "latest" not in {service.on_missing_offset, service.on_lost_offset}:
            return False
        return partition.committed_offset != partition.next_offset

    def _give_up_groups(self) -> None:
        """Dead-letter groups that timed out, in each turn as many as a batch may hold."""
        now_s, timeout_s = self._clock.monotonic_s(), self._group_timeout_s
        service = self.config.service
        for partition in self._selected(lambda p: bool(p.groups.overdue(now_s, timeout_s))):
            late = partition.groups.first(
                partition.groups.overdue(now_s, timeout_s),
                service.batch_records_max,
                service.batch_bytes_max,
            )
            plan = Plan()
            outputs = give_up(
                partition, late, self._active_settings.rules, plan, self._clock.wall_ms()
            )
            self._commit(plan, outputs)

    def _group_timeout_s(self, address: str) -> float:
        return self.config.addresses.settings(address).group_timeout_ms / 1000

    def _selected(self, predicate: Callable[[OwnedPartition], bool]) -> list[OwnedPartition]:
        """Return the partitions for which to commit something without reading records.

        Pending rebalance callbacks run first: until then a partition may be another member's.
        """
        running = self.assignment.running
        if any(map(predicate, running.values())):
            self._poller.run_callbacks()
        return [partition for partition in running.values() if predicate(partition)]

    def _decided(self, batch: Batch, plan: Plan) -> Iterator[Sequence[Output]]:
        """Yield the outputs as they are decided, and time each step.

        Afterwards tidy the cache, while the broker processes the records.
        """
        parts = decide(self._read(batch, plan), self._active_settings.rules, plan)
        lookup_s, produce_s, poller, tally = 0.0, 0.0, self._poller, plan.tally
        while True:
            started_s, read_s, read = self._clock.monotonic_s(), poller.spent_s, tally.records_read
            try:
                part = next(parts, None)
            except BatchTooLargeError:
                raise TransactionAbortedError(SLOW if self._is_late() else CROWDED) from None
            decided_s = self._clock.monotonic_s()
            took_s = decided_s - started_s - (poller.spent_s - read_s)
            lookup_s += took_s
            if part is None:
                break
            poller.decided(tally.records_read - read, took_s)
            yield part
            produce_s += self._clock.monotonic_s() - decided_s
        self._reporter.stage("lookup", lookup_s)
        self._reporter.stage("produce", produce_s)
        self.cache.tidy()

    def _read(self, batch: Batch, plan: Plan) -> Iterator[Batch]:
        """Yield a batch and the further pieces of the same transaction.

        If the group rebalances meanwhile, the transaction is aborted: it may contain records of a
        partition that we no longer own. It ends early if it uses most of the memory, or if another
        piece might be late: a piece that has to load state would cost the others.
        """
        rebalances = self.assignment.rebalances
        while batch.slices:
            yield batch
            if self.cache.is_full or self._decided_for_s > self._load_s_max / 2:
                return
            batch = self._poller.poll_more(plan, self._poison_records.records_max)
            if self.assignment.rebalances != rebalances:
                raise TransactionAbortedError(REBALANCED)

    @property
    def _decided_for_s(self) -> float:
        return self._clock.monotonic_s() - self._began_s

    def _is_late(self) -> bool:
        """Whether deciding the current transaction has taken too long to load more state."""
        return self._decided_for_s > self._load_s_max

    def _commit(self, plan: Plan, outputs: Iterable[Sequence[Output]]) -> None:
        """Commit the plan in one transaction; then, and only then, change store and memory."""
        started_s = self._clock.monotonic_s()
        self._plan = plan
        partitions = self.assignment.running
        changelog_next: dict[PartitionId, int] = {}

        def build_offsets(written: Mapping[PartitionId, int]) -> list[TopicPartition]:
            changelog_next.update({log: offset + 1 for log, offset in written.items()})
            if any(source not in partitions for source in plan.next_offsets):
                raise TransactionAbortedError(REBALANCED)
            if self._active_settings.inputs.is_suspect:
                raise TransactionAbortedError(DOUBTED)
            return [
                offset_to_commit(
                    partitions[source],
                    offset,
                    changelog_next,
                    plan,
                    self._active_settings.settings_follower,
                )
                for source, offset in plan.next_offsets.items()
            ]

        member = self.assignment.membership()
        if member is None:
            # The broker accepts offsets without a check from a consumer that never joined.
            raise TransactionAbortedError(NOT_A_MEMBER)
        self._began_s = started_s
        self.cache.begin(is_bounded=plan.is_bounded, is_late=self._is_late)
        self._transaction_manager.commit(plan, outputs, build_offsets, member)
        try:
            self._apply(plan, changelog_next, self._clock.monotonic_s() - started_s)
        except (StoreCorruptError, StoreFailedError):
            raise
        except Exception as error:
            raise NotAppliedError(repr(error)) from error

    def _apply(self, plan: Plan, changelog_next: Mapping[PartitionId, int], took_s: float) -> None:
        """Apply a committed plan to store, memory, and the counts."""
        partitions = self.assignment.running
        self._retry_policy.committed()
        self._reporter.committed(plan, took_s)
        applied_s = self._clock.monotonic_s()
        try:
            apply(plan, changelog_next, partitions, self.cache, self._clock.wall_ms())
        except StoreCorruptError:
            # Kafka has committed all of it, and only a part was applied: no local state is valid.
            for source in plan.next_offsets:
                self.assignment.retake(source, wipe=False)
            raise
        self._reporter.stage("apply", self._clock.monotonic_s() - applied_s)
        held = [partitions[source].addresses for source in plan.next_offsets]
        self._reporter.address_counters.add(plan.tally, held)
        for source in plan.next_offsets:
            partition = partitions[source]
            partition.applied = self._active_settings.settings_follower.applied_by(partition)
            partition.revision = self._active_settings.settings_follower.revision
        self._poison_records.passed(partitions, self.config.service.batch_records_max)

    def _scan_occupancy(self, *, is_busy: bool) -> None:
        """Measure some addresses, for queries about all of them."""
        self._scanner.scan(
            self.assignment.running.values(),
            self.config.addresses,
            self._clock.monotonic_s(),
            is_busy=is_busy,
        )

    def _on_client_error(self, error: KafkaError, source: PartitionId | None) -> None:
        """Handle an error that the consumer returned among the messages."""
        self._reporter.client_error(error.name(), error.str())
        fault = fault_of(error)
        if fault.remedy is Recovery.REBUILD:
            raise OutcomeUnknownError(fault)
        if error.code() in _GONE:
            self._active_settings.inputs.suspect()
        if error.code() == KafkaError._AUTO_OFFSET_RESET and source:  # noqa: SLF001 - its name
            self.assignment.retake(source, wipe=False)
        elif error.code() in REFUSALS:
            raise KafkaException(error)

    def _refused(self, error: KafkaError) -> None:
        """Handle an error or a missing response of the broker outside a transaction."""
        fault = fault_of(error)
        is_cut_off = self._retry_policy.is_cut_off(finds_broker=error.code() not in SILENT)
        if fault.remedy is Recovery.REBUILD or is_cut_off:
            raise OutcomeUnknownError(fault)
        sentence = f"the broker, which answered {fault.cause}; see its log and the user's ACLs"
        self._retry_policy.back_off(sentence)
