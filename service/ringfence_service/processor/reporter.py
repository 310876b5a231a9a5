"""Reporter: heartbeat, status, metrics and log lines of a loop.

The loop reports events; the reporter turns them into status, counts and log lines. It lives longer
than a loop, so that totals and phases survive a restart of the loop.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import UTC, datetime
from typing import Final

import structlog

from ringfence_client.headers import Headers
from ringfence_service.clock import Clock
from ringfence_service.config.addresses import AddressBook, home_of
from ringfence_service.config.expressions import EXPRESSION_MARKER
from ringfence_service.config.model import Config, ServiceSettings
from ringfence_service.config.tasks import hops_of
from ringfence_service.dedup.duplicate_samples import DuplicateSamples
from ringfence_service.dedup.partition import OwnedPartition, PartitionPhase
from ringfence_service.dedup.plan import BatchCounts, Plan
from ringfence_service.dedup.route import Template
from ringfence_service.errors import missing_inputs
from ringfence_service.kafka.errors import PRECAUTIONS, KafkaFailure
from ringfence_service.processor.assignment import Assignment
from ringfence_service.processor.counters import AddressCounters, RunningTotals, count
from ringfence_service.processor.differing import Comparer, DifferingLog
from ringfence_service.processor.fetcher import Block
from ringfence_service.processor.lag_estimator import LagEstimator
from ringfence_service.processor.occupancy import PERIOD_S, OccupancyScanner, StateSampler
from ringfence_service.processor.stuck_inputs import describe_held
from ringfence_service.processor.unchecked import UncheckedLog
from ringfence_service.queries.status import (
    PartitionStatus,
    ServicePhase,
    ServiceStatus,
    StandbyStatus,
    StatusBoard,
)
from ringfence_service.telemetry.metrics import Metrics, RebalanceKind, Stage
from ringfence_service.telemetry.tracing import Tracer, TransactionTrace
from ringfence_state.cache import Cache
from ringfence_state.model import PartitionId

_log = structlog.stdlib.get_logger(__name__)


_PUBLISH_S: Final = 0.25
"""How often turns publish the status, which takes the positions of all partitions.

With the time until the worker sends it (`_REPORT_S`, `_LOOK_S` in
`service/ringfence_service/supervisor/worker_process.py`) the API's status is half a second old at
most.
"""

_WHY_CODEC: Final = "whether records fit their topics only when compressed; see docs/sizing.md"

_NOTED_MS: Final = 2_000
"""A block that has lasted for so long is logged."""
_THROTTLED_S: Final = 10.0
"""How long a quota counts as effective after its last delay: the broker measures over as long."""
_NAMES_MAX: Final = 5
"""How many partitions such a line names."""


class Reporter:
    """Turns the events of a loop into heartbeat, status, metrics and log lines."""

    def __init__(
        self,
        settings: ServiceSettings,
        clock: Clock,
        board: StatusBoard,
        metrics: Metrics,
        tracer: Tracer | None = None,
        comparer: Comparer | None = None,
    ) -> None:
        """`comparer` compares duplicates with their originals; without it none are compared."""
        self._tracer = tracer
        self._comparer = comparer
        self._trace: TransactionTrace | None = None
        self._settings = settings
        self._clock = clock
        self._board = board
        self.metrics = metrics
        self._started_at = datetime.fromtimestamp(clock.wall_ms() / 1000, UTC)
        self._totals = RunningTotals()
        self._unchecked_log = UncheckedLog()
        self._differing_log = DifferingLog()
        self._published_s = float("-inf")
        self._rebalances = 0
        self._changes: Counter[RebalanceKind] = Counter()
        self._sampler, self._sampled_s = StateSampler(), float("-inf")
        self._lag_estimator = LagEstimator()
        self._partitions_total = 0
        self._running: set[PartitionId] = set()
        self._statuses: tuple[PartitionStatus, ...] = ()
        self._standbys: tuple[StandbyStatus, ...] = ()
        self._held: frozenset[PartitionId] = frozenset()
        self._blocked: frozenset[str] = frozenset()
        """What routes wait for, as far as it was logged."""
        self._missing: tuple[str, ...] = ()
        self._oversized: tuple[PartitionId, str] | None = None
        """The address that was logged to need more memory than the limit."""
        self.address_counters = AddressCounters(clock.wall_ms())
        """Record counts by address."""
        self._throttled_until_s = float("-inf")
        self._codec: str | None = None
        self._waiting_for: str | None = None
        self._stands_still = False
        self._config_revision = 0
        self._config_fault: str | None = None
        self._hops: tuple[str, ...] = ()
        self._named_by: int | None = None
        """The settings document whose addresses have labels in the metrics."""

    def beat(self) -> None:
        """Record a heartbeat of the loop."""
        self._board.beat()

    def stage(self, stage: Stage, duration_s: float) -> None:
        """Record how long a stage of the current batch took."""
        self.metrics.stage(stage, duration_s)

    def begun(self) -> Callable[[Sequence[Headers | None]], None] | None:
        """Note the start of a transaction; return the tracer's callback for headers, if any."""
        if self._tracer is None:
            return None
        self._fail_trace("it was given up")
        self._trace = self._tracer.begin()
        return None if self._trace is None else self._trace.look

    def _fail_trace(self, cause: str) -> None:
        """End the current trace as failed, if there is one."""
        if self._trace is not None:
            self._trace.fail(cause)
            self._trace = None

    def new_tally(self) -> BatchCounts:
        """Return the counts to fill for a transaction; with samples if duplicates are compared."""
        return BatchCounts(samples=None if self._comparer is None else DuplicateSamples())

    def committed(self, plan: Plan, duration_s: float) -> None:
        """Count a committed transaction."""
        now_ms = self._clock.wall_ms()
        if self._trace is not None:
            self._trace.end(plan)
            self._trace = None
        self._totals.add(plan, now_ms)
        count(self.metrics, plan, now_ms)
        self._unchecked_log.add(plan.tally, self._clock.monotonic_s())
        if self._comparer is not None and plan.tally.samples is not None:
            self._comparer.offer(plan.tally.samples)
        self.metrics.stage("commit", duration_s)
        self.metrics.committed(duration_s)

    def expired(
        self,
        expired: Sequence[tuple[PartitionId, tuple[str, ...]]],
        held: Collection[AbstractSet[str]],
    ) -> None:
        """Count expired addresses, and forget the counts and labels of those that are gone.

        `held` are the caches that the partitions of this process still hold.
        """
        self.metrics.addresses_expired(len(expired))
        for _, caches in expired:
            gone = [cache for cache in caches if not any(cache in each for each in held)]
            self.address_counters.forget(gone)
            names = {home_of(cache) for cache in gone}
            if not any(cache in each for cache in caches for each in held):
                self.metrics.forget_addresses(names)

    def aborted(self, fault: KafkaFailure) -> None:
        """Count and log an aborted transaction."""
        self._totals.counts = self._totals.counts.more(transactions_aborted=1)
        self._fail_trace(fault.cause)
        self.metrics.not_committed("aborted")
        log = _log.info if fault in PRECAUTIONS else _log.warning
        log("transaction_aborted", cause=fault.cause, of_record=fault.of_record)

    def damaged(self, sentence: str) -> None:
        """Log that a store is wiped and restored."""
        _log.warning("store_damaged", cause=sentence)

    def unknown(self, fault: KafkaFailure) -> None:
        """Count and log the end of a life whose last transaction has an unknown outcome."""
        self.metrics.not_committed("unknown")
        self._fail_trace(fault.cause)
        if fault.fenced:
            self.metrics.fenced()
        _log.warning("outcome_unknown", cause=fault.cause, fenced=fault.fenced)
        self._statuses, self._standbys = (), ()

    def client_error(self, name: str, text: str) -> None:
        """Count and log an error that the client reported."""
        self.metrics.client_error(name)
        _log.warning("client_error", error=name, text=text)

    def throttled(self, duration_s: float) -> None:
        """Note that a quota of the broker delays a client for so long."""
        self.metrics.throttled(duration_s)
        if duration_s <= 0:
            return  # the client reports the end of a series so
        if not self.is_throttled:
            _log.warning("throttled", seconds=round(duration_s, 3))
        self._throttled_until_s = self._clock.monotonic_s() + duration_s + _THROTTLED_S

    def compresses(self, codec: str | None) -> None:
        """Note the codec that was chosen for the producer; None for none."""
        if codec != self._codec:
            _log.info("compression_changed", codec=codec or "none", reason=_WHY_CODEC)
            self.metrics.compresses(codec)
            self._codec = codec

    @property
    def is_throttled(self) -> bool:
        """Whether a quota of the broker delays the clients, or did lately."""
        return self._clock.monotonic_s() < self._throttled_until_s

    def waiting(self, sentence: str, *, stands_still: bool = False) -> None:
        """Set the status to waiting; `sentence` says what for.

        `stands_still` is as in `ServiceStatus`.
        """
        self._stands_still = stands_still
        if sentence != self._waiting_for:
            self._waiting_for = sentence
            _log.warning("waiting", reason=sentence)
        self.publish("waiting", self._statuses)

    def resumed(self) -> None:
        """Note the end of a wait."""
        _log.info("going_on", reason=self._waiting_for)
        self._waiting_for, self._stands_still = None, False
        self._published_s = float("-inf")

    def turned(self, assignment: Assignment, missing: tuple[str, ...], *, complete: bool) -> None:
        """Note the end of a turn; publish the status a few times a second.

        `missing` are the inputs that do not exist.
        """
        if assignment.rebalances != self._rebalances:
            self._rebalances = assignment.rebalances
            self._count_rebalances(assignment.changes)
            self._published_s = float("-inf")
        if self._clock.monotonic_s() - self._published_s < _PUBLISH_S:
            return
        self._published_s = self._clock.monotonic_s()
        self._standbys = assignment.standbys.statuses()
        sources = sorted(assignment.partitions)
        reached = assignment.reached()
        statuses = tuple(
            self._with_wait(_status_of(each, assignment, reached), each)
            for each in map(assignment.partitions.__getitem__, sources)
        )
        self._lag_estimator.keep(assignment.partitions)
        self._statuses = statuses
        self._log_changes(statuses)
        self._log_held(assignment.held)
        self._missing = missing
        self._log_blocks(assignment.fetching.blocks)
        phase: ServicePhase = "running" if assignment.rebalances else "starting"
        phase = "waiting" if self._waiting_for else phase
        self._partitions_total = assignment.partitions_total
        self.publish(phase, statuses, complete=complete)

    def follows(self, config: Config, document: int, applied: int, fault: str | None) -> None:
        """Report how far the settings are effective.

        Args:
            config: the effective settings
            document: the revision of their document
            applied: the oldest revision that a partition has applied
            fault: why a newer document is not effective

        """
        self._config_revision = applied
        self._hops = tuple(hop.value for hop in hops_of(route.scope for route in config.routes))
        if document != self._named_by:
            self._named_by = document
            self.metrics.name_addresses(_named(config))
        if fault != self._config_fault:
            self._config_fault = fault
            self._published_s = float("-inf")
            if fault is not None:
                self.metrics.config_not_applied()
                _log.error("settings_not_applied", reason=fault)

    def sample(
        self,
        running: Mapping[PartitionId, OwnedPartition],
        scanner: OccupancyScanner,
        book: AddressBook,
    ) -> None:
        """Sample the local state every few seconds; call it between two batches."""
        now_s = self._clock.monotonic_s()
        if now_s - self._sampled_s >= PERIOD_S:
            self._sampled_s = now_s
            labels = self.metrics.labelled_addresses
            self.metrics.sampled(self._sampler.take(running, scanner, book, labels))
            self._log_oversized(scanner.cache)

    def _with_wait(self, status: PartitionStatus, partition: OwnedPartition) -> PartitionStatus:
        """Return the status with the lag in time."""
        age_ms = self._clock.wall_ms() - partition.time_ms if partition.time_ms else None
        now_s = self._clock.monotonic_s()
        lag_ms = self._lag_estimator.of(
            partition.source, status.lag_records, now_s=now_s, age_ms=age_ms
        )
        return status.model_copy(update={"lag_ms": lag_ms})

    def _count_rebalances(self, changes: Counter[RebalanceKind]) -> None:
        if changes.total() < self._changes.total():
            self._changes = Counter()  # a new life counts from 0
        for kind, times in (changes - self._changes).items():
            self.metrics.rebalance(kind, times)
        self._changes = Counter(changes)

    def _log_changes(self, statuses: tuple[PartitionStatus, ...]) -> None:
        """Log each partition that became RUNNING or was released."""
        running = {s.source: s for s in statuses if s.phase == PartitionPhase.RUNNING.value}
        for key in sorted(running.keys() - self._running):
            status = running[key]
            _log.info(
                "partition_running",
                partition="{}-{}".format(*key),
                next_offset=status.next_offset,
                restored_records=status.restored_records,
            )
        for key in sorted(self._running - running.keys()):
            _log.info("partition_released", partition="{}-{}".format(*key))
        self._running = set(running)

    def _log_oversized(self, cache: Cache) -> None:
        """Log an address whose state alone takes more memory than the limit, once."""
        found = cache.oversized
        name = None if found is None else (found.source, found.address)
        if found is not None and name != self._oversized:
            _log.warning(
                "cache_exceeded",
                address=found.address,
                partition="{}-{}".format(*found.source),
                bytes=found.memory_bytes,
                limit_bytes=cache.memory_bytes_max,
                fix="raise service.cache_memory_mb, or give the address a smaller size",
            )
        self._oversized = name

    def _log_held(self, held: Mapping[PartitionId, int]) -> None:
        """Log each input that is newly held back by an open transaction."""
        self.metrics.held_back(len(held))
        for source in sorted(held.keys() - self._held):
            reason = describe_held({source: held[source]})
            _log.warning("input_held_back", partition="{}-{}".format(*source), reason=reason)
        self._held = frozenset(held)

    def _log_blocks(self, blocks: Mapping[PartitionId, Block]) -> None:
        """Log once what partitions or inputs wait for, and once that it has ended.

        A short wait is none to act on: the first record with a new schema waits for it.
        """
        until_ms = self._clock.wall_ms() - _NOTED_MS
        lasting: dict[str, list[PartitionId]] = {}
        for source, block in sorted(blocks.items()):
            if block.since_ms <= until_ms or block.sentence in self._blocked:
                lasting.setdefault(block.sentence, []).append(source)
        if self._missing:
            lasting[missing_inputs(*self._missing)] = []
        for sentence in lasting.keys() - self._blocked:
            waiting = [f"{each.topic}-{each.partition}" for each in lasting[sentence]]
            _log.warning("blocked", reason=sentence, partitions=waiting[:_NAMES_MAX])
        for sentence in self._blocked - lasting.keys():
            _log.info("unblocked", reason=sentence)
        self._blocked = frozenset(lasting)

    def publish(
        self,
        phase: ServicePhase,
        partitions: tuple[PartitionStatus, ...],
        *,
        complete: bool = False,
    ) -> None:
        """Publish a status on the board."""
        totals = self._totals
        self._count_compared()
        status = ServiceStatus(
            phase=phase,
            waiting_for=self._waiting_for,
            instance=self._settings.instance,
            group_id=self._settings.group_id,
            started_at=self._started_at,
            partitions=partitions,
            counts=totals.counts,
            complete=complete,
            partitions_total=self._partitions_total,
            config_revision=self._config_revision,
            config_fault=self._config_fault,
            hops=self._hops,
            inputs_missing=self._missing,
            routes=totals.routes.values,
            standbys=self._standbys,
            stands_still=self._stands_still,
            compression=self._codec,
        )
        self._board.publish(status)

    def _count_compared(self) -> None:
        """Count the duplicates that were compared since the last status."""
        for compared in () if self._comparer is None else self._comparer.take():
            self.metrics.compared(compared.sample.route, compared.result)
            self._totals.routes.add_compared(compared)
            self._differing_log.add(compared)


def _named(config: Config) -> Iterator[str]:
    """Yield the addresses that routes make of named inputs, and those with named settings."""
    for route in config.routes:
        for topic in route.inputs:
            address = Template.parse(route.address, topic).constant
            if address is not None and not topic.startswith(EXPRESSION_MARKER):
                yield address
    yield from config.addresses.named


def _status_of(
    partition: OwnedPartition, assignment: Assignment, reached: Mapping[PartitionId, int]
) -> PartitionStatus:
    running = partition.phase is PartitionPhase.RUNNING
    replay = assignment.replay(partition)
    paused = assignment.fetching.is_paused(partition)
    block = assignment.fetching.blocks.get(partition.source)
    end = assignment.end_of(partition) if running else None
    return PartitionStatus(
        topic=partition.source.topic,
        partition=partition.source.partition,
        phase=partition.phase.value,
        committed_offset=partition.committed_offset,
        next_offset=partition.next_offset if running else None,
        end_offset=end,
        lag_records=None if end is None else max(0, end - reached[partition.source]),
        changelog_next_offset=partition.changelog_next if running and partition.changelog else None,
        restored_records=partition.restored_records if replay is None else replay.records,
        restore_remaining_records=(
            None if replay is None else max(0, replay.end - replay.position.changelog_next)
        ),
        addresses=len(partition.addresses),
        groups_open=len(partition.groups.open),
        paused=paused,
        waiting_for=None if block is None else block.sentence,
        waiting_since=(
            None if block is None else datetime.fromtimestamp(block.since_ms / 1000, UTC)
        ),
    )
