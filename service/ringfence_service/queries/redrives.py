"""Redrive queries: dead letters to be decided again, and the progress of a redrive."""

from collections.abc import Sequence
from typing import Literal, NamedTuple

from ringfence_service.dedup.dead_letter import Mode, RedrivenRecord
from ringfence_service.queries.ids import ChangeAnswer, ids_total


class PartitionCheckpoint(NamedTuple):
    """The progress of a redrive on a deciding partition, in one partition of dead letters."""

    topic: str
    """Of the deciding partition."""
    partition: int
    letters_topic: str
    letters_partition: int
    done: int
    """The offset of the last dead letter decided; -1 before the first."""
    accepted: int
    refused: int
    waiting: int
    failed: int


class CheckpointsAnswer(NamedTuple):
    """The checkpoints of a redrive."""

    marks: tuple[PartitionCheckpoint, ...]
    complete: bool = False
    """True when no deciding partition belongs to another instance."""


class RedriveAnswer(NamedTuple):
    """The outcome of `DecideDeadLetters`: all of the dead letters were decided, or none."""

    result: Literal["done", "ended", "refused"]
    """`ended`: the redrive has ended. `refused`: the broker does not accept their output records,
    or one of them fails a check."""
    mark: PartitionCheckpoint
    cause: str = ""
    complete: bool = False


class DecideDeadLetters(NamedTuple):
    """Makes the owner of a deciding partition decide dead letters again, in their order.

    They come from one partition of a dead-letter topic. Each is decided once, however often this is
    repeated.
    """

    redrive: str
    mode: Mode
    topic: str
    """Of the deciding partition."""
    partition: int
    letters_topic: str
    letters_partition: int
    letters: tuple[RedrivenRecord, ...]
    given_up: bool = False
    """They cannot be written: skip them, and count them as failed."""

    def merge(self, answers: Sequence[RedriveAnswer]) -> RedriveAnswer:
        """Return the answer of the owner."""
        # While a partition moves, two may answer; the one that has decided more owns it now.
        return max(answers, key=lambda answer: answer.mark.done)


class CheckpointsQuery(NamedTuple):
    """Asks for the checkpoints of a redrive on each deciding partition."""

    redrive: str

    def merge(self, answers: Sequence[CheckpointsAnswer]) -> CheckpointsAnswer:
        """Return the furthest checkpoint of each pair of partitions."""
        marks = sorted(mark for answer in answers for mark in answer.marks)
        furthest = {mark[:4]: mark for mark in marks}  # the last of each key has the highest offset
        return CheckpointsAnswer(tuple(furthest.values()))


class DeleteCheckpoints(NamedTuple):
    """Deletes the checkpoints of an ended redrive on every deciding partition."""

    redrive: str

    def merge(self, answers: Sequence[ChangeAnswer]) -> ChangeAnswer:
        """Sum the number of deleted checkpoints."""
        return ids_total(answers)
