"""Poison records: records that the broker refuses, and the size of batches that isolates them."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from ringfence.headers import Reason
from service.dedup.partition import OwnedPartition
from service.dedup.plan import Plan
from service.dedup.record import RejectedError
from service.kafka.errors import KafkaFailure
from state.model import PartitionId


@dataclass(slots=True)
class PoisonRecords:
    """Records that the broker refused when sent alone, and the batch size that isolates them."""

    records_max: int
    by_position: dict[tuple[PartitionId, int], RejectedError] = field(default_factory=dict)
    undeliverable: set[tuple[PartitionId, int]] = field(default_factory=set)
    """Records whose own dead letter was refused, or that of a group which they displaced."""
    unanswerable: set[tuple[PartitionId, int]] = field(default_factory=set)
    """Records that were refused alone with their reply; they are decided without it first."""
    suspects: dict[PartitionId, int] = field(default_factory=dict)
    """By partition the offset after the last record of refused transactions."""

    def narrow(self, plan: Plan, fault: KafkaFailure) -> bool:
        """Prepare the next attempt: half the batch, or dead-letter the record if it was alone.

        A record that asks for a reply is tried without it first.

        A record whose dead letter is refused too goes to the fallback topic. Returns False if the
        fallback refused it as well, or if the plan read no record: nothing is left to try. If the
        failure was an exception, it is raised again then, since no record causes it.
        """
        if self._drops_reply(plan) or self._narrows(plan, fault):
            return True
        if fault.raised is not None:
            raise fault.raised
        return False

    def _drops_reply(self, plan: Plan) -> bool:
        """Whether to try a record that was alone without its reply, which may be at fault."""
        sent = any(result == "sent" for _route, result in plan.tally.replies)
        if not sent or plan.tally.records_read != 1:
            return False
        ((source, end),) = plan.next_offsets.items()
        self.suspects.update(plan.next_offsets)
        self.unanswerable.add((source, end - 1))
        return True

    def _narrows(self, plan: Plan, fault: KafkaFailure) -> bool:
        if plan.given_up:
            is_new = not plan.given_up <= self.undeliverable
            self.undeliverable |= plan.given_up
            return is_new
        records = plan.tally.records_read
        if not records:
            return False
        self.suspects.update(plan.next_offsets)
        if records > 1:
            self.records_max = records // 2
            return True
        ((source, end),) = plan.next_offsets.items()
        position = (source, end - 1)
        is_dead_lettered = self._is_dead_lettered(position, fault)
        # The record itself may have been accepted, and a dead letter in its transaction refused.
        has_dead_letter = fault.raised is None and plan.tally.dead_letters.total() > 0
        if position not in self.undeliverable and (is_dead_lettered or has_dead_letter):
            self.undeliverable.add(position)
            return True
        if is_dead_lettered:
            return False
        self.undeliverable.discard(position)
        self.unanswerable.discard(position)  # its reply was not at fault
        self.by_position[position] = _rejection(fault)
        return True

    def halve(self, plan: Plan) -> None:
        """Halve the batch size, although no record is to blame."""
        if plan.tally.records_read:
            self.records_max = max(1, plan.tally.records_read // 2)

    def _is_dead_lettered(self, position: tuple[PartitionId, int], fault: KafkaFailure) -> bool:
        """Whether the record is dead-lettered already, without its checks if they failed."""
        known = self.by_position.get(position)
        if known is None or fault.raised is None:
            return known is not None
        return known.why.reason is Reason.FAILED_CHECK

    def passed(self, running: Mapping[PartitionId, OwnedPartition], records_max: int) -> None:
        """Forget refused records that are committed; let batches grow again once none is left."""

        def is_ahead(source: PartitionId, offset: int) -> bool:
            return source in running and running[source].next_offset <= offset

        for position in [position for position in self.by_position if not is_ahead(*position)]:
            del self.by_position[position]
        for positions in (self.undeliverable, self.unanswerable):
            positions -= {position for position in positions if not is_ahead(*position)}
        for source in [s for s, end in self.suspects.items() if not is_ahead(s, end - 1)]:
            del self.suspects[source]
        if not self.suspects:
            self.records_max = min(records_max, 2 * self.records_max)


def _rejection(fault: KafkaFailure) -> RejectedError:
    """Return the rejection of a record that caused a failure when it was read alone."""
    if fault.raised is not None:
        return RejectedError(Reason.FAILED_CHECK, f"its checks failed with {fault.cause}")
    reason = Reason.TOO_LARGE if fault.too_large else Reason.NO_OUTPUT
    return RejectedError(reason, f"the broker refused it: {fault.cause}")
