"""Redrive handler: decides redriven dead letters in the loop that owns their deciding partition.

One transaction holds the output, the remembered ids, the checkpoint of the redrive, and the
committed offset once more, so that a loop that has lost the partition cannot commit it. Dead
letters at or below the checkpoint are decided already.

Invariant: nothing is decided for a redrive that has ended. Checkpoints are deleted only after the
end was written, and the end is read before each decision, so a dead letter that arrives too late
finds either its checkpoint or the end.
"""

from collections.abc import Iterator, Sequence

from confluent_kafka import KafkaException

from ringfence_service.dedup.blame import WrongPartitionError
from ringfence_service.dedup.checks import DecisionContext
from ringfence_service.dedup.decider import redrive as decide_letters
from ringfence_service.dedup.partition import OwnedPartition
from ringfence_service.dedup.plan import Output, Plan
from ringfence_service.dedup.redecision import Outcome
from ringfence_service.errors import AwaitedError
from ringfence_service.kafka.errors import without_frames
from ringfence_service.metadata.redrive_job import RedriveJob
from ringfence_service.processor.loop import Loop
from ringfence_service.processor.transaction import TransactionAbortedError
from ringfence_service.queries.errors import NotPossible, NotRestored, Unavailable
from ringfence_service.queries.ids import ChangeAnswer
from ringfence_service.queries.redrives import (
    CheckpointsAnswer,
    CheckpointsQuery,
    DecideDeadLetters,
    DeleteCheckpoints,
    PartitionCheckpoint,
    RedriveAnswer,
)
from ringfence_state.model import Edit, PartitionId
from ringfence_state.redrive_progress import RedriveCheckpoint, mark_of, marks_in, put, removal


def redrive(command: DecideDeadLetters, loop: Loop) -> RedriveAnswer:
    """Decide the dead letters of a command that are above the checkpoint.

    NotPossible if this loop does not own the partition; Unavailable or NotRestored for the moment.
    """
    source = PartitionId(command.topic, command.partition)
    partition = loop.assignment.running.get(source)
    if partition is None or partition.changelog is None:
        raise NotPossible(f"{source.topic}-{source.partition} is not decided by this instance.")
    job = _job(command.redrive, loop)
    if job is None:
        raise Unavailable(f"The redrive {command.redrive} is not known here; ask again.")
    letters = PartitionId(command.letters_topic, command.letters_partition)
    checkpoint = mark_of(partition.kept_store, command.redrive, letters)
    decided = _checkpoint(source, letters, checkpoint)
    if not job.is_running:
        return RedriveAnswer("ended", decided)
    left = command._replace(
        letters=tuple(each for each in command.letters if each.at > checkpoint.done)
    )
    if not left.letters:
        return RedriveAnswer("done", decided)
    try:
        now = _decided(left, partition, letters, checkpoint, loop)
    except TransactionAbortedError as aborted:
        if not aborted.fault.of_record:
            raise
        without_frames(aborted)
        loop.failures.rewind()
        return RedriveAnswer("refused", decided, aborted.fault.cause)
    except AwaitedError as awaited:
        raise Unavailable(f"It needs {awaited.sentence}.") from awaited
    except WrongPartitionError as error:
        raise Unavailable(f"{error} Ask again.") from error
    return RedriveAnswer("done", _checkpoint(source, letters, now))


def checkpoints(query: CheckpointsQuery, loop: Loop) -> CheckpointsAnswer:
    """Return the checkpoints of a redrive on the partitions that this loop owns."""
    found = [
        _checkpoint(partition.source, letters, checkpoint)
        for partition in _deciding(loop)
        for letters, checkpoint in marks_in(partition.kept_store, query.redrive)
    ]
    return CheckpointsAnswer(tuple(found), loop.assignment.has_all)


def remove_checkpoints(change: DeleteCheckpoints, loop: Loop) -> ChangeAnswer:
    """Delete the checkpoints of a redrive that has ended; NotPossible while it runs."""
    job = _job(change.redrive, loop)
    if job is not None and job.is_running:
        raise NotPossible(f"The redrive {change.redrive} is running; its checkpoints are needed.")
    gone = [(each, removal(each.kept_store, change.redrive)) for each in _deciding(loop)]
    count = sum(len(edits) for _, edits in gone)

    def fill(_rules: DecisionContext, plan: Plan, _now_ms: int) -> Iterator[Sequence[Output]]:
        for partition, edits in gone:
            if edits:
                _write(partition, edits, plan)
        yield ()

    if count:
        loop.change(fill)
    return ChangeAnswer(count, loop.assignment.has_all)


def _decided(
    command: DecideDeadLetters,
    partition: OwnedPartition,
    letters: PartitionId,
    checkpoint: RedriveCheckpoint,
    loop: Loop,
) -> RedriveCheckpoint:
    outcomes: list[Outcome] = []

    def fill(rules: DecisionContext, plan: Plan, now_ms: int) -> Iterator[Sequence[Output]]:
        if command.given_up:
            outcomes.extend("failed" for _ in command.letters)
            plan.tally.redriven[command.mode, "failed"] += len(command.letters)
        else:
            yield from decide_letters(
                partition, command.letters, command.mode, rules, plan, now_ms, outcomes
            )
        _write(partition, [put(command.redrive, letters, after())], plan)
        yield ()

    def after() -> RedriveCheckpoint:
        return RedriveCheckpoint(
            command.letters[-1].at,
            checkpoint.accepted + outcomes.count("accepted"),
            checkpoint.refused + outcomes.count("refused"),
            checkpoint.waiting + outcomes.count("waiting"),
            checkpoint.failed + outcomes.count("failed"),
        )

    loop.change(fill)
    return after()


def _write(partition: OwnedPartition, edits: list[Edit], plan: Plan) -> None:
    plan.next_offsets[partition.source] = partition.next_offset
    plan.edits.setdefault(partition.kept_log, []).extend(edits)


def _job(name: str, loop: Loop) -> RedriveJob | None:
    """Return a redrive from an up-to-date metadata topic; NotRestored if it is not read fully."""
    try:
        has_caught_up = loop.follower.has_caught_up()
    except KafkaException as error:
        sentence = f"The broker answered {error.args[0].name()}; ask again."
        raise Unavailable(sentence) from error
    if not has_caught_up:
        raise NotRestored("The metadata topic was not read to its end yet; ask again.")
    return loop.follower.settings.redrives.by_id.get(name)


def _deciding(loop: Loop) -> list[OwnedPartition]:
    running = loop.assignment.running
    found = [running[source] for source in sorted(running)]
    return [partition for partition in found if partition.changelog is not None]


def _checkpoint(
    source: PartitionId, letters: PartitionId, checkpoint: RedriveCheckpoint
) -> PartitionCheckpoint:
    return PartitionCheckpoint(*source, *letters, *checkpoint)
