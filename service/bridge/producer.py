"""Bridge producer: sends records to the target until all are delivered, or one is not.

After a record that is not delivered the producer sends nothing more (it guarantees that there is no
gap) and has to be replaced. Invariant: `settle` returns iff everything sent since the last call was
acknowledged by all replicas.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from ringfence.headers import Reason
from service.bridge.clients import BATCH_RECORDS_MAX, BridgeClients
from service.bridge.forward import Sending
from service.clock import Clock
from service.kafka.errors import KafkaFailure, Recovery, fault_of
from service.kafka.io import send
from state.model import PartitionId, Rejection

_FLUSH_SLICE_S: Final = 0.25
_REPORT_S: Final = 0.2
_REPORTS_MAX: Final = 2 * BATCH_RECORDS_MAX

_SILENT: Final = KafkaFailure(
    Recovery.REBUILD, of_record=False, fenced=False, cause="_FATAL: the producer gave up"
)

Refused = dict[tuple[PartitionId, int], Rejection]


class NotDeliveredError(Exception):
    """Something that was sent did not arrive; of the rest nothing is known: send it all again."""

    def __init__(self, fault: KafkaFailure, suspects: Refused, *, proven: bool) -> None:
        super().__init__(fault.cause)
        self.fault = fault
        self.suspects = suspects
        """Records that the broker blames, by their places."""
        self.proven = proven
        """Each of them was refused for itself; else they shared a request."""


class BridgeProducer:
    """The producer, and what became of what it was given."""

    def __init__(self, clients: BridgeClients, clock: Clock) -> None:
        self._clients = clients
        self._clock = clock
        self._producer: Producer | None = None
        self._batch_bytes_max = 0
        self._alone = False
        self._failed: dict[tuple[PartitionId, int], KafkaError] = {}
        self.last_error = ""
        """What the client last said of the target, for a sentence."""

    def prepare(self, batch_bytes_max: int) -> None:
        """Have a producer whose requests every target topic takes."""
        if self._producer is not None and batch_bytes_max >= self._batch_bytes_max:
            return
        self.drop()
        records_max = 1 if self._alone else BATCH_RECORDS_MAX
        self._producer = self._clients.producer(batch_bytes_max, records_max, self._heard)
        self._batch_bytes_max = batch_bytes_max

    def send(self, records: Sequence[Sending]) -> None:
        """Hand over; NotDeliveredError when the producer takes nothing more."""
        assert self._producer is not None  # prepare comes first
        try:
            send(self._producer, records)
        except (KafkaException, SystemError) as error:
            raise self._not_delivered(error) from error

    def settle(self, waits: Callable[[float], None]) -> None:
        """Until all is delivered; NotDeliveredError when something is not.

        `waits` is told for how many seconds nothing has moved, and may raise.
        """
        producer, moved_s = self._producer, self._clock.monotonic_s()
        assert producer is not None  # prepare comes first
        least = len(producer)
        try:
            while (left := producer.flush(_FLUSH_SLICE_S)) and not self._failed:
                if left < least:
                    least, moved_s = left, self._clock.monotonic_s()
                waits(self._clock.monotonic_s() - moved_s)
        except (KafkaException, SystemError) as error:
            raise self._not_delivered(error) from error
        if self._failed:
            raise self._not_delivered(None)
        self.last_error = ""

    def together(self) -> None:
        """All suspects are behind us: records may share requests again."""
        if self._alone:
            self._alone = False
            self.drop()

    def drop(self) -> None:
        """Forget the producer and what it has not sent."""
        producer, self._producer = self._producer, None
        if producer is not None:
            with suppress(KafkaException, SystemError):
                producer.purge()
        self._failed = {}

    def failed(
        self, source: PartitionId, offset: int, error: KafkaError | None, _message: Message
    ) -> None:
        """Note a record that was not delivered.

        Called while an exception of the client may be pending: then whatever is called from here
        fails, and the message must not be touched.
        """
        if error is not None:
            self._failed[source, offset] = error

    def _heard(self, error: KafkaError) -> None:
        self.last_error = f"{error.name()}: {error.str()}"

    def _not_delivered(self, error: Exception | None) -> NotDeliveredError:
        """What is known of a failure; who is to blame among many is found by sending each alone.

        A request is refused as a whole, but for its size only where it holds one record.
        """
        if error is not None:
            self._gather()
        faults = {place: fault_of(each) for place, each in self._failed.items()}
        blamed = {place: fault for place, fault in faults.items() if fault.of_record}
        fault = next(iter(blamed.values()), None) or _fatal(error) or next(iter(faults.values()))
        proven = self._alone or (len(blamed) == 1 and _is_of_size(fault))
        self._alone = self._alone or (not proven and bool(blamed))
        self.drop()
        suspects = {place: _rejection(each) for place, each in blamed.items()}
        return NotDeliveredError(fault, suspects, proven=proven)

    def _gather(self) -> None:
        """Let the reports come in; a client that has failed hands them over one by one."""
        assert self._producer is not None  # it has just failed
        for _ in range(_REPORTS_MAX):
            try:
                if not self._producer.poll(_REPORT_S):
                    return
            except (KafkaException, SystemError):
                continue


def _fatal(error: Exception | None) -> KafkaFailure | None:
    """What the client itself says of its end, if it has ended."""
    if error is None:
        return None
    told = error if isinstance(error, KafkaException) else error.__cause__
    fatal = told.args[0] if isinstance(told, KafkaException) else None
    return fault_of(fatal) if isinstance(fatal, KafkaError) else _SILENT


def _is_of_size(fault: KafkaFailure) -> bool:
    return fault.cause.startswith("MSG_SIZE_TOO_LARGE")


def _rejection(fault: KafkaFailure) -> Rejection:
    reason = Reason.TOO_LARGE if _is_of_size(fault) else Reason.NO_OUTPUT
    return Rejection(reason, f"the broker refused it: {fault.cause}")
