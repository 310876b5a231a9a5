"""Bridge producer: sends records to the target until all are delivered, or one is not.

After an undelivered record the producer sends nothing more, which guarantees that there is no gap,
and has to be replaced. Invariant: `settle` returns iff everything sent since the last call was
acknowledged by all replicas.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from ringfence_service.bridge.clients import BATCH_RECORDS_MAX, BridgeClients
from ringfence_service.bridge.forward import Sending
from ringfence_service.clock import Clock
from ringfence_service.kafka.errors import (
    KafkaFailure,
    Recovery,
    fault_of,
    rejection_of,
    without_frames,
)
from ringfence_service.kafka.io import send
from ringfence_state.model import PartitionId, Rejection

_FLUSH_SLICE_S: Final = 0.25
"""How long one flush may block: after it the heartbeat is updated and a failure is noticed."""
_REPORT_S: Final = 0.2
"""How long the next delivery report of a failed client is awaited; then there are no more."""
_REPORTS_MAX: Final = 2 * BATCH_RECORDS_MAX
"""How often a failed client is polled: more often than records can be in flight.

It ends the loop even if every call raises.
"""

_SILENT: Final = KafkaFailure(
    Recovery.REBUILD, of_record=False, fenced=False, cause="_FATAL: the producer gave up"
)

Refused = dict[tuple[PartitionId, int], Rejection]


class NotDeliveredError(Exception):
    """Some sent record was not delivered. The others may have been; all have to be sent again."""

    def __init__(self, fault: KafkaFailure, suspects: Refused, *, proven: bool) -> None:
        super().__init__(fault.cause)
        self.fault = fault
        self.suspects = suspects
        """Records in the requests that the broker refused, by partition and offset."""
        self.proven = proven
        """Whether each of them was refused alone; otherwise they shared a request."""


class BridgeProducer:
    """Producer of the target cluster, with the delivery state of the records handed to it."""

    def __init__(self, clients: BridgeClients, clock: Clock) -> None:
        self._clients = clients
        self._clock = clock
        self._producer: Producer | None = None
        self._batch_bytes_max = 0
        self._alone = False
        self._failed: dict[tuple[PartitionId, int], KafkaError] = {}
        self.last_error = ""
        """The last error that the client reported, for a sentence."""

    def prepare(self, batch_bytes_max: int) -> None:
        """Ensure a producer whose requests are not too large for any target topic."""
        if self._producer is not None and batch_bytes_max >= self._batch_bytes_max:
            return
        self.drop()
        records_max = 1 if self._alone else BATCH_RECORDS_MAX
        self._producer = self._clients.producer(batch_bytes_max, records_max, self.note_error)
        self._batch_bytes_max = batch_bytes_max

    def send(self, records: Sequence[Sending]) -> None:
        """Hand records to the client; raise NotDeliveredError if it accepts no more."""
        assert self._producer is not None  # prepare comes first
        try:
            send(self._producer, records)
        except (KafkaException, SystemError) as error:
            failed = without_frames(error)
        else:
            return
        raise self._not_delivered(failed)  # outside the `except` block: it calls the client

    def settle(self, waits: Callable[[float], None]) -> None:
        """Wait until everything is delivered; raise NotDeliveredError if a record is not.

        `waits` is called with the seconds without progress; it may raise.
        """
        producer, moved_s, failed = self._producer, self._clock.monotonic_s(), None
        assert producer is not None  # prepare comes first
        least = len(producer)
        try:
            while (left := producer.flush(_FLUSH_SLICE_S)) and not self._failed:
                if left < least:
                    least, moved_s = left, self._clock.monotonic_s()
                waits(self._clock.monotonic_s() - moved_s)
        except (KafkaException, SystemError) as error:
            failed = without_frames(error)
        if failed is not None or self._failed:
            raise self._not_delivered(failed)
        self.last_error = ""

    def together(self) -> None:
        """Let records share requests again, once all suspects are resolved."""
        if self._alone:
            self._alone = False
            self.drop()

    def drop(self) -> None:
        """Discard the producer with all records that it has not sent."""
        producer, self._producer = self._producer, None
        if producer is not None:
            with suppress(KafkaException, SystemError):
                producer.purge()
        self._failed = {}

    def failed(
        self, source: PartitionId, offset: int, error: KafkaError | None, _message: Message
    ) -> None:
        """Note the delivery report of a record.

        An exception of the client may be pending during this call: then every call from here fails,
        and the message must not be touched.
        """
        if error is not None:
            self._failed[source, offset] = error

    def note_error(self, error: KafkaError) -> None:
        """Keep an error that the client reports on its own."""
        self.last_error = f"{error.name()}: {error.str()}"

    def _not_delivered(self, error: Exception | None) -> NotDeliveredError:
        """Return the failure; a refused record among several is found by sending each alone next.

        A broker refuses a request as a whole. Only a refusal for size is certain for one record,
        because then the request contained no other.
        """
        if error is not None:
            self._collect_reports()
        faults = {position: fault_of(each) for position, each in self._failed.items()}
        blamed = {position: fault for position, fault in faults.items() if fault.of_record}
        fault = next(iter(blamed.values()), None) or _fatal(error) or next(iter(faults.values()))
        proven = self._alone or (len(blamed) == 1 and fault.too_large)
        self._alone = self._alone or (not proven and bool(blamed))
        self.drop()
        suspects = {position: rejection_of(each) for position, each in blamed.items()}
        return NotDeliveredError(fault, suspects, proven=proven)

    def _collect_reports(self) -> None:
        """Poll for the delivery reports; a failed client delivers them one by one."""
        assert self._producer is not None  # it has just failed
        for _ in range(_REPORTS_MAX):
            try:
                if not self._producer.poll(_REPORT_S):
                    return
            except (KafkaException, SystemError):
                continue


def _fatal(error: Exception | None) -> KafkaFailure | None:
    """Return the client's fatal error, or None if the client has not failed."""
    if error is None:
        return None
    cause = error if isinstance(error, KafkaException) else error.__cause__
    fatal = cause.args[0] if isinstance(cause, KafkaException) else None
    return fault_of(fatal) if isinstance(fatal, KafkaError) else _SILENT
