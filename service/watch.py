"""Watch: what the loop tells the outside: heartbeat, status, metrics, and a line where it matters.

The loop calls it with what happened; the watch decides what becomes of that. It outlives the
loop's lives, so that totals and phases do too.
"""

from datetime import UTC, datetime
from typing import Final, NamedTuple

import structlog
from confluent_kafka import TopicPartition

from service.assignment import Assignment
from service.clock import Clock
from service.config import ServiceSettings
from service.faults import Fault
from service.metrics import Metrics, Stage
from service.partition import Partition, Phase
from service.plan import Plan
from service.status import PartitionStatus, ServicePhase, Status, StatusBoard
from service.tally import Totals, count

_PUBLISH_S: Final = 0.25
_log = structlog.stdlib.get_logger(__name__)


class Waiting(NamedTuple):
    """What the loop waits for, and since when."""

    sentence: str
    since_s: float


class Watch:
    """Totals, and what is pinned on the board."""

    def __init__(
        self, settings: ServiceSettings, clock: Clock, board: StatusBoard, metrics: Metrics
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._board = board
        self._metrics = metrics
        self._started_at = datetime.fromtimestamp(clock.wall_ms() / 1000, UTC)
        self._totals = Totals()
        self._published_s = float("-inf")
        self._rebalances = 0
        self._doubtful = False
        self._running: set[tuple[str, int]] = set()
        self._statuses: tuple[PartitionStatus, ...] = ()
        self.waiting: Waiting | None = None

    def beat(self) -> None:
        """The loop lives."""
        self._board.beat()

    def stage(self, stage: Stage, duration_s: float) -> None:
        """How long a stage of the batch at hand took."""
        self._metrics.stage(stage, duration_s)

    def committed(self, plan: Plan, duration_s: float) -> None:
        """A transaction has committed."""
        now_ms = self._clock.wall_ms()
        self._doubtful = False
        self._totals.add(plan, now_ms)
        count(self._metrics, plan, now_ms)
        self._metrics.stage("commit", duration_s)
        self._metrics.committed(duration_s)

    def aborted(self, fault: Fault) -> None:
        """A transaction was aborted."""
        self._totals.transactions_aborted += 1
        self._metrics.not_committed("aborted")
        _log.warning("transaction_aborted", cause=fault.cause, of_record=fault.of_record)

    def damaged(self, sentence: str) -> None:
        """A store is wiped and restored."""
        _log.warning("store_damaged", cause=sentence)

    def unknown(self, fault: Fault) -> None:
        """A life ends: what became of its last transaction, the broker says."""
        self._metrics.not_committed("unknown")
        if fault.fenced:
            self._metrics.fenced()
        _log.warning("outcome_unknown", cause=fault.cause, fenced=fault.fenced)
        sentence = f"the broker, which answered {fault.cause}; see its log and our rights"
        self._statuses = ()
        self.wait(sentence, until_commit=not fault.fenced)

    def client_error(self, name: str, text: str) -> None:
        """The client reported an error beside the records."""
        self._metrics.client_error(name)
        _log.warning("client_error", error=name, text=text)

    def wait(self, sentence: str, *, until_commit: bool = False) -> None:
        """The loop waits for the world: not ready, and the sentence says for what.

        With `until_commit`, a round without a fault is no proof that it is over: a commit is.
        """
        self._doubtful = self._doubtful or until_commit
        if self.waiting is None or self.waiting.sentence != sentence:
            since_s = self.waiting.since_s if self.waiting else self._clock.monotonic_s()
            self.waiting = Waiting(sentence, since_s)
            _log.warning("waiting", reason=sentence)
        self.publish("waiting", self._statuses)

    def waited_s(self) -> float:
        """How long nothing has gone well; 0 while nothing is waited for."""
        return self._clock.monotonic_s() - self.waiting.since_s if self.waiting else 0.0

    def go_on(self) -> bool:
        """A round went well; tells whether nothing is waited for any more."""
        if self.waiting is not None and not self._doubtful:
            _log.info("going_on", reason=self.waiting.sentence)
            self.waiting = None
            self._published_s = float("-inf")
        return self.waiting is None

    def turned(self, assignment: Assignment, *, complete: bool) -> None:
        """A round is over; a few times a second its status is published."""
        if assignment.rebalances != self._rebalances:
            self._rebalances = assignment.rebalances
            self._metrics.rebalance("assigned")
            self._published_s = float("-inf")
        if self._clock.monotonic_s() - self._published_s < _PUBLISH_S:
            return
        self._published_s = self._clock.monotonic_s()
        places = sorted(assignment.partitions)
        statuses = tuple(_status_of(assignment.partitions[s], assignment) for s in places)
        self._statuses = statuses
        settled = assignment.rebalances and assignment.settled
        if settled and all(status.lag_records == 0 for status in statuses):
            self._doubtful = False  # there is nothing left that a commit could prove
        self._tell_changes(statuses)
        phase: ServicePhase = "running" if assignment.rebalances else "starting"
        phase = "waiting" if self.waiting else phase
        self.publish(phase, statuses, complete=complete)

    def _tell_changes(self, statuses: tuple[PartitionStatus, ...]) -> None:
        """A line for each partition that began to run or is gone."""
        running = {(s.topic, s.partition): s for s in statuses if s.phase == Phase.RUNNING.value}
        for place in sorted(running.keys() - self._running):
            status = running[place]
            _log.info(
                "partition_running",
                partition="{}-{}".format(*place),
                next_offset=status.next_offset,
                restored_records=status.restored_records,
            )
        for place in sorted(self._running - running.keys()):
            _log.info("partition_released", partition="{}-{}".format(*place))
        self._running = set(running)

    def publish(
        self,
        phase: ServicePhase,
        partitions: tuple[PartitionStatus, ...],
        *,
        complete: bool = False,
    ) -> None:
        """Pin a status on the board."""
        totals = self._totals
        status = Status(
            phase=phase,
            waiting_for=self.waiting.sentence if self.waiting else None,
            instance=self._settings.instance,
            group_id=self._settings.group_id,
            started_at=self._started_at,
            partitions=partitions,
            records_consumed=totals.records_consumed,
            records_accepted=totals.records_accepted,
            duplicates=totals.duplicates,
            dead_letters=totals.dead_letters,
            transactions_committed=totals.transactions_committed,
            transactions_aborted=totals.transactions_aborted,
            last_commit_at=totals.last_commit_at,
            complete=complete,
        )
        self._board.publish(status)


def _status_of(partition: Partition, assignment: Assignment) -> PartitionStatus:
    running = partition.phase is Phase.RUNNING
    replay = assignment.restorer.replays.get(partition.changelog)
    end = _end(partition, assignment) if running else None
    return PartitionStatus(
        topic=partition.source.topic,
        partition=partition.source.partition,
        phase=partition.phase.value,
        committed_offset=partition.committed_offset,
        next_offset=partition.next_offset if running else None,
        end_offset=end,
        lag_records=None if end is None else max(0, end - partition.next_offset),
        changelog_next_offset=partition.changelog_next if running else None,
        restored_records=partition.restored_records if replay is None else replay.records,
        restore_remaining_records=(
            None if replay is None else max(0, replay.end - replay.position.changelog_next)
        ),
        addresses=len(partition.addresses),
    )


def _end(partition: Partition, assignment: Assignment) -> int | None:
    """What the fetcher last heard of the end, open transactions left out; None before that."""
    source = partition.source
    offsets = assignment.consumer.get_watermark_offsets(
        TopicPartition(source.topic, source.partition), cached=True
    )
    return offsets[1] if offsets[1] >= 0 else None
