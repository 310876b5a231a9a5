"""Poison records: records that the broker refuses or whose checks fail, and how they are found.

The transaction that such a record made fail is read again with a trace (`refusal_trace.py`), which
names all of its poison records, or those in the produce batches that were on their way together. So
an incident costs one transaction without a trace, and then one for each such set. Only if no record
is named is the batch halved, until one record is left.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from ringfence_client.headers import Reason
from ringfence_service.dedup.partition import OwnedPartition
from ringfence_service.dedup.plan import Plan
from ringfence_service.dedup.record import RejectedError
from ringfence_service.dedup.refusal_trace import (
    NamedRecord,
    OutputCounts,
    Position,
    RefusalTrace,
    Refused,
)
from ringfence_service.kafka.errors import KafkaFailure, rejection_of
from ringfence_state.model import PartitionId

_GROWTH: Final = 4
"""By how much batches grow with each commit after they were halved."""


@dataclass(slots=True)
class PoisonRecords:
    """Poison records that are not committed yet, and how the next transaction finds others."""

    records_max: int
    by_position: dict[Position, RejectedError] = field(default_factory=dict)
    undeliverable: set[Position] = field(default_factory=set)
    """Records whose own dead letter was refused, or that of a group which they displaced."""
    unanswerable: set[Position] = field(default_factory=set)
    """Records that were refused with their reply; they are decided without it first."""
    suspects: dict[PartitionId, int] = field(default_factory=dict)
    """By partition the offset after the last record of failed transactions."""
    traced: frozenset[PartitionId] = frozenset()
    """Partitions to trace: they may have poison records."""
    trace: RefusalTrace | None = None
    """The trace of the current transaction."""
    is_complete: bool = False
    """Whether the last transaction named all of its poison records: the next needs no trace."""
    broker_names_records: bool | None = None
    """Whether the broker names the bad records of a batch; None if that is not known yet."""

    def begin(self) -> RefusalTrace | None:
        """Return the trace of a transaction that begins to read records; None without one."""
        names, is_traced = bool(self.broker_names_records), self.traced and not self.is_complete
        self.trace = RefusalTrace(self.traced, names) if is_traced else None
        self.is_complete = False
        return self.trace

    @property
    def is_ambiguous(self) -> bool:
        """Whether it has to be known if the broker names the bad records of a batch."""
        is_unknown = self.broker_names_records is None
        return is_unknown and self.trace is not None and self.trace.is_ambiguous

    def learn(self, *, names: bool | None) -> None:
        """Note whether the broker names the bad records of a batch; None if that is unknown."""
        self.broker_names_records = names
        if self.trace is not None:
            self.trace.broker_names_records = bool(names)

    def narrow(self, plan: Plan, fault: KafkaFailure) -> bool:
        """Prepare the next attempt after a failure that is due to records; it differs from this.

        A record that asks for a reply is tried without it first. A record whose dead letter is
        refused too goes to the fallback topic. Returns False if the fallback refused it as well, or
        if the plan read no record: nothing is left to try. If the failure was an exception, it is
        raised again then, since no record causes it.
        """
        if plan.given_up:
            is_new = not plan.given_up <= self.undeliverable
            self.undeliverable |= plan.given_up
        else:
            is_new = plan.tally.records_read > 0 and self._narrows(plan, fault)
        if not is_new and fault.raised is not None:
            raise fault.raised
        return is_new

    def _narrows(self, plan: Plan, fault: KafkaFailure) -> bool:
        self.suspects.update(plan.next_offsets)
        named = {} if self.trace is None else self.trace.named(fault)
        if self.trace is not None and self.trace.broker_names_records:
            self.broker_names_records = True
        if not named and plan.tally.records_read == 1:
            ((source, end),) = plan.next_offsets.items()
            what = OutputCounts.of(plan.tally).suspect
            if fault.raised is not None and what is Refused.DEAD_LETTER:
                what = Refused.RECORD  # nothing was refused: its checks failed
            named[source, end - 1] = NamedRecord(what, fault)
        if named:
            self.is_complete = self.trace is not None and self.trace.is_complete
            changes = [self._set_apart(*each) for each in named.items()]
            return any(changes)
        if self.trace is not None and self.traced >= plan.next_offsets.keys():
            self.records_max = plan.tally.records_read // 2
        self.traced = self.traced.union(plan.next_offsets)
        return True

    def _set_apart(self, position: Position, named: NamedRecord) -> bool:
        """Have a record decided in another way next time; return whether there is another one."""
        if named.what is Refused.REPLY and position not in self.unanswerable:
            self.unanswerable.add(position)
            return True
        is_dead_lettered = self._is_dead_lettered(position, named.failure)
        # The record itself may have been accepted, and a dead letter in its transaction refused.
        has_dead_letter = named.what is Refused.DEAD_LETTER
        if position not in self.undeliverable and (is_dead_lettered or has_dead_letter):
            self.undeliverable.add(position)
            return True
        if is_dead_lettered:
            return False
        self.undeliverable.discard(position)
        self.unanswerable.discard(position)  # its reply was not at fault
        self.by_position[position] = _rejection(named.failure)
        return True

    def halve(self, plan: Plan) -> None:
        """Halve the batch size, although no record is to blame."""
        if plan.tally.records_read:
            self.records_max = max(1, plan.tally.records_read // 2)

    def _is_dead_lettered(self, position: Position, failure: KafkaFailure) -> bool:
        """Whether the record is dead-lettered already, without its checks if they failed."""
        known = self.by_position.get(position)
        if known is None or failure.raised is None:
            return known is not None
        return known.why.reason is Reason.FAILED_CHECK

    def passed(self, running: Mapping[PartitionId, OwnedPartition], records_max: int) -> None:
        """Forget records that are committed; let batches grow again once none is left.

        The partitions of these records stay traced for one more transaction: where one record is
        refused, others follow.
        """

        def is_ahead(source: PartitionId, offset: int) -> bool:
            return source in running and running[source].next_offset <= offset

        gone = [position for position in self.by_position if not is_ahead(*position)]
        for position in gone:
            del self.by_position[position]
        for positions in (self.undeliverable, self.unanswerable):
            positions -= {position for position in positions if not is_ahead(*position)}
        for source in [s for s, end in self.suspects.items() if not is_ahead(s, end - 1)]:
            del self.suspects[source]
        if not self.suspects:
            self.traced = frozenset(source for source, _ in gone)
            self.records_max = min(records_max, _GROWTH * self.records_max)


def _rejection(fault: KafkaFailure) -> RejectedError:
    """Return the rejection of a record that made a transaction fail."""
    if fault.raised is not None:
        return RejectedError(Reason.FAILED_CHECK, f"its checks failed with {fault.cause}")
    return RejectedError(*rejection_of(fault), topic=fault.topic)
