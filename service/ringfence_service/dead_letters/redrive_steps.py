"""Redrive steps: the position of one redrive in the dead letters, advanced a step at a time.

A step contains the next dead letters, grouped by the partition that decides them. The job advances
only after the owners have answered the whole step. So an instance that resumes the job repeats at
most one step, and the owners recognise what they have decided already.
Invariant: an owner receives its dead letters in the order of their offsets, and none before it has
answered for the earlier ones.
"""

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple, Protocol

from ringfence_service.dead_letters.reader import RecordChunk, to_view
from ringfence_service.dedup.dead_letter import RedrivenRecord
from ringfence_service.metadata.redrive_job import RedriveJob
from ringfence_service.queries.dead_letters import DeadLetterView, letter_of, matches
from ringfence_service.queries.redrives import DecideDeadLetters, PartitionCheckpoint, RedriveAnswer
from ringfence_state.model import PartitionId

_WAIT_S: Final = 0.2
"""How long one read waits for records: its runner notices in between that the job has ended."""

_JUMP: Final = 2_000
"""Beyond this distance the reader jumps to a named dead letter; nearer ones are read through to."""


class ChunkReader(Protocol):
    """Reads records of one partition, as `DeadLetterReader` does."""

    def read(
        self, source: PartitionId, start: int, records_max: int, timeout_s: float
    ) -> RecordChunk:
        """Return records from an offset on; none if none arrives in time."""
        ...


class FeedChunk(NamedTuple):
    """Dead letters of one read."""

    views: list[DeadLetterView]
    missing: int
    """How many named dead letters do not exist."""
    moved: bool
    """Whether the position has advanced."""


class DeadLetterFeed:
    """Reads a job's dead letters in order; `span` and `offset` are its position, as in the job."""

    def __init__(self, job: RedriveJob, reader: ChunkReader) -> None:
        self._spans = job.spans
        self._reader = reader
        self.span, self.offset = job.span, job.offset
        self._named: defaultdict[PartitionId, list[int]] = defaultdict(list)
        for topic, partition, offset in sorted(job.order.letters):
            self._named[PartitionId(topic, partition)].append(offset)

    @property
    def is_over(self) -> bool:
        """Whether all spans have been read."""
        return self.span >= len(self._spans)

    def take(self, records_max: int) -> FeedChunk:
        """Return the next records of the current span; none if none arrives in time."""
        topic, partition, first, end = self._spans[self.span]
        source = PartitionId(topic, partition)
        start = max(self.offset, first)
        views: list[DeadLetterView] = []
        reached = self._next_named(source, start, end)
        if reached < end:
            messages, reached = self._reader.read(source, reached, records_max, _WAIT_S)
            # Records after the end of the span were written later.
            views = [to_view(each) for each in messages if (each.offset() or 0) < end]
        reached = min(max(reached, start), end)
        missing = 0
        if self._named:
            views, missing = self._only_named(source, views, start, reached)
        self.offset = reached
        if reached >= end:
            self.span, self.offset = self.span + 1, -1
        return FeedChunk(views, missing, moved=reached > start or reached >= end)

    def _next_named(self, source: PartitionId, start: int, end: int) -> int:
        """Return the offset to read from: that of the next named dead letter if it is far away."""
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
        named = set(offsets[bisect_left(offsets, start) : bisect_left(offsets, reached)])
        found = [view for view in views if view.position.offset in named]
        return found, len(named) - len(found)


AT_ONCE: Final = 1_000
"""How many records are read at once, and how many dead letters one command contains."""

COMMAND_BYTES_MAX: Final = 4 * 1024 * 1024
"""Keys, values and headers of one command; a larger dead letter is sent alone.

Another instance receives it as JSON with Base64, and by default takes 64 MiB. One transaction
decides it.
"""

_SCANNED_MAX: Final = 20_000
"""Records that one step reads to find those that match.

Then the job moves on, so that its progress is seen and saved although nothing matches.
"""

STEP_BYTES_MAX: Final = 4 * COMMAND_BYTES_MAX
"""Keys, values and headers of one step, and up to one read more; all of it is in memory.

Four commands keep owners busy while the next step is read; four jobs may run at a time.
"""

MISSING: Final = "not-found"


class RedriveStep(NamedTuple):
    """The next dead letters to send; after their answers the job moves on."""

    commands: tuple[tuple[DecideDeadLetters, ...], ...]
    """The commands of each owner, in order."""
    letters: int
    span: int
    """Position of the job after the step, as in `RedriveJob`."""
    offset: int
    scanned: int
    matched: int
    skipped: Counter[str]
    is_last: bool


class RedriveBatcher:
    """Splits a redrive into steps, and keeps its job up to date with the owners' answers."""

    def __init__(
        self,
        job: RedriveJob,
        owner_of: Callable[[DeadLetterView], PartitionId | str],
        reader: ChunkReader,
        checkpoints: Iterable[PartitionCheckpoint] = (),
    ) -> None:
        """`owner_of` returns the partition that decides a dead letter, or why there is none."""
        self.job = job
        self._owner_of = owner_of
        self._feed = DeadLetterFeed(job, reader)
        self._checkpoints = {mark[:4]: mark for mark in checkpoints}
        self._matched = job.progress.matched
        """Includes dead letters of steps that are not answered yet."""
        self._sum_checkpoints()

    def next(self, letters_max: float) -> RedriveStep:
        """Return the next step, empty if no record arrives in time. Blocks for a moment.

        After KafkaException dead letters may have been skipped: create a new batcher from the job.
        """
        feed, letters = self._feed, dict[tuple[PartitionId, PartitionId], list[RedrivenRecord]]()
        count = scanned = matched = size_bytes = 0
        skipped = Counter[str]()
        while not feed.is_over and scanned < _SCANNED_MAX and size_bytes < STEP_BYTES_MAX:
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
                owner, letter = self._owner_of(view), letter_of(view)
                if isinstance(owner, str) or letter is None:
                    skipped[str(owner)] += 1
                    continue
                count += 1
                size_bytes += _size_bytes(letter)
                stored_in = PartitionId(view.position.topic, view.position.partition)
                letters.setdefault((owner, stored_in), []).append(letter)
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
        """Record an owner's answer, which contains its new checkpoint."""
        self._checkpoints[answer.mark[:4]] = answer.mark
        self._sum_checkpoints()

    def advance(self, step: RedriveStep) -> None:
        """Move the job past a step that is answered completely."""
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
        """Return the number of offsets that are left to read."""
        spans, at = self.job.spans[self.job.span :], self.job.offset
        return sum(
            end - max(start, at if row == 0 else start)
            for row, (_, _, start, end) in enumerate(spans)
        )

    @property
    def _room(self) -> float:
        """Return how many more dead letters may match, by the job's limit."""
        limit = self.job.order.limit
        return float("inf") if limit is None else limit - self._matched

    def _commands(
        self, letters: dict[tuple[PartitionId, PartitionId], list[RedrivenRecord]]
    ) -> tuple[tuple[DecideDeadLetters, ...], ...]:
        by_owner: dict[PartitionId, list[DecideDeadLetters]] = {}
        for (owner, stored_in), all_letters in letters.items():
            for some in _pieces(all_letters):
                command = DecideDeadLetters(
                    redrive=self.job.id,
                    mode=self.job.order.mode,
                    topic=owner.topic,
                    partition=owner.partition,
                    letters_topic=stored_in.topic,
                    letters_partition=stored_in.partition,
                    letters=tuple(some),
                )
                by_owner.setdefault(owner, []).append(command)
        return tuple(map(tuple, by_owner.values()))

    def _sum_checkpoints(self) -> None:
        """Update the job's progress with the sums over the owners' checkpoints."""
        checkpoints = self._checkpoints.values()
        accepted, refused = (
            sum(m.accepted for m in checkpoints),
            sum(m.refused for m in checkpoints),
        )
        waiting, failed = sum(m.waiting for m in checkpoints), sum(m.failed for m in checkpoints)
        progress = self.job.progress._replace(
            sent=accepted + refused + waiting + failed,
            accepted=accepted,
            refused=refused,
            waiting=waiting,
            failed=failed,
        )
        self.job = self.job._replace(progress=progress)


def halves(command: DecideDeadLetters) -> tuple[DecideDeadLetters, ...]:
    """Split a command that the broker refused; a single dead letter is marked as given up."""
    letters = command.letters
    if len(letters) == 1:
        return (command._replace(given_up=True),)
    middle = len(letters) // 2
    return command._replace(letters=letters[:middle]), command._replace(letters=letters[middle:])


def _pieces(letters: Sequence[RedrivenRecord]) -> Iterator[list[RedrivenRecord]]:
    """Split dead letters, in order, into pieces within the limits of one command."""
    piece: list[RedrivenRecord] = []
    size_bytes = 0
    for letter in letters:
        own_bytes = _size_bytes(letter)
        if piece and (len(piece) == AT_ONCE or size_bytes + own_bytes > COMMAND_BYTES_MAX):
            yield piece
            piece, size_bytes = [], 0
        piece.append(letter)
        size_bytes += own_bytes
    if piece:
        yield piece


def _size_bytes(letter: RedrivenRecord) -> int:
    in_headers = sum(len(value or b"") for _, value in letter.headers)
    return in_headers + len(letter.own_key or b"") + len(letter.own_value or b"")
