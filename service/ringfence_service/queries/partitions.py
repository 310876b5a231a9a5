"""Partition changes: going on behind a batch that cannot be read."""

from collections.abc import Sequence
from typing import NamedTuple


class SkippedBatch(NamedTuple):
    """The offsets that a partition goes on without, or would."""

    topic: str
    partition: int
    first_offset: int
    last_offset: int
    log_bytes: int | None
    """Bytes of the batch in the log; None if the client does not report them."""
    complete: bool = False


class SkipBatch(NamedTuple):
    """Makes the owner of a partition go on behind the unreadable batch that blocks it.

    `offset` is the first that is skipped: a repeated request finds the partition elsewhere.
    """

    topic: str
    partition: int
    offset: int
    dry_run: bool = False

    def merge(self, answers: Sequence[SkippedBatch]) -> SkippedBatch:
        """Return the answer of the owner."""
        return answers[0]
