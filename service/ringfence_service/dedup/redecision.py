"""Redecision: decides a dead letter again, or sends it to its output without a decision.

Invariant: a dead letter that is refused again has one redrive more in its new envelope.
"""

from typing import Final, Literal

from ringfence_client.headers import DeadLetter, Headers
from ringfence_service.dedup.dead_letter import Mode, RedrivenRecord
from ringfence_service.dedup.evaluator import Evaluator
from ringfence_service.dedup.plan import BatchCounts, Output
from ringfence_service.dedup.record import RejectedError
from ringfence_service.dedup.transaction_group import TransactionGroups
from ringfence_state.model import NO_CLAIM

Outcome = Literal["accepted", "refused", "waiting", "failed"]

_SOURCE_HEADERS: Final = (
    DeadLetter.TOPIC.value,
    DeadLetter.PARTITION.value,
    DeadLetter.OFFSET.value,
)


def redecided(
    letter: RedrivenRecord,
    mode: Mode,
    offset: int,
    evaluator: Evaluator,
    grouping: TransactionGroups,
    outputs: list[Output],
    tally: BatchCounts,
) -> Outcome:
    """Decide a dead letter again; add its outputs to `outputs` and return the outcome.

    `offset` stands in for its offset in the partition that decides.
    """
    if mode == "bypass":
        outcome = _bypassed(letter, evaluator)
    else:
        forgives = mode == "forget"
        outcome = _decided(letter, offset, evaluator, grouping, outputs, tally, forgives=forgives)
    tally.redriven[mode, outcome] += 1
    return outcome


def _bypassed(letter: RedrivenRecord, evaluator: Evaluator) -> Outcome:
    checks, headers = evaluator.checks, list(letter.headers)
    try:
        checks.check_route()
        context = checks.context(letter, headers)
        target = checks.target(letter, headers, context)
    except RejectedError:
        return "failed"
    checks.pass_on(context, letter, headers, target, NO_CLAIM, None, letter.own_offset)
    return "accepted"


def _decided(
    letter: RedrivenRecord,
    offset: int,
    evaluator: Evaluator,
    grouping: TransactionGroups,
    outputs: list[Output],
    tally: BatchCounts,
    *,
    forgives: bool,
) -> Outcome:
    letters, repeats, first = _dead_letter_count(tally), tally.duplicates.total(), len(outputs)
    evaluator.full_path.decide(letter, list(letter.headers), offset, grouping, forgives=forgives)
    if _dead_letter_count(tally) > letters:
        _count_up(letter, outputs, first)
        return "refused"
    if len(outputs) > first:
        return "accepted"
    # A duplicate that is dropped, or dead-lettered once already; else it waits for its group.
    return "refused" if tally.duplicates.total() > repeats else "waiting"


def _dead_letter_count(tally: BatchCounts) -> int:
    return tally.dead_letters.total()


def _count_up(letter: RedrivenRecord, outputs: list[Output], first: int) -> None:
    """Count the redrive in the record's new dead letter; its group may have added others."""
    source = (letter.topic.encode(), b"%d" % letter.partition, b"%d" % letter.own_offset)
    for row in range(first, len(outputs)):
        topic, value, key, partition, _, _, time_ms, headers = outputs[row]
        if _source_of(headers) == source:
            again = [*headers, (DeadLetter.REDRIVES.value, b"%d" % (letter.redrives + 1))]
            outputs[row] = (topic, value, key, partition, None, None, time_ms, again)


def _source_of(headers: Headers) -> tuple[bytes | None, ...]:
    """Return the source position in the last envelope of a dead letter's headers."""
    values = dict(headers)
    return tuple(values.get(name) for name in _SOURCE_HEADERS)
