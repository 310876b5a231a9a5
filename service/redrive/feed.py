"""Feed: the dead letters that a redrive is about, span by span, in the order of their offsets."""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

from service.letter_reader import Chunk, seen
from service.letter_values import DeadLetterView
from service.redrive.job import Job
from state.edit import Source

_WAIT_S: Final = 0.2
_JUMP: Final = 2_000
"""A named letter so far ahead is gone to; what lies before a nearer one is read over."""


class Reader(Protocol):
    """Reads dead letters of one partition; see `SpanReader`."""

    def read(self, source: Source, start: int, records_max: int, timeout_s: float) -> Chunk:
        """Records from an offset on; none where none came in time."""
        ...


class Taken(NamedTuple):
    """What one reading brought."""

    views: list[DeadLetterView]
    missing: int
    """Letters that were named and are not there."""
    moved: bool
    """Whether it came on at all."""


class Feed:
    """See the module. `span` and `offset` tell where it stands, as those of `Job` do."""

    def __init__(self, job: Job, reader: Reader) -> None:
        self._spans = job.spans
        self._reader = reader
        self.span, self.offset = job.span, job.offset
        self._named: defaultdict[Source, list[int]] = defaultdict(list)
        for topic, partition, offset in sorted(job.order.letters):
            self._named[Source(topic, partition)].append(offset)

    @property
    def is_over(self) -> bool:
        """Whether nothing is left."""
        return self.span >= len(self._spans)

    def take(self, records_max: int) -> Taken:
        """The next records of the span at hand; none where none came in time."""
        topic, partition, first, end = self._spans[self.span]
        source = Source(topic, partition)
        start = max(self.offset, first)
        views: list[DeadLetterView] = []
        reached = self._next_named(source, start, end)
        if reached < end:
            messages, reached = self._reader.read(source, reached, records_max, _WAIT_S)
            # Read in any case: what is behind the end was written later.
            views = [seen(each) for each in messages if (each.offset() or 0) < end]
        reached = min(max(reached, start), end)
        missing = 0
        if self._named:
            views, missing = self._only_named(source, views, start, reached)
        self.offset = reached
        if reached >= end:
            self.span, self.offset = self.span + 1, -1
        return Taken(views, missing, moved=reached > start or reached >= end)

    def _next_named(self, source: Source, start: int, end: int) -> int:
        """Where to read on: at the next letter that is named, where that is far."""
        if not self._named:
            return start
        offsets = self._named[source]
        row = bisect_left(offsets, start)
        target = offsets[row] if row < len(offsets) else end
        return target if target - start > _JUMP or target >= end else start

    def _only_named(
        self, source: Source, views: Sequence[DeadLetterView], start: int, reached: int
    ) -> tuple[list[DeadLetterView], int]:
        offsets = self._named[source]
        wanted = set(offsets[bisect_left(offsets, start) : bisect_left(offsets, reached)])
        found = [view for view in views if view.place.offset in wanted]
        return found, len(wanted) - len(found)
