"""Bridge reporter: heartbeat, status, metrics and log lines of a bridge."""

import platform
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Final

import structlog

from ringfence_service.bridge.consumer import BridgeConsumer, SourcePartition
from ringfence_service.bridge.forward import Shipment
from ringfence_service.clock import Clock
from ringfence_service.queries.status import (
    PartitionPhase,
    PartitionStatus,
    ServicePhase,
    ServiceStatus,
    StatusBoard,
)
from ringfence_service.telemetry.metrics import Metrics
from ringfence_state.model import PartitionId

_PUBLISH_S: Final = 0.25
"""Time between two statuses: fresh for a reader, although each asks the client for every lag."""
_log = structlog.stdlib.get_logger(__name__)


class BridgeReporter:
    """Keeps the bridge's totals and publishes its status on the board."""

    def __init__(self, group_id: str, clock: Clock, board: StatusBoard, metrics: Metrics) -> None:
        self._clock = clock
        self._board = board
        self._metrics = metrics
        self._status = ServiceStatus.starting(
            platform.node(), group_id, datetime.fromtimestamp(clock.wall_ms() / 1000, UTC)
        )
        self._published_s = float("-inf")
        self._waiting: str | None = None

    def beat(self) -> None:
        """Record a heartbeat of the loop."""
        self._board.beat()

    def forwarded(self, shipments: Iterable[tuple[SourcePartition, Shipment]]) -> None:
        """Count a batch that was delivered and committed."""
        now = self._status
        consumed = letters = 0
        for position, (records, stamped, dead_letters) in shipments:
            topic = position.source.topic
            consumed, letters = consumed + len(records), letters + len(dead_letters)
            self._metrics.bridged(topic, len(records) - len(dead_letters), stamped)
            for reason in dead_letters:
                self._metrics.dead_letters(topic, reason, 1)
        self._status = now._replace(
            counts=now.counts.more(
                datetime.fromtimestamp(self._clock.wall_ms() / 1000, UTC),
                records_consumed=consumed,
                records_accepted=consumed - letters,
                dead_letters=letters,
                refused=letters,
            )
        )

    def not_delivered(self, cause: str, *, of_record: bool) -> None:
        """Log that a batch has to be sent again."""
        _log.warning("not_delivered", cause=cause, of_record=of_record)

    def wait(self, sentence: str) -> None:
        """Publish that the bridge waits, which makes it not ready; the sentence says for what."""
        if self._waiting != sentence:
            _log.warning("waiting", reason=sentence)
        self._waiting = sentence
        self.publish("waiting")

    def go_on(self) -> None:
        """Note that the bridge no longer waits."""
        if self._waiting is not None:
            _log.info("going_on", reason=self._waiting)
            self._waiting = None
            self._published_s = float("-inf")

    def turned(self, consumer: BridgeConsumer) -> None:
        """Publish the status after a turn, at most four times a second."""
        now_s = self._clock.monotonic_s()
        if now_s - self._published_s < _PUBLISH_S:
            return
        self._published_s = now_s
        found = [_status_of(each, consumer) for _, each in sorted(consumer.running.items())]
        granted = [
            _status(source, phase="assigned", committed=None) for source in sorted(consumer.granted)
        ]
        self._log_changes(found)
        self._status = self._status._replace(partitions=(*found, *granted))
        joined: ServicePhase = "running" if consumer.rebalances else "starting"
        self.publish("waiting" if self._waiting else joined)

    def publish(self, phase: ServicePhase) -> None:
        """Publish the status on the board with this phase."""
        self._status = self._status._replace(phase=phase, waiting_for=self._waiting)
        self._board.publish(self._status)

    def _log_changes(self, found: list[PartitionStatus]) -> None:
        """Log a line for each partition that was started or released."""
        before = {each.source for each in self._status.partitions if each.phase == "running"}
        now = {each.source: each for each in found}
        for key in sorted(now.keys() - before):
            name, offset = "{}-{}".format(*key), now[key].next_offset
            _log.info("partition_running", partition=name, next_offset=offset)
        waited = {each.waiting_for for each in self._status.partitions}
        for sentence in {each.waiting_for for each in found} - waited:
            _log.warning("blocked", reason=sentence)
        for key in sorted(before - now.keys()):
            _log.info("partition_released", partition="{}-{}".format(*key))


def _status_of(position: SourcePartition, consumer: BridgeConsumer) -> PartitionStatus:
    log = consumer.log(position)
    offset = position.committed if position.committed >= 0 else None
    return _status(
        position.source,
        phase="running",
        committed=offset,
        end=None if log is None else log[1],
        lag=consumer.lag(position),
        waiting_for=position.waiting_for,
    )


def _status(
    source: PartitionId,
    *,
    phase: PartitionPhase,
    committed: int | None,
    end: int | None = None,
    lag: int | None = None,
    waiting_for: str | None = None,
) -> PartitionStatus:
    """Return the status of a partition, which has no state."""
    return PartitionStatus(
        topic=source.topic,
        partition=source.partition,
        phase=phase,
        committed_offset=committed,
        next_offset=committed,
        end_offset=end,
        lag_records=lag,
        changelog_next_offset=None,
        restored_records=0,
        restore_remaining_records=None,
        addresses=0,
        groups_open=0,
        waiting_for=waiting_for,
    )
