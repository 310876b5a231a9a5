"""Bridge loop: consume → forward → deliver → commit, on one thread.

An offset is committed only after everything before it was delivered. After any failure the bridge
reads again from the committed offsets and sends once more, with the same stamps, to the same
partitions; a Ringfence behind the target removes the duplicates.
"""

from typing import Final

from service.bridge.clients import (
    BATCH_RECORDS_MAX,
    BridgeClients,
    ClusterRefusedError,
    Side,
    named,
)
from service.bridge.config import BridgeConfig
from service.bridge.consumer import AT_ONCE, BridgeConsumer, SourcePartition
from service.bridge.forward import ForwardContext, Shipment, forward
from service.bridge.producer import BridgeProducer, NotDeliveredError, Refused
from service.bridge.reporter import BridgeReporter
from service.bridge.topics import TopicMappings
from service.clock import Clock
from service.config.kafka_properties import compresses
from service.errors import ExitCode, ExitError
from service.kafka.errors import KafkaFailure, Recovery

_BATCH_BYTES_MAX: Final = 64 * 1024 * 1024
_READ_WAIT_S: Final = 0.02
_LATE_S: Final = 2.0
_STOP_S: Final = 5.0
"""How long a stopping bridge waits for what is on its way."""
_BACKOFF_S: Final = (0.1, 0.5, 1.0, 2.0, 5.0)
_START_PATIENCE_S: Final = 20.0
_PATIENCE_S: Final = 300.0
"""How long a cluster may refuse everything before the process ends with exit code 3."""


class BridgeLoop:
    """One bridge, until it is stopped."""

    def __init__(
        self, config: BridgeConfig, clients: BridgeClients, clock: Clock, watch: BridgeReporter
    ) -> None:
        self._config, self._clock, self._watch = config, clock, watch
        self._crossings = TopicMappings(config, clients.source, clients.target, clock)
        self.positions = BridgeConsumer(clients, config.bridge.group_id, clock)
        self._sender = BridgeProducer(clients, clock)
        self._suspects: Refused = {}
        self._refused: Refused = {}
        self._settled = True
        """Nothing was sent that is not committed."""
        self._failing_since_s: float | None = None
        self._doubtful = False
        """A round without a fault is no proof that all is well: a commit is."""
        self._failures = 0
        self._patience_s = _START_PATIENCE_S
        self._stopping = False

    def stop(self) -> None:
        """Finish the batch at hand and leave; safe in a signal handler."""
        self._stopping = True

    def run(self) -> None:
        """Until `stop`; ExitError for every end that is not one's own wish."""
        try:
            while not self._stopping:
                self.turn()
            self._watch.publish("stopping")
        finally:
            self._sender.drop()
            self.positions.close()

    def turn(self) -> None:
        """One round: whatever has come, delivered and committed."""
        self._watch.beat()
        try:
            self._prepare()
            shipments = self._send()
            if shipments:
                self._sender.settle(self._undelivered)
                self.positions.commit(self._uncommitted)
                self._committed(shipments)
        except NotDeliveredError as failure:
            self._not_delivered(failure)
        except ClusterRefusedError as unanswered:
            self._unanswered(unanswered)
        else:
            self._went_well()

    def _prepare(self) -> None:
        """Topics that appeared, a producer, partitions to take over."""
        if self.positions.shaken:
            self.positions.shaken = False
            self._crossings.suspect()
        self._crossings.refresh(settled=self._settled)
        self.positions.subscribe(self._crossings.open)
        self._sender.prepare(self._crossings.batch_bytes_max)
        self.positions.take_over()
        self._patience_s = _PATIENCE_S

    def _send(self) -> list[tuple[SourcePartition, Shipment]]:
        """A batch on its way, read and sent a little at a time; what it holds, by partition."""
        rules = self._rules()
        shipments = []
        room_records, room_bytes, wait_s = BATCH_RECORDS_MAX, _BATCH_BYTES_MAX, _READ_WAIT_S
        while room_records > 0 and room_bytes > 0:
            parts = self.positions.read(min(AT_ONCE, room_records), wait_s)
            for position, messages in parts:
                self._settled = False
                shipment = forward(position, messages, rules, self._sender.failed)
                self._sender.send(shipment.records)
                position.sent = (messages[-1].offset() or 0) + 1
                shipments.append((position, shipment))
                room_records -= len(messages)
                room_bytes -= sum(map(len, messages))
            if not parts:
                break
            wait_s = 0.0  # the rest of the batch is what is there already
        return shipments

    def _rules(self) -> ForwardContext:
        bridge, target = self._config.bridge, self._config.target
        return ForwardContext(
            cluster_id=self._crossings.cluster_id,
            stamping=bridge.use_duplicate_detection,
            keep_partition=bridge.keep_partition,
            compressing=compresses(target.producer),
            dead_letter=self._config.dead_letter,
            refused=self._refused,
        )

    def _committed(self, shipments: list[tuple[SourcePartition, Shipment]]) -> None:
        """Told, and forgotten: what was refused is behind us."""
        self._watch.forwarded(shipments)
        self._settled, self._doubtful = True, False
        self._refused = self._ahead(self._refused)
        self._suspects = self._ahead(self._suspects)
        if not self._suspects:
            self._sender.together()

    def _ahead(self, refused: Refused) -> Refused:
        running = self.positions.running
        return {
            (source, offset): why
            for (source, offset), why in refused.items()
            if source in running and running[source].committed <= offset
        }

    def _not_delivered(self, failure: NotDeliveredError) -> None:
        """Send again from what is committed; what was refused for itself, to the dead letters."""
        fault, suspects = failure.fault, failure.suspects
        self._watch.not_delivered(fault.cause, of_record=fault.of_record)
        if failure.proven:
            for (topic, number), offset in suspects.keys() & self._refused.keys():
                sentence = (
                    f"The target refuses {topic}-{number}@{offset}, and its dead letter in "
                    f"{self._config.dead_letter} as well ({fault.cause}); mend that topic."
                )
                raise ExitError(ExitCode.CONTRADICTION, sentence)
            self._refused |= suspects
        self._suspects |= suspects
        self._rewind()
        if not fault.of_record:
            self._crossings.suspect()
            self._doubtful = True
            self._wait("target", fault.cause)

    def _unanswered(self, unanswered: ClusterRefusedError) -> None:
        self._crossings.suspect()
        self._sender.drop()
        self._rewind()
        self._wait(unanswered.side, unanswered.fault.cause)

    def _rewind(self) -> None:
        try:
            self.positions.rewind()
        except ClusterRefusedError as error:
            where = named("source", self._config.source)
            sentence = f"Cannot read on from {where} ({error.fault.cause}); start the bridge again."
            raise ExitError(ExitCode.BROKER, sentence) from error

    def _went_well(self) -> None:
        self._doubtful = self._doubtful and not self.positions.caught_up
        if not self._doubtful:
            self._failing_since_s, self._failures = None, 0
        if self._crossings.missing:
            self._watch.wait(f"{', '.join(self._crossings.missing)}; create what does not exist")
        elif not self._doubtful:
            self._watch.go_on()
        self._watch.turned(self.positions)
        if not self._crossings.open:
            self._clock.sleep(_BACKOFF_S[0])

    def _undelivered(self, still_s: float) -> None:
        """Nothing of what was sent has been delivered for a while: say so, then take it back.

        By then the group may have given the partitions to another bridge; what this one sent later
        still would find a target that has forgotten the originals.
        """
        self._late("target", still_s, self._sender.last_error or "nothing so far")

    def _uncommitted(self, still_s: float) -> None:
        """Nobody has answered for the offsets yet."""
        self._late("source", still_s, "nothing to our commit so far")

    def _late(self, side: Side, still_s: float, said: str) -> None:
        self._watch.beat()
        patience_s = _STOP_S if self._stopping else self._config.bridge.session_timeout_ms / 1000
        if still_s > patience_s:
            self._doubtful = True
            silent = KafkaFailure(Recovery.RETRY, of_record=False, fenced=False, cause=said)
            raise ClusterRefusedError(side, silent)
        if still_s > _LATE_S:
            self._say(side, said)

    def _wait(self, side: Side, cause: str) -> None:
        """Back off."""
        self._say(side, cause)
        self._clock.sleep(_BACKOFF_S[min(self._failures, len(_BACKOFF_S) - 1)])
        self._failures += 1

    def _say(self, side: Side, cause: str) -> None:
        """Tell what is waited for, and end when it takes too long."""
        cluster = self._config.source if side == "source" else self._config.target
        where, now_s = named(side, cluster), self._clock.monotonic_s()
        self._watch.wait(f"{where}, which answered {cause}; see its log and our rights")
        self._failing_since_s = self._failing_since_s or now_s
        if now_s - self._failing_since_s > self._patience_s:
            sentence = (
                f"Cannot work with {where}, which answered {cause}; "
                "check the address, the network and our rights."
            )
            raise ExitError(ExitCode.BROKER, sentence)
