"""The loop: poll → decide → commit → apply, on one thread, with one consumer and one producer.

A transaction is read, decided and sent in small pieces. A transaction during which the group
rebalances is aborted, so none commits records of another owner. Local state changes only after a
commit has succeeded, whatever fails.
"""

import contextlib
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from confluent_kafka import KafkaError, KafkaException

from ringfence_service.clock import Clock
from ringfence_service.config.addresses import home_of
from ringfence_service.config.kafka_properties import codec_of
from ringfence_service.config.model import Config
from ringfence_service.dedup.checks import DecisionContext
from ringfence_service.dedup.output import TargetMissingError
from ringfence_service.dedup.partition import OwnedPartition
from ringfence_service.dedup.plan import Output, Plan
from ringfence_service.dedup.poison_records import PoisonRecords
from ringfence_service.dedup.record import name_of
from ringfence_service.dedup.repartition_keys import RepartitionKeys
from ringfence_service.errors import AwaitedError
from ringfence_service.kafka.clients import Clients
from ringfence_service.kafka.compression import Compression
from ringfence_service.kafka.errors import ASTRAY, REBALANCED, without_frames
from ringfence_service.kafka.topics import config_topic
from ringfence_service.metadata.broker_behaviour import behaviour_test
from ringfence_service.metadata.file_routes import InstanceFileRoutes
from ringfence_service.metadata.sessions import SessionTable
from ringfence_service.metadata.topic import MetadataReader
from ringfence_service.processor.active_settings import ActiveSettings
from ringfence_service.processor.assignment import Assignment
from ringfence_service.processor.committer import Committer
from ringfence_service.processor.counters import AddressCounters
from ringfence_service.processor.failures import FailureHandler
from ringfence_service.processor.input_topics import make_config_topic
from ringfence_service.processor.layout import check_layout
from ringfence_service.processor.occupancy import OccupancyScanner
from ringfence_service.processor.poll import Poller
from ringfence_service.processor.repartition_purger import RepartitionPurger
from ringfence_service.processor.reporter import Reporter
from ringfence_service.processor.retry import RetryPolicy
from ringfence_service.processor.settings_follower import SettingsFollower
from ringfence_service.processor.time_budget import TimeBudget
from ringfence_service.processor.transaction import (
    OutcomeUnknownError,
    TransactionAbortedError,
    TransactionManager,
)
from ringfence_service.processor.upkeep import Upkeep
from ringfence_state.cache import Cache
from ringfence_state.model import Claim, PartitionId
from ringfence_state.store import StoreCorruptError, Stores
from ringfence_state.strategies.base import CommittedState, Occupancy

_STANDBY_SHARE: Final = 1 / 4
"""How much of the time standby copies get while records arrive.

Following costs a tenth of deciding, so a loop keeps up with two or three others of its load.
"""


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
        is_stopping: Callable[[], bool] = lambda: False,
        *,
        tests_broker: bool = False,
        has_joined: bool = False,
    ) -> None:
        """`is_stopping` ends a start that waits for other processes of the group.

        `tests_broker`: a cluster that is new to the group has to pass the test of its behaviour.
        `has_joined`: see `Assignment`.
        """
        service = config.service
        self._clock, self.reporter, self._retry_policy = clock, reporter, retry_policy
        retry_policy.begin_life()
        self.cache = Cache(service.cache_memory_mb * 1024 * 1024, on_load=reporter.beat)
        self._poison_records = PoisonRecords(service.batch_records_max)
        # A client that is dropped without being closed may stay alive, with its threads.
        with contextlib.ExitStack() as undo:
            compression = Compression(codec_of(config.kafka.producer))
            self.transaction_manager = TransactionManager(
                clients,
                service.transaction_timeout_ms,
                clock,
                retry_policy.on_wait,
                compression,
                reporter.compresses,
            )
            undo.callback(self.transaction_manager.close)
            make_config_topic(service, clients.cluster)
            settings_follower = SettingsFollower(config, clients, clock)
            undo.callback(settings_follower.close)
            reporter.beat()
            self.active_settings = active_settings = ActiveSettings(
                settings_follower, clients, clock, self.cache, self._poison_records, compression
            )
            # First, so that a transaction that an earlier producer left open is ended before
            # committed offsets are read.
            self.transaction_manager.prepare(active_settings.targets.batch_bytes_max)
            reporter.beat()
            topic = config_topic(service.group_id)
            routes = InstanceFileRoutes.of(config)
            check_layout(
                active_settings.layout,
                routes,
                self.follower,
                clients,
                topic,
                clock,
                reporter.beat,
                is_stopping,
                behaviour_test(clients, topic, clock, reporter.beat) if tests_broker else None,
            )
            self.assignment = Assignment(
                clients,
                stores,
                self.cache,
                service,
                clock,
                active_settings.inputs.suspect,
                has_joined=has_joined,
            )
            undo.callback(self.assignment.close, leaves=False)
            self.assignment.fetching.pause(settings_follower.effective.paused, ())
            self.assignment.subscribe(active_settings.inputs.input_topics)
            self.poller = Poller(self.assignment, service, clock, reporter, self._on_client_error)
            undo.pop_all()
        self._scanner = OccupancyScanner(self.cache)
        self._standby_budget = TimeBudget(clock, _STANDBY_SHARE)
        self.committer = Committer(
            self.transaction_manager,
            active_settings,
            self.assignment,
            self.poller,
            self._poison_records,
            self.cache,
            service,
            clock,
            reporter,
            retry_policy,
        )
        self.failures = FailureHandler(
            active_settings,
            self.assignment,
            self.poller,
            self._poison_records,
            self.cache,
            reporter,
            retry_policy,
            lambda: self.transaction_manager.names_bad_records(topic),
            clients.cluster.explain,
            compression,
        )
        self.upkeep = Upkeep(
            active_settings,
            self.assignment,
            self.poller,
            self.committer,
            self.transaction_manager,
            RepartitionPurger(clients.cluster, clock),
            clock,
            reporter,
            self.failures.rewind,
        )

    def turn(self) -> bool:
        """Run one turn: takeovers, changed settings, and at most one batch of records.

        Returns whether there were records.
        """
        self.reporter.beat()
        is_busy = False
        try:
            waiting = self.upkeep.prepare()
            batch = self.poller.poll(self._poison_records.records_max)
            if self.active_settings.inputs.is_suspect and self.upkeep.find_inputs():
                return False  # the records may be of other topics than we took over
            is_busy = bool(batch.slices)
            if is_busy:
                self.committer.commit_batch(batch)
                self.failures.block(self.committer.plan.waiting)
            self._scanner.scan(
                self.assignment.running.values(),
                self.config.addresses,
                self._clock.monotonic_s(),
                is_busy=is_busy,
            )
            with self._standby_budget.of_turn(has_read=is_busy) as is_left:
                self.assignment.follow(is_left)
        except TransactionAbortedError as aborted:
            self.failures.aborted(without_frames(aborted).fault, self.committer.plan)
        except AwaitedError as awaited:
            self.failures.awaited(without_frames(awaited))
        except KafkaException as error:
            self.failures.refused(without_frames(error).args[0])
        except StoreCorruptError as damaged:
            self.failures.damaged(without_frames(damaged))
        else:
            self._retry_policy.turned(waiting, self.upkeep.standstill(), self._has_caught_up)
            if self._retry_policy.is_cut_off(finds_broker=not self.assignment.has_no_broker):
                raise OutcomeUnknownError(ASTRAY)
            missing = self.active_settings.inputs.missing
            self.reporter.turned(self.assignment, missing, complete=self.assignment.has_all)
            self.reporter.sample(self.assignment.running, self._scanner, self.config.addresses)
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
        self.poller.run_callbacks()
        if self.assignment.rebalances != rebalances:
            raise TransactionAbortedError(REBALANCED)
        plan, now_ms = Plan(), self._clock.wall_ms()
        try:
            self.committer.commit(plan, fill(self.active_settings.rules, plan, now_ms))
        except TargetMissingError:
            self.active_settings.doubt_targets()
            raise

    def close(self, *, leaves: bool = False) -> None:
        """Close all clients and stores, even if some of it fails; no transaction is open.

        With `leaves` the consumer leaves the group, see `Assignment.close`.
        """
        with contextlib.ExitStack() as undo:
            undo.callback(self.transaction_manager.close)
            undo.callback(self.follower.close)
            self.assignment.close(leaves=leaves)

    @property
    def config(self) -> Config:
        """The effective configuration: the file overlaid with the settings made over REST."""
        return self.active_settings.config

    @property
    def sessions(self) -> SessionTable:
        """The sessions of publishers, as far as the metadata topic was read."""
        return self.active_settings.settings_follower.settings.sessions

    @property
    def follower(self) -> MetadataReader:
        """The reader of the metadata topic."""
        return self.active_settings.settings_follower.follower

    @property
    def address_counters(self) -> AddressCounters:
        """Counts of each address since the process started."""
        return self.reporter.address_counters

    @property
    def decides(self) -> bool:
        """Whether any partition here decides records; else they are only forwarded."""
        return any(each.changelog is not None for each in self.assignment.running.values())

    def extent(
        self, partition: OwnedPartition, address: str, memory: CommittedState | None = None
    ) -> Occupancy | None:
        """Return the occupancy of an address, like `OccupancyScanner.measure`."""
        return self._scanner.measure(partition, address, self.config.addresses, memory)

    def decider(
        self, address: str, source: PartitionId
    ) -> Callable[[Claim], OwnedPartition | None]:
        """Return the function from a claim to the partition here that decides its record, or None.

        The records are those of an input partition, for an address.
        """
        running = self.assignment.running
        own = running.get(source)
        if own is not None and own.changelog is not None:
            return lambda _claim: own
        rules = self.active_settings.rules
        input_partition = rules.input_partitions(name_of(source))
        if input_partition.fault is not None or not input_partition.route.settings.is_repartitioned:
            return lambda _claim: None
        # A constant address may begin with the prefix of another address's cache.
        is_own = input_partition.route.address.constant == address
        home = address if is_own else home_of(address)
        keys = RepartitionKeys(input_partition, rules.book)
        return lambda claim: running.get(rules.by_address.decider_of(keys.of_claim(home, claim)))

    def _has_caught_up(self) -> bool:
        """Whether all input is decided: what is kept was read, and no more."""
        return not self.poller.holds_records and self.assignment.has_caught_up()

    def _on_client_error(self, error: KafkaError, source: PartitionId | None) -> None:
        self.failures.on_client_error(error, source)
