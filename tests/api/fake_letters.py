"""Dead letters and redrives without Kafka: letters are listed, and ordered redrives are kept."""

from collections.abc import Sequence

from ringfence_service.dedup.dead_letter import Mode, SourcePosition
from ringfence_service.metadata.redrive_job import DeadLetterRange, RedriveJob
from ringfence_service.queries.dead_letters import (
    Absence,
    DeadLetterCounts,
    DeadLetterFilter,
    DeadLetterPage,
    DeadLetterPosition,
    DeadLetterView,
    InputRecord,
    RedriveEstimate,
    RedriveProgress,
    RedriveRequest,
    RedriveView,
    matches,
)
from ringfence_service.queries.errors import NotPossible, Unavailable

NOW_MS = 1_700_000_000_000
PAST = "0-x"
"""A redrive that has ended."""
LETTER = DeadLetterView(
    position=DeadLetterPosition("orders.dlq", 0, 7),
    time_ms=NOW_MS,
    reason="duplicate",
    cause="its id was accepted at orders-3@42 already",
    source=SourcePosition("orders", 3, 90, 1_699_999_999_000),
    address="orders",
    strategy="ring",
    identifier="id-1",
    original="orders-3@42",
    redrives=0,
    key=b"customer-5",
    value=b'{"secret": 1}',
    headers=(("_DUPL_ID", b"id-1"), ("tenant", b"acme")),
)
FOREIGN = LETTER._replace(
    position=DeadLetterPosition("orders.dlq", 0, 8),
    reason=None,
    cause=None,
    source=None,
    address=None,
    strategy=None,
    identifier=None,
    original=None,
)
ORIGINAL = InputRecord(
    position=DeadLetterPosition("orders", 3, 42),
    time_ms=NOW_MS - 60_000,
    key=b"customer-5",
    value=b'{"secret": 2}',
    headers=(("_DUPL_ID", b"id-1"), ("tenant", b"acme")),
    address="orders",
    identifier=b"id-1",
)


class FakeLetters:
    """Letters in a list."""

    def __init__(
        self, letters: Sequence[DeadLetterView] = (LETTER, FOREIGN), *, is_up: bool = True
    ) -> None:
        self._all = letters
        self._is_up = is_up

    def come(self, letter: DeadLetterView) -> None:
        """One more is there, and the broker answers."""
        self._all, self._is_up = (*self._all, letter), True

    def go_away(self) -> None:
        """The broker answers no more."""
        self._is_up = False

    @property
    def _letters(self) -> Sequence[DeadLetterView]:
        if not self._is_up:
            raise Unavailable("The broker answered nothing; ask again.")
        return self._all

    def page(
        self,
        wanted: DeadLetterFilter,
        place: object | None,
        limit: int,
        *,
        newest: bool,
        after: DeadLetterPosition | None = None,
    ) -> DeadLetterPage:
        start = 0 if place is None else _number(place)
        rows = [each for each in self._letters if matches(each, wanted)][start:]
        rows = rows[::-1] if newest else rows
        if after is not None:
            rows = [
                each
                for each in rows
                if each.position[:2] == after[:2]
                and (each.position < after if newest else each.position > after)
            ]
        rest = start + limit if len(rows) > limit else None
        return DeadLetterPage(tuple(rows[:limit]), len(self._letters), rest)

    def one(self, place: DeadLetterPosition) -> DeadLetterView | Absence:
        found = next((each for each in self._letters if each.position == place), None)
        return found or _absence(place, "orders.dlq", 0)

    def record(self, place: DeadLetterPosition) -> InputRecord | Absence:
        found = self._letters and place == ORIGINAL.position
        return ORIGINAL if found else _absence(place, "orders", 3)

    def count(self, wanted: DeadLetterFilter, place: object | None) -> DeadLetterCounts:
        if place is not None:
            _number(place)
        found = [each for each in self._letters if matches(each, wanted) and each.reason]
        return DeadLetterCounts(
            scanned=len(self._letters),
            matched=len(found),
            foreign=len(self._letters) - len(found),
            by_reason={"duplicate": len(found)},
            by_address={"orders": len(found)},
            by_topic={"orders.dlq": len(found)},
            by_hour_ms={NOW_MS // 3_600_000 * 3_600_000: len(found)},
            cursor=None,
        )


def sent_job(mode: Mode, progress: RedriveProgress) -> RedriveJob:
    """A redrive that has sent all dead letters of its one partition."""
    spans = (DeadLetterRange("orders.dlq", 0, 0, 100),)
    order = RedriveRequest(mode, DeadLetterFilter())
    job = RedriveJob("1-sent", order, spans, NOW_MS, NOW_MS, span=1, progress=progress)
    return job.ended("done", NOW_MS)


class FakeRedrives:
    """Jobs that nobody carries out."""

    def __init__(self, letters: FakeLetters, *, is_up: bool = True) -> None:
        self._letters = letters
        self._is_up = is_up
        past = RedriveJob(PAST, RedriveRequest("through", DeadLetterFilter()), (), NOW_MS, NOW_MS)
        self._all = {PAST: past.ended("done", NOW_MS)}
        self._keys = dict[str, str]()

    @property
    def _jobs(self) -> dict[str, RedriveJob]:
        if not self._is_up:
            raise Unavailable("The metadata topic was not read yet; ask again.")
        return self._all

    def know(self, job: RedriveJob) -> None:
        """Such a job is there."""
        self._all[job.id] = job

    def order(self, order: RedriveRequest, key: str | None = None) -> RedriveView:
        if key is not None and key in self._keys:
            return self._jobs[self._keys[key]].view
        if "nowhere" in order.filter.topics:
            raise NotPossible("nowhere is no dead-letter topic of this group.")
        name = f"{len(self._jobs)}-x"
        job = RedriveJob(name, order, (DeadLetterRange("orders.dlq", 0, 0, 9),), NOW_MS, NOW_MS)
        self._jobs[name] = job
        self._keys[key or name] = name
        return job.view

    def preview(self, order: RedriveRequest) -> RedriveEstimate:
        counts = self._letters.count(order.filter, None)
        if order.letters:
            counts = counts._replace(matched=len(order.letters), foreign=0)
        return RedriveEstimate(order, 9, counts, {"foreign": counts.foreign}, (LETTER,))

    def all(self, letter: DeadLetterView | None = None) -> tuple[RedriveView, ...]:
        jobs = sorted(self._jobs.items(), reverse=True)
        return tuple(job.view for _, job in jobs if letter is None or job.has_sent(letter))

    def get(self, name: str) -> RedriveView | None:
        return self._jobs[name].view if name in self._jobs else None

    def cancel(self, name: str) -> RedriveView | None:
        if name in self._jobs:
            self._jobs[name] = self._jobs[name].ended("cancelled", NOW_MS)
        return self.get(name)


def _absence(place: DeadLetterPosition, topic: str, partition: int) -> Absence:
    """Of one partition, the offsets from 4 to 100 are there."""
    if place.topic != topic:
        return Absence("topic")
    if place.partition != partition:
        return Absence("partition")
    if 4 <= place.offset < 100:
        return Absence("gap", 4, 100)
    return Absence("deleted" if place.offset < 4 else "end", 4, 100)


def _number(place: object) -> int:
    if not isinstance(place, int):
        raise NotPossible("The page token is not one that a page returned.")
    return place
