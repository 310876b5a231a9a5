"""Rejection: why one record is not accepted. Raised by a check, caught where its fate is given."""

from typing import NamedTuple

from ringfence.headers import Reason


class Rejection(NamedTuple):
    """A reason, a sentence for a person, and the place of the accepted record with this id."""

    reason: Reason
    cause: str
    original: str | None = None


class RejectedError(Exception):
    """The record goes to the dead letters."""

    def __init__(self, reason: Reason, cause: str, original: str | None = None) -> None:
        super().__init__(cause)
        self.why = Rejection(reason, cause, original)
