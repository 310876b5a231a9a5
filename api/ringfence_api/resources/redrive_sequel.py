"""Sequel of a dead letter: whether a redrive has accepted its record since.

A redrive counts its records and does not list them. So its outcome for one record is certain only
if it had the same outcome for all.
"""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from ringfence_service.formatting import plural
from ringfence_service.queries.dead_letters import RedriveView

REMEMBERED: Final = "A redrive has accepted it since: it is the accepted record now."
"""The sentence about a record that its address remembers as accepted."""


class Sequel(NamedTuple):
    """What has happened to a record that its address does not remember, since its dead letter."""

    jobs: Sequence[RedriveView]
    """The redrives that have sent the dead letter, newest first."""
    later_jobs: Sequence[RedriveView]
    """Those that have sent the newer dead letter of the record."""
    newer: str | None
    """The position of the newer dead letter, if it is known."""
    searched: int | None
    """How many dead letters an unfinished search for it has read; None if none is unfinished."""
    error: str | None
    """Why redrives or the newer dead letter could not be looked up, as a sentence."""
    is_certain: bool
    """Whether a record that no listed redrive has sent was not accepted."""

    @property
    def is_accepted(self) -> bool | None:
        """Whether a redrive has accepted the record; None if it is not certain."""
        if accepting((*self.later_jobs, *self.jobs)) is not None:
            return True
        is_known = not self.later_jobs if self.newer else not self.jobs and self.is_certain
        return False if is_known and self.error is None else None

    @property
    def sentence(self) -> str | None:
        """What has happened; None for nothing."""
        job = accepting((*self.later_jobs, *self.jobs))
        if job is not None:
            did = f"The redrive {job.id} has accepted it since, with mode {job.order.mode}"
            return f"{did}, so the output has it."
        if self.newer is not None:
            return f"A redrive refused it again, as {self.newer}."
        if not self.jobs:
            error = self.error
            return error and f"Whether it was redriven cannot be looked up now: {error}"
        done = self.jobs[0].progress
        sentence = (
            f"The redrive {self.jobs[0].id} has sent it since, and has accepted "
            f"{done.accepted:,} of {plural(done.matched, 'dead letter')}."
        )
        if self.error is not None:
            return f"{sentence} Whether it was refused again cannot be looked up now: {self.error}"
        if self.searched is not None:
            return (
                f"{sentence} None of the {self.searched:,} newest dead letters says that it was "
                "refused again."
            )
        return sentence


def accepting(jobs: Iterable[RedriveView]) -> RedriveView | None:
    """Return the first redrive that has accepted every dead letter that it has sent, or None."""
    return next((job for job in jobs if 0 < job.progress.accepted == job.progress.matched), None)


def may_have_newer(jobs: Sequence[RedriveView]) -> bool:
    """Whether a redrive may have been refused with a newer dead letter of the same record."""
    return accepting(jobs) is None and any(job.progress.refused for job in jobs)
