"""Rejection: why one record is not accepted. Raised by a check, caught where its fate is given."""

from typing import NamedTuple

from ringfence.headers import Reason
from state.edit import Origin


class Rejection(NamedTuple):
    """A reason, a sentence for a person, and the place of the accepted record with this id."""

    reason: Reason
    cause: str
    original: str | None = None


def repetition_of(origin: Origin) -> Rejection:
    """The id was accepted there already."""
    original = f"{origin.topic}-{origin.partition}@{origin.offset}"
    return Rejection(Reason.DUPLICATE, f"its id was accepted at {original} already", original)


class RejectedError(Exception):
    """The record goes to the dead letters."""

    def __init__(self, reason: Reason, cause: str, original: str | None = None) -> None:
        super().__init__(cause)
        self.why = Rejection(reason, cause, original)
