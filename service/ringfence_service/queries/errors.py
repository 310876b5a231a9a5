"""Errors of queries and changes: why there is no answer, and when to try again."""


class Unavailable(Exception):  # noqa: N818 - a temporary state, not a fault
    """There is no answer now; try again after `retry_after_s`."""

    def __init__(self, sentence: str, retry_after_s: int = 1) -> None:
        super().__init__(sentence)
        self.retry_after_s = retry_after_s


class NotPossible(Exception):  # noqa: N818 - it is the answer
    """The request cannot be fulfilled; the message says why, and what to do instead."""


class NameInUse(Exception):  # noqa: N818 - it is the answer
    """Another user has an open session of the publisher."""


class Busy(Unavailable):
    """The inbox is full."""


class TimedOut(Unavailable):
    """The loop did not answer before the deadline."""


class NotRestored(Unavailable):
    """The partitions that would answer are not restored on this instance."""
