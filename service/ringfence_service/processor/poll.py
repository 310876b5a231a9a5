"""Poller: reads the records of one transaction, in small pieces.

A record is decided and sent while it is still in the processor's cache, which ten thousand records
exceed. So a batch is read in pieces. It begins to fill when the one before has read its last, since
records arrive while that one is committed. It fills until a piece is full or `batch_wait_ms` is
over, and all pieces together wait no longer, nor for long once a transaction is open. A call waits
for a quarter of a second at most: what it has read is kept, and the loop turns meanwhile. Pieces
shrink while deciding is slow, since most of that time goes into loading the state of addresses.
"""

from collections import deque
from collections.abc import Callable, Collection, Container, Iterator, Mapping
from typing import Final, cast

from confluent_kafka import KafkaError, Message

from ringfence_service.clock import Clock
from ringfence_service.config.model import ServiceSettings
from ringfence_service.dedup.batch import Batch, batch_of, read
from ringfence_service.dedup.plan import Plan
from ringfence_service.kafka.io import by_source, errors_of
from ringfence_service.native.records import Records
from ringfence_service.processor.assignment import Assignment
from ringfence_service.processor.reporter import Reporter
from ringfence_state.model import PartitionId

_AT_ONCE: Final = 1_024
"""Records of a full piece, as measured: fewer cost more calls, more exceed the CPU's cache."""
_FIRST: Final = 64
"""The first piece of a life: memory is empty, so each record may load its address."""
_PIECE_S: Final = 0.25
"""Target time for deciding a piece."""
_LEAST_WAIT: Final = 0.5
"""Minimum wait of a batch, as a fraction of `batch_wait_ms`.

Without it a batch that follows a long commit would end at the first empty poll.
"""
_OPEN_S: Final = 0.05
"""How long a transaction may wait for further pieces: readers of the output wait with it."""
_SLICE_S: Final = 0.25
"""How long one call waits at most: between two, the loop sends its heartbeat and answers queries.

Readiness wants a heartbeat within four seconds, and a query its answer within five.
"""
_PIECE_BYTES: Final = 8 * 1024 * 1024
"""Memory limit of a piece, estimated from the records of the one before."""
_NOTHING: Final = Batch((), 0)

OnError = Callable[[KafkaError, PartitionId | None], None]


class Poller:
    """Polls records for the loop; keeps those that do not fit into the current transaction.

    Invariant: kept records directly follow the last record that was returned, so a rewind has to
    discard them, and a rebalance those of partitions that were taken away.
    """

    def __init__(
        self,
        assignment: Assignment,
        settings: ServiceSettings,
        clock: Clock,
        reporter: Reporter,
        on_error: OnError,
    ) -> None:
        self._assignment = assignment
        self._settings = settings
        self._clock = clock
        self._reporter = reporter
        self._on_error = on_error
        self._kept: deque[list[Message] | Records] = deque()
        """In order; no piece is empty."""
        self._errors: deque[tuple[KafkaError, PartitionId | None]] = deque()
        """Errors that the client has delivered and `on_error` has not seen yet."""
        self.records_at_once = min(_FIRST, _AT_ONCE)
        self._mean_bytes = 1
        """Mean memory of a record in the last piece."""
        self._is_single_piece = False
        """Whether the next transaction has one piece."""
        self._fills_until_s: float | None = None
        """Until when the next batch fills; None if none is being filled."""
        self._rebalances = assignment.rebalances
        self._stopped_s = float("-inf")
        """When the last piece was read."""
        self._waits_until_s = 0.0
        """Until when the current transaction waits for records."""
        self.spent_s = 0.0
        """Total time spent in `consume`."""

    def poll(self, records_max: int) -> Batch:
        """Return the first piece of a transaction; an empty one while it fills.

        Errors go to `on_error` first. If it raises, the errors that follow stay for the next call.
        """
        if self._fills_until_s is None:
            self._begin()
        if self._fills_until_s is not None:
            self._fill(self._fills_until_s - self._clock.monotonic_s())
        while self._errors:
            self._on_error(*self._errors.popleft())
        if self._fills_until_s is not None or not self._kept:
            return _NOTHING
        # After the errors: a partition whose offset is lost is not read any more.
        return self._taken(records_max, self._settings.batch_bytes_max, {})

    def _begin(self) -> None:
        """Note for how long the next batch fills; not at all if anything is kept for it."""
        now_s = self._clock.monotonic_s()
        wait_s = max(self._stopped_s + self._fills_s - now_s, _LEAST_WAIT * self._fills_s)
        self._waits_until_s = now_s + min(wait_s, _OPEN_S)
        if not (self._kept or self._errors):
            self._fills_until_s = now_s + wait_s

    def _fill(self, left_s: float) -> None:
        """Read for a slice of the time that is left; note whether the batch is complete."""
        left_s = max(0.0, min(left_s, self._fills_s))
        room = max(1, self._at_once - self._held)
        self._consume(min(room, self._settings.batch_records_max), min(left_s, _SLICE_S))
        if left_s <= _SLICE_S or self._errors or self._held >= self._at_once:
            self._fills_until_s = None

    @property
    def _fills_s(self) -> float:
        """For how long a batch may fill; while partitions are taken over, not at all."""
        return self._settings.batch_wait_ms / 1000 if self._assignment.settled else 0.001

    @property
    def holds_records(self) -> bool:
        """Whether any record was read that no transaction has taken yet."""
        return bool(self._kept)

    @property
    def _held(self) -> int:
        return sum(map(len, self._kept))

    def poll_more(self, plan: Plan, records_max: int) -> Batch:
        """Return the next piece of the plan's transaction; empty if it is full or none came."""
        tally = plan.tally
        room_records = records_max - tally.records_read
        room_bytes = self._settings.batch_bytes_max - tally.bytes_read - plan.released_bytes
        if self._errors or self._is_single_piece or room_records <= 0 or room_bytes <= 0:
            return _NOTHING
        if not self._kept:
            wait_s = max(0.0, self._waits_until_s - self._clock.monotonic_s())
            self._consume(min(self._at_once, room_records), wait_s)
        if self._errors or not self._kept:  # errors are handled while no transaction is open
            return _NOTHING
        return self._taken(room_records, room_bytes, plan.next_offsets)

    @property
    def is_narrowest(self) -> bool:
        """Whether the next transaction has the minimum size of one record."""
        return self.records_at_once == 1 and self._is_single_piece

    @property
    def is_empty(self) -> bool:
        """Whether nothing that the client has delivered waits for the next transaction."""
        return not (self._kept or self._errors)

    def decided(self, records: int, took_s: float) -> None:
        """Adapt the size of the next piece to the time that this one took to decide."""
        if not records:
            return  # the end of a transaction is timed as well
        if took_s > _PIECE_S:
            fitting = max(1, int(records * _PIECE_S / took_s))
            self.records_at_once = min(self.records_at_once, fitting)
        elif self.records_at_once < _AT_ONCE and not self._reporter.is_throttled:
            quarter = max(1, self.records_at_once // 4)
            self.records_at_once = min(_AT_ONCE, self.records_at_once + quarter)

    def narrow(self, records: int) -> None:
        """Halve the piece size, and read one piece only: so many records were too much."""
        self.records_at_once, self._is_single_piece = (
            max(1, min(self.records_at_once, records) // 2),
            True,
        )

    def committed(self) -> None:
        """Allow several pieces again after a commit, unless a quota of the broker delays us."""
        self._is_single_piece = self._reporter.is_throttled

    def run_callbacks(self) -> None:
        """Poll once, so that pending rebalance callbacks run before a commit without a read."""
        self._consume(1, 0)

    def discard(self) -> None:
        """Drop the kept records: reading starts again from the committed offsets.

        Errors stay, because the client delivers each of them once: a fenced consumer delivers its
        fatal error and then nothing any more.
        """
        self._kept.clear()

    def skip(self, sources: Collection[PartitionId]) -> None:
        """Drop the kept records of partitions, of which an earlier one was not decided."""
        if sources and self._kept:
            self._keep_only(self._assignment.running.keys() - set(sources))

    @property
    def _at_once(self) -> int:
        """How many records make a full piece."""
        return min(self.records_at_once, max(1, _PIECE_BYTES // self._mean_bytes))

    def _consume(self, records_max: int, wait_s: float) -> None:
        """Keep what the client returns: records, and the errors among them."""
        started_s = self._clock.monotonic_s()
        consumed = self._assignment.consumer.consume(records_max, wait_s)
        messages = cast("list[Message] | Records", consumed)
        self._stopped_s = self._clock.monotonic_s()
        took_s = self._stopped_s - started_s
        self.spent_s += took_s
        if isinstance(messages, Records):
            self._errors.extend(messages.errors)
        elif errors := errors_of(messages):
            self._errors.extend(errors)
            messages = [message for message in messages if message.error() is None]
        if messages:
            self._reporter.stage("poll", took_s)
            self._kept.append(messages)
        if self._rebalances != self._assignment.rebalances:
            self._rebalances = self._assignment.rebalances
            self._keep_only(self._assignment.running)

    def _keep_only(self, sources: Container[PartitionId]) -> None:
        """Keep the records of these partitions: another may be read from another offset."""
        self._kept = deque(part for kept in self._kept for part in _of(kept, sources))

    def _taken(self, records_max: int, bytes_max: int, decided: Mapping[PartitionId, int]) -> Batch:
        """Return as many kept records as fit, and at least one; those of one piece at most."""
        messages = self._kept.popleft()
        records = read(messages[: min(records_max, self.records_at_once)], bytes_max)
        rest = messages[len(records.messages) :]
        if rest:
            self._kept.appendleft(rest)
        self._mean_bytes = max(1, records.memory_bytes // len(records.messages))
        return batch_of(records, self._assignment.running, decided, self._clock.wall_ms())


def _of(
    messages: list[Message] | Records, sources: Container[PartitionId]
) -> Iterator[list[Message] | Records]:
    """Yield the records of these partitions."""
    if isinstance(messages, Records):
        yield from (part for source, part in messages.by_source() if source in sources)
    else:
        yield from (part for part in by_source(messages, sources).values() if part)
