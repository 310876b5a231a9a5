"""Redrive service: creates, previews, reports and cancels redrives. The coordinator runs them."""

import hashlib
import secrets
from collections import Counter
from collections.abc import Callable
from typing import Final

from confluent_kafka import KafkaException

from service.clock import Clock
from service.config.load import Config
from service.dead_letters.browser import DeadLetterBrowser
from service.dead_letters.owners import DeadLetterOwners
from service.dead_letters.redrive_coordinator import RedriveCoordinator
from service.dedup.dead_letter import (
    DeadLetterFilter,
    DeadLetterView,
    RedriveEstimate,
    RedriveRequest,
    RedriveView,
)
from service.kafka.clients import Clients
from service.metadata.redrive_job import DeadLetterRange, RedriveJob
from service.queries.errors import NotPossible, Unavailable
from state.model import PartitionId

SAMPLES: Final = 10
RUNNING_MAX: Final = 20


class RedriveService:
    """See the module. Blocks; safe on any thread."""

    def __init__(
        self,
        config: Callable[[], Config],
        clients: Callable[[], Clients],
        box: DeadLetterBrowser,
        coordinator: RedriveCoordinator,
        clock: Clock,
    ) -> None:
        self._config = config
        self._clients = clients
        self._box = box
        self._coordinator = coordinator
        self._clock = clock

    def order(self, order: RedriveRequest, key: str | None = None) -> RedriveView:
        """Begin a redrive of what is there now; what is written later is not part of it.

        Under a key that its actor has used before, on any instance, it is the redrive that was
        begun then, for as long as that one is known.
        """
        jobs, mark = self._coordinator.jobs(), _mark(order.actor, key)
        for job in jobs.values():
            if job.id.endswith(mark):
                return job.view
        running = [job for job in jobs.values() if job.is_running]
        if len(running) >= RUNNING_MAX:
            sentence = f"{RUNNING_MAX} redrives run already; wait for one to end, or cancel it."
            raise NotPossible(sentence)
        now_ms = self._clock.wall_ms()
        job = RedriveJob(
            id=f"{now_ms:013d}{mark}",
            order=order,
            spans=self._spans(order),
            created_at_ms=now_ms,
            updated_at_ms=now_ms,
        )
        return self._asked(lambda: self._coordinator.begin(job, mark)).view

    def preview(self, order: RedriveRequest) -> RedriveEstimate:
        """What it would be about, as far as one request goes."""
        spans, ways = (
            self._spans(order),
            DeadLetterOwners.now(self._config(), self._clients().cluster),
        )
        samples: list[DeadLetterView] = []
        skipped = Counter[str]()

        def look(view: DeadLetterView) -> None:
            way = ways.way(view)
            if isinstance(way, str):
                skipped[way] += 1
            if len(samples) < SAMPLES:
                samples.append(view)

        if order.letters:
            counts = self._box.count_named(order.letters, look)
        else:
            counts = self._box.count(order.filter, None, look)
        total = len(order.letters) or sum(span.end - span.start for span in spans)
        return RedriveEstimate(order, total, counts, dict(skipped), tuple(samples))

    def all(self) -> tuple[RedriveView, ...]:
        """The newest first."""
        jobs = self._coordinator.jobs()
        return tuple(jobs[name].view for name in sorted(jobs, reverse=True))

    def get(self, name: str) -> RedriveView | None:
        """The one of that id."""
        job = self._coordinator.jobs().get(name)
        return None if job is None else job.view

    def cancel(self, name: str) -> RedriveView | None:
        """End one; of one that has ended nothing changes."""
        job = self._coordinator.jobs().get(name)
        if job is None:
            return None
        if not job.is_running:
            return job.view
        now_ms = self._clock.wall_ms()

        def ended(now: RedriveJob | None) -> RedriveJob:
            return (job if now is None else now).ended("cancelled", now_ms)

        return self._asked(lambda: self._coordinator.write(name, ended)).view

    def _asked(self, write: Callable[[], RedriveJob]) -> RedriveJob:
        try:
            return write()
        except KafkaException as error:
            sentence = f"The broker answered {error.args[0].name()}; ask again."
            raise Unavailable(sentence) from error

    def _spans(self, order: RedriveRequest) -> tuple[DeadLetterRange, ...]:
        if order.letters:
            return self._named_spans(order)
        with self._box.reading() as (clients, consumer):
            log = self._box.log_of(order.filter, clients, consumer)
        return tuple(
            DeadLetterRange(*each, start, end)
            for each, (start, end) in sorted(log.items())
            if start < end
        )

    def _named_spans(self, order: RedriveRequest) -> tuple[DeadLetterRange, ...]:
        places: dict[PartitionId, list[int]] = {}
        for topic, partition, offset in order.letters:
            places.setdefault(PartitionId(topic, partition), []).append(offset)
        wanted = DeadLetterFilter(topics=tuple(sorted({topic for topic, _ in places})))
        with self._box.reading() as (clients, consumer):
            log = self._box.log_of(wanted, clients, consumer)
        for each, offsets in places.items():
            if each not in log or max(offsets) >= log[each][1]:
                where = f"{each.topic}-{each.partition}@{max(offsets)}"
                raise NotPossible(f"There is no dead letter {where}; see /v1/dead-letters.")
        return tuple(
            DeadLetterRange(*each, min(offsets), max(offsets) + 1)
            for each, offsets in sorted(places.items())
        )


def _mark(actor: str, key: str | None) -> str:
    """The end of an id: the same for the same key of the same actor, wherever it is made."""
    if key is None:
        return f"-{secrets.token_hex(4)}"
    return f"-{hashlib.sha256(f'{len(actor)}:{actor}{key}'.encode()).hexdigest()[:32]}"
