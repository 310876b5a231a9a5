"""Refusals: records that the broker refused, or whose checks failed, and what finds them.

Either costs the whole transaction and names no record, so a batch is halved until one is left.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from ringfence.headers import Reason
from service.faults import Fault
from service.partition import Partition
from service.plan import Plan
from service.rejection import RejectedError
from state.edit import Source


@dataclass(slots=True)
class Refusals:
    """Records that were refused by themselves, and the batch size that finds them."""

    records_max: int
    by_place: dict[tuple[Source, int], RejectedError] = field(default_factory=dict)
    homeless: set[tuple[Source, int]] = field(default_factory=set)
    """Records whose dead letters, or those of records that they displaced, were refused."""
    suspects: dict[Source, int] = field(default_factory=dict)
    """Where the refused records end, by partition."""

    def narrow(self, plan: Plan, fault: Fault) -> bool:
        """Halve; of one record we know which: dead letters next, the fallback at last.

        False when the fallback refused it too, and when nothing was read: nothing is left to try.
        An exception is then raised again, for it is no record that causes it.
        """
        if self._narrows(plan, fault):
            return True
        if fault.raised is not None:
            raise fault.raised
        return False

    def _narrows(self, plan: Plan, fault: Fault) -> bool:
        if plan.given_up:
            is_new = not plan.given_up <= self.homeless
            self.homeless |= plan.given_up
            return is_new
        records = plan.tally.records_read
        if not records:
            return False
        self.suspects.update(plan.next_offsets)
        if records > 1:
            self.records_max = max(1, records // 2)
            return True
        ((source, end),) = plan.next_offsets.items()
        place = (source, end - 1)
        is_told = self._is_told(place, fault)
        # A record may have been accepted while a dead letter beside it was refused.
        is_letter = fault.raised is None and plan.tally.dead_letters.total() > 0
        if place not in self.homeless and (is_told or is_letter):
            self.homeless.add(place)
            return True
        if is_told:
            return False
        self.homeless.discard(place)
        self.by_place[place] = _rejection(fault)
        return True

    def halve(self, plan: Plan) -> None:
        """Read half as much as this plan did, though no record is to blame."""
        if plan.tally.records_read:
            self.records_max = max(1, plan.tally.records_read // 2)

    def _is_told(self, place: tuple[Source, int], fault: Fault) -> bool:
        """Whether the record is dead-lettered already, without its checks where they failed."""
        known = self.by_place.get(place)
        if known is None or fault.raised is None:
            return known is not None
        return known.why.reason is Reason.FAILED_CHECK

    def passed(self, running: Mapping[Source, Partition], records_max: int) -> None:
        """A transaction went through; batches grow again when all that was refused is behind us."""

        def is_ahead(source: Source, offset: int) -> bool:
            return source in running and running[source].next_offset <= offset

        for place in [place for place in self.by_place if not is_ahead(*place)]:
            del self.by_place[place]
        self.homeless -= {place for place in self.homeless if not is_ahead(*place)}
        for source in [s for s, end in self.suspects.items() if not is_ahead(s, end - 1)]:
            del self.suspects[source]
        if not self.suspects:
            self.records_max = min(records_max, 2 * self.records_max)


def _rejection(fault: Fault) -> RejectedError:
    """Why a record is dead-lettered that caused a fault when it was alone."""
    if fault.raised is not None:
        return RejectedError(Reason.FAILED_CHECK, f"its checks failed with {fault.cause}")
    reason = Reason.TOO_LARGE if "SIZE" in fault.cause else Reason.NO_OUTPUT
    return RejectedError(reason, f"the broker refused it: {fault.cause}")
