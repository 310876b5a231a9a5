"""Redecide: a dead letter is given another fate, where its address is decided.

`through` judges it as if it had come now, `forget` has what it repeats forgotten first, `bypass`
writes it to the output and remembers nothing of it.
"""

from typing import Final, Literal

from ringfence.headers import DeadLetter
from service.desk import Desk
from service.grouping import Grouping
from service.letter_values import Letter, Mode
from service.plan import Output, Tally
from service.rejection import RejectedError
from service.route import Headers
from state.claim import NO_CLAIM

Outcome = Literal["accepted", "refused", "waiting", "failed"]
_PLACE: Final = (DeadLetter.TOPIC.value, DeadLetter.PARTITION.value, DeadLetter.OFFSET.value)


class Misdirected(Exception):  # noqa: N818 - the letter is whole, and its way is not
    """A letter was sent to a partition that does not decide it."""


def redecided(
    letter: Letter,
    mode: Mode,
    offset: int,
    desk: Desk,
    grouping: Grouping,
    outputs: list[Output],
    tally: Tally,
) -> Outcome:
    """Give it its fate; what goes out for it is added to the outputs.

    `offset` stands for its place in the partition that decides.
    """
    if mode == "bypass":
        outcome = _bypassed(letter, desk)
    else:
        forgives = mode == "forget"
        outcome = _decided(letter, offset, desk, grouping, outputs, tally, forgives=forgives)
    tally.redriven[mode, outcome] += 1
    return outcome


def _bypassed(letter: Letter, desk: Desk) -> Outcome:
    checks, headers = desk.checks, list(letter.headers)
    try:
        checks.check_inlet()
        place = checks.place(letter, headers)
        target = checks.target(letter, headers, place)
    except RejectedError:
        return "failed"
    checks.pass_on(place, letter, headers, target, NO_CLAIM, None)
    return "accepted"


def _decided(
    letter: Letter,
    offset: int,
    desk: Desk,
    grouping: Grouping,
    outputs: list[Output],
    tally: Tally,
    *,
    forgives: bool,
) -> Outcome:
    letters, repeats, first = _letters(tally), tally.duplicates.total(), len(outputs)
    desk.fates.decide(letter, list(letter.headers), offset, grouping, forgives=forgives)
    if _letters(tally) > letters:
        _count_up(letter, outputs, first)
        return "refused"
    if len(outputs) > first:
        return "accepted"
    # Dropped, or told of before; else it waits for its group.
    return "refused" if tally.duplicates.total() > repeats else "waiting"


def _letters(tally: Tally) -> int:
    return tally.dead_letters.total()


def _count_up(letter: Letter, outputs: list[Output], first: int) -> None:
    """Tell in its new dead letter how often it was redriven; its group may have brought others."""
    place = (letter.topic.encode(), b"%d" % letter.partition, b"%d" % letter.own_offset)
    for row in range(first, len(outputs)):
        topic, value, key, partition, _, _, time_ms, headers = outputs[row]
        if _place_of(headers) == place:
            again = [*headers, (DeadLetter.REDRIVES.value, b"%d" % (letter.redrives + 1))]
            outputs[row] = (topic, value, key, partition, None, None, time_ms, again)


def _place_of(headers: Headers) -> tuple[bytes | None, ...]:
    """Where a dead letter says that it comes from: of several sets the last is ours."""
    told = dict(headers)
    return tuple(told.get(name) for name in _PLACE)
