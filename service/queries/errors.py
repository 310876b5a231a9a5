"""Errors of queries and changes: why one cannot be answered or made, and when to try again."""


class Unavailable(Exception):  # noqa: N818 - a state that passes, not a fault
    """There is no answer now; ask again after `retry_after_s`."""

    def __init__(self, sentence: str, retry_after_s: int = 1) -> None:
        super().__init__(sentence)
        self.retry_after_s = retry_after_s


class NotPossible(Exception):  # noqa: N818 - it is the answer
    """What was asked for cannot be done; the sentence tells why, and what could."""


class NameInUse(Exception):  # noqa: N818 - it is the answer
    """Another user has a session under the name of a publisher."""


class Busy(Unavailable):
    """The inbox is full."""


class TimedOut(Unavailable):
    """The loop did not answer before the deadline."""


class NotRestored(Unavailable):
    """The partitions that would answer are not restored on this instance."""
