"""Bridge loop: consume → forward → deliver → commit, on one thread.

An offset is committed only after everything before it was delivered. After any failure the bridge
reads again from the committed offsets and sends the records again, with the same stamps, to the
same partitions; a Ringfence behind the target removes the duplicates.
"""

from typing import Final

from ringfence_service.bridge.clients import (
    BATCH_RECORDS_MAX,
    BridgeClients,
    ClusterRefusedError,
    Side,
    named,
)
from ringfence_service.bridge.config import BridgeConfig
from ringfence_service.bridge.consumer import AT_ONCE, BridgeConsumer, SourcePartition
from ringfence_service.bridge.forward import ForwardContext, Shipment, forward
from ringfence_service.bridge.producer import BridgeProducer, NotDeliveredError, Refused
from ringfence_service.bridge.reporter import BridgeReporter
from ringfence_service.bridge.topics import TopicMappings
from ringfence_service.clock import Clock
from ringfence_service.config.kafka_properties import compresses
from ringfence_service.errors import ExitCode, ExitError
from ringfence_service.kafka.errors import KafkaFailure, Recovery, waited_for, without_frames

_BATCH_BYTES_MAX: Final = 64 * 1024 * 1024
"""Bytes of the values of a batch, which stay in memory until they are delivered.

The same as the default of `service.batch_bytes_max`.
"""
_READ_WAIT_S: Final = 0.02
"""How long the first read of a batch collects records: at a low rate a record waits so long.

An idle bridge takes 50 turns a second. The same as the default of `service.batch_wait_ms`.
"""
_LATE_S: Final = 2.0
"""How long a cluster may give no answer before the bridge reports that it waits.

A bridge that waits is not ready, so a single slow request must not count.
"""
_STOP_S: Final = 5.0
"""How long a stopping bridge waits for records in flight."""
_BACKOFF_S: Final = (0.1, 0.5, 1.0, 2.0, 5.0)
"""Pauses after failures in a row; the first is also the pause while no topic is forwarded.

A short failure costs little time. The last is repeated, so a cluster is asked at least every five
seconds.
"""
_START_PATIENCE_S: Final = 20.0
"""How long a cluster may fail all requests before the bridge has been ready once.

Less than `_PATIENCE_S`: at the start the cause may be a wrong address, which does not pass.
"""
_PATIENCE_S: Final = 300.0
"""How long a cluster may fail all requests before the process ends with exit code 3."""


class BridgeLoop:
    """One bridge, until it is stopped."""

    def __init__(
        self, config: BridgeConfig, clients: BridgeClients, clock: Clock, reporter: BridgeReporter
    ) -> None:
        self._config, self._clients, self._clock, self._reporter = config, clients, clock, reporter
        self._mappings = TopicMappings(config, clients.source, clients.target, clock)
        self.consumer = BridgeConsumer(clients, config.bridge.group_id, clock)
        self.producer = BridgeProducer(clients, clock)
        self._suspects: Refused = {}
        self._refused: Refused = {}
        self._settled = True
        """Whether everything that was sent is committed."""
        self._failing_since_s: float | None = None
        self._doubtful = False
        """Whether a failure may persist: only a commit proves that it is over, not an idle turn."""
        self._failures = 0
        self._patience_s = _START_PATIENCE_S
        self._stopping = False

    def stop(self) -> None:
        """Finish the current batch and end; safe in a signal handler."""
        self._stopping = True

    def run(self) -> None:
        """Forward until `stop`; raise ExitError for every other end."""
        try:
            while not self._stopping:
                self.turn()
            self._reporter.publish("stopping")
        finally:
            self.producer.drop()
            self.consumer.close()

    def turn(self) -> None:
        """Run one turn: read new records, deliver them, and commit their offsets."""
        self._reporter.beat()
        try:
            self.prepare()
            shipments = self.send()
            if shipments:
                self.producer.settle(self._undelivered)
                self.consumer.commit(self._uncommitted)
                self._committed(shipments)
        except NotDeliveredError as failure:
            self._not_delivered(without_frames(failure))
        except ClusterRefusedError as unanswered:
            self._unanswered(without_frames(unanswered))
        else:
            self._went_well()

    def prepare(self) -> None:
        """Refresh topics and subscription, create the producer, and start granted partitions."""
        if self.consumer.lost_broker:
            self.consumer.lost_broker = False
            self._mappings.suspect()
        self._mappings.refresh(settled=self._settled)
        self.consumer.subscribe(self._mappings.open)
        self.producer.prepare(self._mappings.batch_bytes_max)
        self.consumer.take_over()
        self._patience_s = _PATIENCE_S

    def send(self) -> list[tuple[SourcePartition, Shipment]]:
        """Read and send a batch in small parts; return what was sent, by partition."""
        rules = self._rules()
        shipments = []
        room_records, room_bytes, wait_s = BATCH_RECORDS_MAX, _BATCH_BYTES_MAX, _READ_WAIT_S
        while room_records > 0 and room_bytes > 0:
            parts = self.consumer.read(min(AT_ONCE, room_records), wait_s)
            for position, messages in parts:
                self._settled = False
                shipment = forward(position, messages, rules, self.producer.failed)
                self.producer.send(shipment.records)
                position.sent = (messages[-1].offset() or 0) + 1
                shipments.append((position, shipment))
                room_records -= len(messages)
                room_bytes -= sum(map(len, messages))
            if not parts:
                break
            wait_s = 0.0  # the rest of the batch is what has already arrived
        return shipments

    def _rules(self) -> ForwardContext:
        bridge, target = self._config.bridge, self._config.target
        return ForwardContext(
            cluster_id=self._mappings.cluster_id,
            stamping=bridge.use_duplicate_detection,
            keep_partition=bridge.keep_partition,
            compressing=compresses(target.producer),
            dead_letter=self._config.dead_letter,
            refused=self._refused,
        )

    def _committed(self, shipments: list[tuple[SourcePartition, Shipment]]) -> None:
        """Report a committed batch, and forget the refused records that it passed."""
        self._reporter.forwarded(shipments)
        self._settled, self._doubtful = True, False
        self._refused = self._ahead(self._refused)
        self._suspects = self._ahead(self._suspects)
        if not self._suspects:
            self.producer.together()

    def _ahead(self, refused: Refused) -> Refused:
        running = self.consumer.running
        return {
            (source, offset): why
            for (source, offset), why in refused.items()
            if source in running and running[source].committed <= offset
        }

    def _not_delivered(self, failure: NotDeliveredError) -> None:
        """Rewind to the committed offsets; records refused alone are dead-lettered next time."""
        fault, suspects = failure.fault, failure.suspects
        self._reporter.not_delivered(fault.cause, of_record=fault.of_record)
        if failure.proven:
            for (topic, number), offset in suspects.keys() & self._refused.keys():
                sentence = (
                    f"The target refuses {topic}-{number}@{offset}, and also its dead letter in "
                    f"{self._config.dead_letter} ({fault.cause}); correct that topic's settings."
                )
                raise ExitError(ExitCode.CONTRADICTION, sentence)
            self._refused |= suspects
        self._suspects |= suspects
        self._rewind()
        if not fault.of_record:
            self._mappings.suspect()
            self._doubtful = True
            self._wait("target", fault.cause)

    def _unanswered(self, unanswered: ClusterRefusedError) -> None:
        self._mappings.suspect()
        self.producer.drop()
        self._rewind()
        self._wait(unanswered.side, unanswered.fault.cause)

    def _rewind(self) -> None:
        try:
            self.consumer.rewind()
        except ClusterRefusedError as error:
            where = named("source", self._config.source)
            sentence = (
                f"Cannot go on reading {where} ({error.fault.cause}); start the bridge again."
            )
            raise ExitError(ExitCode.BROKER, sentence) from error

    def _went_well(self) -> None:
        self._doubtful = self._doubtful and not self.consumer.caught_up
        if not self._doubtful:
            self._failing_since_s, self._failures = None, 0
        if self._mappings.missing:
            self._reporter.wait(f"{', '.join(self._mappings.missing)}; create what is missing")
        elif not self._doubtful:
            self._reporter.go_on()
        self._reporter.turned(self.consumer)
        if not self._mappings.open:
            self._clock.sleep(_BACKOFF_S[0])

    def _undelivered(self, still_s: float) -> None:
        """Report that no record has been delivered for a while, and give up after a timeout.

        By then the group may have assigned the partitions to another bridge. Records delivered even
        later could reach a target that has already forgotten the originals.
        """
        self._late("target", still_s, self.producer.last_error or "nothing so far")

    def _uncommitted(self, still_s: float) -> None:
        """Report that the commit has not been answered for a while, and give up after a timeout."""
        self._late("source", still_s, "nothing to the commit so far")

    def _late(self, side: Side, still_s: float, cause: str) -> None:
        self._reporter.beat()
        patience_s = _STOP_S if self._stopping else self._config.bridge.session_timeout_ms / 1000
        if still_s > patience_s:
            self._doubtful = True
            silent = KafkaFailure(Recovery.RETRY, of_record=False, fenced=False, cause=cause)
            raise ClusterRefusedError(side, silent)
        if still_s > _LATE_S:
            self._report_wait(side, cause)

    def _wait(self, side: Side, cause: str) -> None:
        """Report the cause, and back off."""
        self._report_wait(side, cause)
        self._clock.sleep(_BACKOFF_S[min(self._failures, len(_BACKOFF_S) - 1)])
        self._failures += 1

    def _report_wait(self, side: Side, cause: str) -> None:
        """Publish what the bridge waits for; raise ExitError if it has waited too long."""
        cluster = self._config.source if side == "source" else self._config.target
        explain = (self._clients.source if side == "source" else self._clients.target).explain
        sentence = waited_for(cause, explain, named(side, cluster))
        self._reporter.wait(sentence)
        now_s = self._clock.monotonic_s()
        self._failing_since_s = self._failing_since_s or now_s
        if now_s - self._failing_since_s > self._patience_s:
            raise ExitError(ExitCode.BROKER, f"Cannot work with {sentence}.")
