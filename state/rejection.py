"""Rejection: why one record is not accepted."""

from typing import NamedTuple

from ringfence.headers import Reason
from state.edit import IMPORTED, Origin


class Rejection(NamedTuple):
    """A reason, a sentence for a person, and the place of the accepted record that it repeats."""

    reason: Reason
    cause: str
    original: str | None = None
    accepted_ms: int | None = None
    """The time of that record, where it is known."""


def repetition_of(origin: Origin) -> Rejection:
    """The id was accepted there already."""
    if origin.offset == IMPORTED:
        return Rejection(Reason.DUPLICATE, "its id was imported", None, origin.time_ms)
    original = str(origin)
    cause = f"its id was accepted at {original} already"
    return Rejection(Reason.DUPLICATE, cause, original, origin.time_ms)
