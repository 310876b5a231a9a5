"""Refusals: records that the broker refused by themselves, and the batch size that finds them.

A refusal costs the whole transaction and names no record, so a batch is halved until one is left.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from ringfence.headers import Reason
from service.consume import Batch
from service.faults import Fault
from service.partition import Partition
from service.rejection import RejectedError
from state.edit import Source


@dataclass(slots=True)
class Refusals:
    """Records that the broker refused by themselves, and the batch size that finds them."""

    records_max: int
    by_place: dict[tuple[Source, int], RejectedError] = field(default_factory=dict)
    homeless: set[tuple[Source, int]] = field(default_factory=set)
    suspects: dict[Source, int] = field(default_factory=dict)
    """Where the refused records end, by partition."""

    def narrow(self, chunk: Batch, fault: Fault) -> bool:
        """Halve; a chunk of one record is the record: dead letters next, the fallback at last.

        False when the fallback refused it too: then nothing is left to try.
        """
        for part in chunk.slices:
            self.suspects[part.partition.source] = part.offsets[-1] + 1
        if chunk.records > 1:
            self.records_max = max(1, chunk.records // 2)
            return True
        part = chunk.slices[0]
        place = (part.partition.source, part.offsets[0])
        if place in self.homeless:
            return False
        if place in self.by_place:
            self.homeless.add(place)
        reason = Reason.TOO_LARGE if "SIZE" in fault.cause else Reason.NO_OUTPUT
        self.by_place[place] = RejectedError(reason, f"the broker refused it: {fault.cause}")
        return True

    def passed(self, running: Mapping[Source, Partition], records_max: int) -> None:
        """A chunk went through; batches grow again when all that was refused is behind us."""

        def is_ahead(source: Source, offset: int) -> bool:
            return source in running and running[source].next_offset <= offset

        for place in [place for place in self.by_place if not is_ahead(*place)]:
            del self.by_place[place]
            self.homeless.discard(place)
        for source in [s for s, end in self.suspects.items() if not is_ahead(s, end - 1)]:
            del self.suspects[source]
        if not self.suspects:
            self.records_max = min(records_max, 2 * self.records_max)
