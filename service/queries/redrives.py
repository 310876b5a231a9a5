"""Redrive queries: letters to be decided again, and the progress of a redrive."""

from collections.abc import Sequence
from typing import Literal, NamedTuple

from service.dedup.dead_letter import Mode, RedrivenRecord


class DecideDeadLetters(NamedTuple):
    """Has the owner of a deciding partition decide dead letters anew, in their order.

    They are of one partition of dead letters, and each is decided once, however often this is asked
    for.
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
    """They cannot be written: they are passed over, and counted as failed."""


class CheckpointsQuery(NamedTuple):
    """Asks how far a redrive has come, on each deciding partition."""

    redrive: str


class DeleteCheckpoints(NamedTuple):
    """Has every deciding partition forget how far a redrive came that has ended."""

    redrive: str


class PartitionCheckpoint(NamedTuple):
    """How far a redrive has come on a deciding partition, in one partition of dead letters."""

    topic: str
    """Of the deciding partition."""
    partition: int
    letters_topic: str
    letters_partition: int
    done: int
    """The offset of the last dead letter that is decided; -1 before the first."""
    accepted: int
    refused: int
    waiting: int
    failed: int


class CheckpointsAnswer(NamedTuple):
    """How far a redrive has come."""

    marks: tuple[PartitionCheckpoint, ...]
    complete: bool = False
    """True when no deciding partition belongs to another instance."""


class RedriveAnswer(NamedTuple):
    """What came of asking for letters to be decided: all of them, or none."""

    result: Literal["done", "ended", "refused"]
    """`ended`: the redrive has. `refused`: the broker does not take what would go out for
    them, or the checks of one of them fail."""
    mark: PartitionCheckpoint
    cause: str = ""
    complete: bool = False


def merged_redrive(_query: DecideDeadLetters, answers: Sequence[RedriveAnswer]) -> RedriveAnswer:
    """What the owner says."""
    # A partition that moves may be answered for twice; who has decided more owns it now.
    return max(answers, key=lambda answer: answer.mark.done)


def merged_marks(
    _query: CheckpointsQuery, answers: Sequence[CheckpointsAnswer]
) -> CheckpointsAnswer:
    """Each mark once, the furthest."""
    marks = sorted(mark for answer in answers for mark in answer.marks)
    return CheckpointsAnswer(
        tuple({mark[:4]: mark for mark in marks}.values())
    )  # the last is furthest
