"""Redrive service: creates, previews, lists and cancels redrives. The coordinator runs them."""

import hashlib
import secrets
from collections import Counter
from collections.abc import Callable
from typing import Final

from confluent_kafka import KafkaException

from ringfence_service.clock import Clock
from ringfence_service.config.model import Config
from ringfence_service.dead_letters.browser import DeadLetterBrowser
from ringfence_service.dead_letters.owners import DeadLetterOwners
from ringfence_service.dead_letters.redrive_coordinator import RedriveCoordinator
from ringfence_service.kafka.clients import Clients
from ringfence_service.metadata.redrive_job import DeadLetterRange, RedriveJob
from ringfence_service.metadata.topic import not_written
from ringfence_service.queries.dead_letters import (
    DeadLetterFilter,
    DeadLetterView,
    RedriveEstimate,
    RedriveRequest,
    RedriveView,
)
from ringfence_service.queries.errors import NotPossible, Unavailable
from ringfence_service.schemas.errors import RegistryUnavailableError
from ringfence_state.model import PartitionId

SAMPLES: Final = 10
RUNNING_MAX: Final = 20
"""How many redrives may be unfinished: only a few run at the same time, the others wait.

Less than `KEPT_MAX`, so that ended ones stay listed beside them.
"""


class RedriveService:
    """Handles the API's requests for redrives. Blocks; safe on any thread."""

    def __init__(
        self,
        config: Callable[[], Config],
        clients: Callable[[], Clients],
        browser: DeadLetterBrowser,
        coordinator: RedriveCoordinator,
        clock: Clock,
    ) -> None:
        self._config = config
        self._clients = clients
        self._browser = browser
        self._coordinator = coordinator
        self._clock = clock

    def order(self, order: RedriveRequest, key: str | None = None) -> RedriveView:
        """Create a redrive of the dead letters that exist now; later ones are not part of it.

        With an idempotency key that the actor has used before, on any instance, return the redrive
        of that request, as long as it is known.
        """
        jobs, suffix = self._coordinator.jobs(), _id_suffix(order.actor, key)
        for job in jobs.values():
            if job.id.endswith(suffix):
                return job.view
        running = [job for job in jobs.values() if job.is_running]
        if len(running) >= RUNNING_MAX:
            sentence = f"{RUNNING_MAX} redrives run already; wait for one to end, or cancel it."
            raise NotPossible(sentence)
        now_ms = self._clock.wall_ms()
        job = RedriveJob(
            id=f"{now_ms:013d}{suffix}",
            order=order,
            spans=self._spans(order),
            created_at_ms=now_ms,
            updated_at_ms=now_ms,
        )
        return self._write(lambda: self._coordinator.begin(job, suffix)).view

    def preview(self, order: RedriveRequest) -> RedriveEstimate:
        """Estimate a redrive without creating it, up to the limit of one request."""
        spans, owners = (
            self._spans(order),
            DeadLetterOwners.now(self._config(), self._clients().cluster),
        )
        samples: list[DeadLetterView] = []
        skipped = Counter[str]()

        def on_match(view: DeadLetterView) -> None:
            try:
                owner = owners.owner(view)
            except RegistryUnavailableError as unavailable:
                raise Unavailable(f"It needs {unavailable}.") from unavailable
            if isinstance(owner, str):
                skipped[owner] += 1
            if len(samples) < SAMPLES:
                samples.append(view)

        if order.letters:
            counts = self._browser.count_named(order.letters, on_match)
        else:
            counts = self._browser.count(order.filter, None, on_match)
        total = len(order.letters) or sum(span.end - span.start for span in spans)
        return RedriveEstimate(order, total, counts, dict(skipped), tuple(samples))

    def all(self, letter: DeadLetterView | None = None) -> tuple[RedriveView, ...]:
        """Return all redrives, the newest first; with a dead letter, only those that sent it."""
        jobs = sorted(self._coordinator.jobs().items(), reverse=True)
        return tuple(job.view for _, job in jobs if letter is None or job.has_sent(letter))

    def get(self, name: str) -> RedriveView | None:
        """Return the redrive with an id, or None."""
        job = self._coordinator.jobs().get(name)
        return None if job is None else job.view

    def cancel(self, name: str) -> RedriveView | None:
        """Cancel a redrive and return it, unchanged if it has ended; None if there is none."""
        job = self._coordinator.jobs().get(name)
        if job is None:
            return None
        if not job.is_running:
            return job.view
        now_ms = self._clock.wall_ms()

        def ended(now: RedriveJob | None) -> RedriveJob:
            return (job if now is None else now).ended("cancelled", now_ms)

        return self._write(lambda: self._coordinator.write(name, ended)).view

    def _write(self, write: Callable[[], RedriveJob]) -> RedriveJob:
        try:
            return write()
        except KafkaException as error:
            raise not_written(error, "ask again.") from error

    def _spans(self, order: RedriveRequest) -> tuple[DeadLetterRange, ...]:
        if order.letters:
            return self._named_spans(order)
        with self._browser.reading() as (clients, consumer):
            log = self._browser.log_of(order.filter, clients, consumer)
        return tuple(
            DeadLetterRange(*each, start, end)
            for each, (start, end) in sorted(log.items())
            if start < end
        )

    def _named_spans(self, order: RedriveRequest) -> tuple[DeadLetterRange, ...]:
        by_partition: dict[PartitionId, list[int]] = {}
        for topic, partition, offset in order.letters:
            by_partition.setdefault(PartitionId(topic, partition), []).append(offset)
        topics = DeadLetterFilter(topics=tuple(sorted({topic for topic, _ in by_partition})))
        with self._browser.reading() as (clients, consumer):
            log = self._browser.log_of(topics, clients, consumer)
        for each, offsets in by_partition.items():
            if each not in log or max(offsets) >= log[each][1]:
                where = f"{each.topic}-{each.partition}@{max(offsets)}"
                raise NotPossible(f"There is no dead letter {where}; see /v1/dead-letters.")
        return tuple(
            DeadLetterRange(*each, min(offsets), max(offsets) + 1)
            for each, offsets in sorted(by_partition.items())
        )


def _id_suffix(actor: str, key: str | None) -> str:
    """Return the end of a job id, the same on every instance for a key of an actor."""
    if key is None:
        return f"-{secrets.token_hex(4)}"
    return f"-{hashlib.sha256(f'{len(actor)}:{actor}{key}'.encode()).hexdigest()[:32]}"
