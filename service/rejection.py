"""Rejection: why one record is not accepted. Raised by a check, caught where its fate is given."""

from ringfence.headers import Reason


class RejectedError(Exception):
    """The record goes to the dead letters.

    `cause` is a sentence for a person, `original` the place of the accepted record with this id.
    """

    def __init__(self, reason: Reason, cause: str, original: str | None = None) -> None:
        super().__init__(cause)
        self.reason = reason
        self.cause = cause
        self.original = original
