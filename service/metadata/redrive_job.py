"""Redrive job: a redrive as the metadata topic stores it, and its transitions.

    running → done | cancelled | failed          an ended one → cleared

A cleared job is one of which no deciding partition keeps a checkpoint. The record holds the
request, the positions of the letters, and the progress; the owners' checkpoints hold the rest. So
a resumed job repeats a little and sends nothing twice.
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from service.dedup.dead_letter import (
    MODES,
    DeadLetterFilter,
    DeadLetterPosition,
    RedriveProgress,
    RedriveRequest,
    RedriveView,
    State,
)
from service.metadata.record import MetadataRecord, read

KIND: Final = "redrive"
ENDED: Final[frozenset[State]] = frozenset({"done", "cancelled", "failed"})
KEPT_MAX: Final = 100
"""Jobs that are told of; older ones that have ended are forgotten."""


class DeadLetterRange(NamedTuple):
    """Dead letters of one partition, from an offset to below another."""

    topic: str
    partition: int
    start: int
    end: int


class RedriveJob(NamedTuple):
    """A redrive."""

    id: str
    """Later ones have greater ids."""
    order: RedriveRequest
    spans: tuple[DeadLetterRange, ...]
    """Where the letters stand, in the order in which they are sent."""
    created_at_ms: int
    updated_at_ms: int
    state: State = "running"
    ended_at_ms: int | None = None
    span: int = 0
    """The one at hand; those before it are done."""
    offset: int = -1
    """In it, all before this one is done; -1 at its start."""
    progress: RedriveProgress = RedriveProgress()
    rate_per_second: float = 0.0
    eta_s: float | None = None
    waiting_for: str | None = None
    error: str | None = None
    cleared: bool = False

    @property
    def is_running(self) -> bool:
        """Whether letters may be decided for it."""
        return self.state == "running"

    @property
    def is_over(self) -> bool:
        """Whether nothing is left to do."""
        return self.cleared and not self.is_running

    @property
    def records_total(self) -> int:
        """How many records there were to look at, about."""
        return len(self.order.letters) or sum(span.end - span.start for span in self.spans)

    def ended(self, state: State, now_ms: int, error: str | None = None) -> "RedriveJob":
        """The same, come to an end; one that has ended stays as it is."""
        assert state in ENDED  # a job does not begin again
        if not self.is_running:
            return self
        return self._replace(
            state=state,
            ended_at_ms=now_ms,
            updated_at_ms=now_ms,
            error=error,
            waiting_for=None,
            eta_s=None,
        )

    @property
    def view(self) -> RedriveView:
        """As it is told of."""
        return RedriveView(
            id=self.id,
            order=self.order,
            state=self.state,
            created_at_ms=self.created_at_ms,
            updated_at_ms=self.updated_at_ms,
            ended_at_ms=self.ended_at_ms,
            records_total=self.records_total,
            progress=self.progress,
            rate_per_second=self.rate_per_second,
            eta_s=self.eta_s,
            waiting_for=self.waiting_for,
            error=self.error,
        )

    @property
    def record(self) -> MetadataRecord:
        """As the config topic holds it."""
        order = self.order
        wanted = order.filter
        told = {
            **self._asdict(),
            "order": {
                **order._asdict(),
                "filter": {
                    **wanted._asdict(),
                    "headers": [[name, value.hex()] for name, value in wanted.headers],
                    "key": None if wanted.key is None else wanted.key.hex(),
                },
            },
            "progress": self.progress._asdict(),
        }
        return MetadataRecord.of([KIND, self.id], told)


def forgetting(name: str) -> MetadataRecord:
    """What takes a job off the config topic."""
    return MetadataRecord.gone([KIND, name])


class RedriveJobs:
    """All that are known, by id."""

    def __init__(self) -> None:
        self.by_id: dict[str, RedriveJob] = {}

    def take(self, key: bytes | None, value: bytes | None) -> bool:
        """One record of the config topic; tells whether it was about a redrive."""
        match read(key):
            case [kind, str(name)] if kind == KIND:
                self._take(name, value)
                return True
            case _:
                return False

    def _take(self, name: str, value: bytes | None) -> None:
        job = job_of(value)
        if value is None:
            self.by_id.pop(name, None)
        elif job is not None and job.id == name:
            self.by_id[name] = job


def job_of(value: bytes | None) -> RedriveJob | None:
    """The job that a record holds; None for what is none."""
    told = read(value)
    if not isinstance(told, dict):
        return None
    try:
        return RedriveJob(
            **{
                **told,
                "order": _order(told["order"]),
                "spans": tuple(DeadLetterRange(*span) for span in told["spans"]),
                "progress": RedriveProgress(**told["progress"]),
            }
        )
    except (KeyError, TypeError, ValueError, AttributeError):
        return None


def _order(told: Mapping[str, Any]) -> RedriveRequest:
    if told["mode"] not in MODES:
        raise ValueError(told["mode"])
    wanted = told["filter"]
    return RedriveRequest(
        **{
            **told,
            "filter": DeadLetterFilter(
                **{
                    **wanted,
                    "topics": tuple(wanted["topics"]),
                    "reasons": tuple(wanted["reasons"]),
                    "headers": tuple((n, bytes.fromhex(v)) for n, v in wanted["headers"]),
                    "key": None if wanted["key"] is None else bytes.fromhex(wanted["key"]),
                }
            ),
            "letters": tuple(DeadLetterPosition(*place) for place in told["letters"]),
        }
    )
