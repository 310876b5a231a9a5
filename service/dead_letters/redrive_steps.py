"""Redrive steps: the position of one redrive in the dead letters, advanced a step at a time.

A step holds the next letters, sorted by the partition that decides them. The job advances only when
the owners have answered for the whole step. So an instance that resumes the job repeats at most one
step, and the owners recognise what they have decided already.
Invariant: an owner receives the letters that it decides in the order of their offsets, and never
before it has answered for the earlier ones.
"""

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple, Protocol

from service.dead_letters.reader import RecordChunk, seen
from service.dedup.dead_letter import DeadLetterView, RedrivenRecord, letter_of, matches
from service.metadata.redrive_job import RedriveJob
from service.queries.redrives import DecideDeadLetters, PartitionCheckpoint, RedriveAnswer
from state.model import PartitionId

_WAIT_S: Final = 0.2

_JUMP: Final = 2_000
"""A named letter so far ahead is gone to; what lies before a nearer one is read over."""


class ChunkReader(Protocol):
    """Reads dead letters of one partition; see `SpanReader`."""

    def read(
        self, source: PartitionId, start: int, records_max: int, timeout_s: float
    ) -> RecordChunk:
        """Records from an offset on; none where none came in time."""
        ...


class FeedChunk(NamedTuple):
    """What one reading brought."""

    views: list[DeadLetterView]
    missing: int
    """Letters that were named and are not there."""
    moved: bool
    """Whether it came on at all."""


class DeadLetterFeed:
    """See the module. `span` and `offset` tell where it stands, as those of `RedriveJob` do."""

    def __init__(self, job: RedriveJob, reader: ChunkReader) -> None:
        self._spans = job.spans
        self._reader = reader
        self.span, self.offset = job.span, job.offset
        self._named: defaultdict[PartitionId, list[int]] = defaultdict(list)
        for topic, partition, offset in sorted(job.order.letters):
            self._named[PartitionId(topic, partition)].append(offset)

    @property
    def is_over(self) -> bool:
        """Whether nothing is left."""
        return self.span >= len(self._spans)

    def take(self, records_max: int) -> FeedChunk:
        """The next records of the span at hand; none where none came in time."""
        topic, partition, first, end = self._spans[self.span]
        source = PartitionId(topic, partition)
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
        return FeedChunk(views, missing, moved=reached > start or reached >= end)

    def _next_named(self, source: PartitionId, start: int, end: int) -> int:
        """Where to read on: at the next letter that is named, where that is far."""
        if not self._named:
            return start
        offsets = self._named[source]
        row = bisect_left(offsets, start)
        target = offsets[row] if row < len(offsets) else end
        return target if target - start > _JUMP or target >= end else start

    def _only_named(
        self, source: PartitionId, views: Sequence[DeadLetterView], start: int, reached: int
    ) -> tuple[list[DeadLetterView], int]:
        offsets = self._named[source]
        wanted = set(offsets[bisect_left(offsets, start) : bisect_left(offsets, reached)])
        found = [view for view in views if view.place.offset in wanted]
        return found, len(wanted) - len(found)


AT_ONCE: Final = 1_000
"""How many records are read at once, and how many letters go in one command."""

COMMAND_BYTES_MAX: Final = 4 * 1024 * 1024

_SCANNED_MAX: Final = 20_000

MISSING: Final = "not-found"


class RedriveStep(NamedTuple):
    """What comes next: all of it, then the job has moved on."""

    commands: tuple[tuple[DecideDeadLetters, ...], ...]
    """For each owner, in their order."""
    letters: int
    span: int
    """Where the job stands after it; see `RedriveJob`."""
    offset: int
    scanned: int
    matched: int
    skipped: Counter[str]
    is_last: bool


class RedriveBatcher:
    """See the module."""

    def __init__(
        self,
        job: RedriveJob,
        way: Callable[[DeadLetterView], PartitionId | str],
        reader: ChunkReader,
        marks: Iterable[PartitionCheckpoint] = (),
    ) -> None:
        """`way` tells the partition that decides a letter, or why it cannot be redriven."""
        self.job = job
        self._way = way
        self._feed = DeadLetterFeed(job, reader)
        self._marks = {mark[:4]: mark for mark in marks}
        self._matched = job.progress.matched
        """Those of steps that are still on their way included."""
        self._count()

    def next(self, letters_max: float) -> RedriveStep:
        """The next step; one without letters where none came in time. Blocks for a moment.

        After KafkaException, some may have been passed over: begin anew from the job.
        """
        feed, letters = self._feed, dict[tuple[PartitionId, PartitionId], list[RedrivenRecord]]()
        count = scanned = matched = 0
        skipped = Counter[str]()
        while not feed.is_over and scanned < _SCANNED_MAX:
            room = min(letters_max - count, AT_ONCE, self._room)
            if room < 1:
                break
            views, missing, moved = feed.take(int(room))
            skipped[MISSING] += missing
            scanned += len(views) + missing
            for view in views:
                if not matches(view, self.job.order.filter):
                    continue
                matched += 1
                self._matched += 1
                way, letter = self._way(view), letter_of(view)
                if isinstance(way, str) or letter is None:
                    skipped[str(way)] += 1
                    continue
                count += 1
                stands = PartitionId(view.place.topic, view.place.partition)
                letters.setdefault((way, stands), []).append(letter)
            if not moved:
                break
        return RedriveStep(
            commands=self._commands(letters),
            letters=count,
            span=feed.span,
            offset=feed.offset,
            scanned=scanned,
            matched=matched,
            skipped=+skipped,
            is_last=feed.is_over or self._room < 1,
        )

    def answered(self, answer: RedriveAnswer) -> None:
        """An owner has told how far it is."""
        self._marks[answer.mark[:4]] = answer.mark
        self._count()

    def advance(self, step: RedriveStep) -> None:
        """All of a step is answered for."""
        progress = self.job.progress
        self.job = self.job._replace(
            span=step.span,
            offset=step.offset,
            progress=progress._replace(
                scanned=progress.scanned + step.scanned,
                matched=progress.matched + step.matched,
                skipped=dict(Counter(progress.skipped) + step.skipped),
            ),
        )

    @property
    def left(self) -> int:
        """How many offsets lie ahead."""
        spans, at = self.job.spans[self.job.span :], self.job.offset
        return sum(
            end - max(start, at if row == 0 else start)
            for row, (_, _, start, end) in enumerate(spans)
        )

    @property
    def _room(self) -> float:
        """How many more may match."""
        limit = self.job.order.limit
        return float("inf") if limit is None else limit - self._matched

    def _commands(
        self, letters: dict[tuple[PartitionId, PartitionId], list[RedrivenRecord]]
    ) -> tuple[tuple[DecideDeadLetters, ...], ...]:
        by_owner: dict[PartitionId, list[DecideDeadLetters]] = {}
        for (owner, stands), all_letters in letters.items():
            for some in _pieces(all_letters):
                command = DecideDeadLetters(
                    redrive=self.job.id,
                    mode=self.job.order.mode,
                    topic=owner.topic,
                    partition=owner.partition,
                    letters_topic=stands.topic,
                    letters_partition=stands.partition,
                    letters=tuple(some),
                )
                by_owner.setdefault(owner, []).append(command)
        return tuple(map(tuple, by_owner.values()))

    def _count(self) -> None:
        """What the owners have told, together."""
        marks = self._marks.values()
        accepted, refused = sum(m.accepted for m in marks), sum(m.refused for m in marks)
        waiting, failed = sum(m.waiting for m in marks), sum(m.failed for m in marks)
        progress = self.job.progress._replace(
            sent=accepted + refused + waiting + failed,
            accepted=accepted,
            refused=refused,
            waiting=waiting,
            failed=failed,
        )
        self.job = self.job._replace(progress=progress)


def halves(command: DecideDeadLetters) -> tuple[DecideDeadLetters, ...]:
    """What the broker refused, in two; of one letter: that it is given up."""
    letters = command.letters
    if len(letters) == 1:
        return (command._replace(given_up=True),)
    middle = len(letters) // 2
    return command._replace(letters=letters[:middle]), command._replace(letters=letters[middle:])


def _pieces(letters: Sequence[RedrivenRecord]) -> Iterator[list[RedrivenRecord]]:
    """In order, none of them larger than one command may be."""
    piece: list[RedrivenRecord] = []
    size_bytes = 0
    for letter in letters:
        own_bytes = sum(len(value or b"") for _, value in letter.headers)
        own_bytes += len(letter.own_key or b"") + len(letter.own_value or b"")
        if piece and (len(piece) == AT_ONCE or size_bytes + own_bytes > COMMAND_BYTES_MAX):
            yield piece
            piece, size_bytes = [], 0
        piece.append(letter)
        size_bytes += own_bytes
    if piece:
        yield piece
