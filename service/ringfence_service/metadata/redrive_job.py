"""Redrive job: a redrive as the metadata topic stores it, and its transitions.

    running → done | cancelled | failed → cleared

A job is cleared when no deciding partition keeps a checkpoint of it. The record holds the request,
the positions of the dead letters, and the progress; the checkpoints of the partitions' owners hold
the rest. So a resumed job repeats a little work and sends nothing twice.
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from ringfence_service.dedup.dead_letter import MODES
from ringfence_service.metadata.record import MetadataRecord, read
from ringfence_service.queries.dead_letters import (
    DeadLetterFilter,
    DeadLetterPosition,
    DeadLetterView,
    RedriveProgress,
    RedriveRequest,
    RedriveView,
    State,
    matches,
)

KIND: Final = "redrive"
_AS_THEY_ARE: Final = ("topics", "address", "reasons", "from_ms", "to_ms")
"""The parts of a filter that are stored unchanged."""
ENDED: Final[frozenset[State]] = frozenset({"done", "cancelled", "failed"})
KEPT_MAX: Final = 100
"""How many jobs are listed; older ones that have ended are deleted."""


class DeadLetterRange(NamedTuple):
    """The dead letters of one partition from offset `start` to before `end`."""

    topic: str
    partition: int
    start: int
    end: int


class RedriveJob(NamedTuple):
    """A redrive: its request, its state and its progress."""

    id: str
    """Ids sort by creation time."""
    order: RedriveRequest
    spans: tuple[DeadLetterRange, ...]
    """The ranges of its dead letters, in the order in which they are sent."""
    created_at_ms: int
    updated_at_ms: int
    state: State = "running"
    ended_at_ms: int | None = None
    span: int = 0
    """The index of the current range; those before it are done."""
    offset: int = -1
    """In the current range, all offsets before this one are done; -1 at its start."""
    progress: RedriveProgress = RedriveProgress()
    rate_per_second: float = 0.0
    eta_s: float | None = None
    waiting_for: str | None = None
    error: str | None = None
    cleared: bool = False

    @property
    def is_running(self) -> bool:
        """Whether dead letters may be decided for it."""
        return self.state == "running"

    @property
    def is_over(self) -> bool:
        """Whether it has ended and its checkpoints are deleted."""
        return self.cleared and not self.is_running

    @property
    def records_total(self) -> int:
        """About how many dead letters it has to read."""
        return len(self.order.letters) or sum(span.end - span.start for span in self.spans)

    def has_sent(self, letter: DeadLetterView) -> bool:
        """Whether a dead letter is one of its dead letters and before its position.

        It may have skipped the dead letter, for example because no route has its input.
        """
        if self.order.letters and letter.position not in self.order.letters:
            return False
        return matches(letter, self.order.filter) and any(
            span[:2] == letter.position[:2]
            and span.start <= letter.position.offset < span.end
            and (
                number < self.span or (number == self.span and letter.position.offset < self.offset)
            )
            for number, span in enumerate(self.spans)
        )

    def ended(self, state: State, now_ms: int, error: str | None = None) -> "RedriveJob":
        """Return the job in a final state; a job that has ended already is not changed."""
        assert state in ENDED  # a job never starts again
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
        """The job as the API shows it."""
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
        """The job as a record of the metadata topic."""
        order = self.order
        chosen = order.filter
        document = {
            **self._asdict(),
            "order": {
                **order._asdict(),
                "filter": {
                    **{name: getattr(chosen, name) for name in _AS_THEY_ARE},
                    "headers": [[name, value.hex()] for name, value in chosen.headers],
                    "key": None if chosen.key is None else chosen.key.hex(),
                },
            },
            "progress": self.progress._asdict(),
        }
        return MetadataRecord.of([KIND, self.id], document)


def forgetting(name: str) -> MetadataRecord:
    """Return the record that deletes a job from the metadata topic."""
    return MetadataRecord.gone([KIND, name])


class RedriveJobs:
    """All known jobs, by id."""

    def __init__(self) -> None:
        self.by_id: dict[str, RedriveJob] = {}

    def take(self, key: bytes | None, value: bytes | None) -> bool:
        """Apply one record of the metadata topic; return whether it is a redrive job."""
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
    """Return the job in the value of a record; None if it is malformed."""
    document = read(value)
    if not isinstance(document, dict):
        return None
    try:
        return RedriveJob(
            **{
                **document,
                "order": _order(document["order"]),
                "spans": tuple(DeadLetterRange(*span) for span in document["spans"]),
                "progress": RedriveProgress(**document["progress"]),
            }
        )
    except (KeyError, TypeError, ValueError, AttributeError):
        return None


def _order(document: Mapping[str, Any]) -> RedriveRequest:
    if document["mode"] not in MODES:
        raise ValueError(document["mode"])
    chosen = document["filter"]
    return RedriveRequest(
        **{
            **document,
            "filter": DeadLetterFilter(
                **{
                    **chosen,
                    "topics": tuple(chosen["topics"]),
                    "reasons": tuple(chosen["reasons"]),
                    "headers": tuple((n, bytes.fromhex(v)) for n, v in chosen["headers"]),
                    "key": None if chosen["key"] is None else bytes.fromhex(chosen["key"]),
                }
            ),
            "letters": tuple(DeadLetterPosition(*position) for position in document["letters"]),
        }
    )
