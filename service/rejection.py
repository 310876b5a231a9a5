"""Raised by a check that does not pass, and caught where a record is given its fate."""

from ringfence.headers import Reason
from state.rejection import Rejection


class RejectedError(Exception):
    """The record goes to the dead letters."""

    def __init__(
        self,
        reason: Reason,
        cause: str,
        original: str | None = None,
        accepted_ms: int | None = None,
    ) -> None:
        super().__init__(cause)
        self.why = Rejection(reason, cause, original, accepted_ms)
