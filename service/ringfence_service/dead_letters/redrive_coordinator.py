"""Redrive coordinator: runs the redrives of the group in one instance, on its own thread.

The coordinator is the instance that owns the first deciding partition (ADR 11). Correctness does
not depend on there being only one: owners decide each dead letter once, no matter which instance
sends it. A job is read from the metadata topic, resumes at its last checkpoint, and is saved from
time to time.
"""

import asyncio
import threading
from collections.abc import Callable, Collection
from contextlib import suppress
from functools import partial
from typing import Final

import structlog
from confluent_kafka import KafkaException

from ringfence_service.clock import Clock
from ringfence_service.config.model import Config
from ringfence_service.config.tasks import Hop, hops_of
from ringfence_service.dead_letters.daemon_thread import run_in_daemon_thread
from ringfence_service.dead_letters.owners import DeadLetterOwners
from ringfence_service.dead_letters.reader import DeadLetterReader
from ringfence_service.dead_letters.redrive_runner import JobDeletedError, RedriveRunner
from ringfence_service.dedup.route import resolve
from ringfence_service.kafka.clients import Clients
from ringfence_service.kafka.topics import by_address, config_topic
from ringfence_service.metadata.image import MetadataImage
from ringfence_service.metadata.record import MetadataRecord
from ringfence_service.metadata.redrive_job import KEPT_MAX, RedriveJob, forgetting
from ringfence_service.metadata.topic import MetadataWriter
from ringfence_service.metadata.watcher import MetadataWatcher
from ringfence_service.queries.errors import Unavailable
from ringfence_service.queries.inbox import QueryService
from ringfence_service.queries.status import ServiceStatus
from ringfence_service.schemas.errors import RegistryUnavailableError
from ringfence_state.model import PartitionId


def first_deciding(config: Config, names: Collection[str]) -> PartitionId | None:
    """Return the partition whose owner is the coordinator, the same on every instance.

    It is the first partition of the repartition topic if any route has scope `address`, otherwise
    that of the first input; None without inputs.
    """
    group_id = config.service.group_id
    if Hop.ADDRESSES in hops_of(route.scope for route in config.routes):
        return PartitionId(by_address(group_id), 0)
    inputs = resolve(config.routes, names, group_id)
    return PartitionId(min(inputs), 0) if inputs else None


def owns(status: ServiceStatus, partition: PartitionId | None) -> bool:
    """Whether an instance reads a partition."""
    return any(each.source == partition and each.phase == "running" for each in status.partitions)


_REFRESH_S: Final = 0.25
"""How often jobs are looked at: within this time one begins, or stops when it is cancelled.

It takes no request, since the watcher has read the metadata topic.
"""

_OWNER_CHECK_S: Final = 5.0
"""How long the first deciding partition counts as known: to find it, the broker is asked.

If it is another one by then, two instances send, and nothing is decided twice (ADR 11).
"""

_WRITTEN_S: Final = 5.0
"""How long a job that was written here is shown although it was not read back.

While the broker answers, reading it back takes less. Without an end, a job that another instance
has deleted would stay.
"""

_STOP_S: Final = 2.0
"""How long the end of the process waits for the thread, and the thread for its steps.

The next coordinator sends an unfinished step again, so nothing is lost.
"""

_ATTEMPTS: Final = 4
"""How often a job is written before that counts as failed: instances fence each other.

The pauses between them add up to 1.5 s. Then the job starts again from what was saved.
"""

_PAUSE_S: Final = 2.0
"""How long redrives rest after a failure, so that it is neither logged nor tried all the time."""

_AT_ONCE: Final = 4
"""How many redrives run at the same time; the others wait."""

_log = structlog.stdlib.get_logger(__name__)


class _AlreadyStartedError(Exception):
    """A job with the same idempotency key exists already."""

    def __init__(self, job: RedriveJob) -> None:
        super().__init__(job.id)
        self.job = job


class RedriveCoordinator:
    """Runs redrives while this instance is the coordinator.

    `jobs`, `know`, `begin` and `write` are safe on any thread.
    """

    def __init__(
        self,
        config: Callable[[], Config],
        clients: Callable[[], Clients],
        query_service: QueryService,
        status: Callable[[], ServiceStatus],
        metadata_watcher: MetadataWatcher,
        clock: Clock,
    ) -> None:
        self._config = config
        self._clients = clients
        self._query_service = query_service
        self._status = status
        self._clock = clock
        self._metadata_watcher = metadata_watcher
        self._writer = MetadataWriter(clients, config_topic(config().service.group_id), clock)
        self._known: dict[str, RedriveJob] | None = None
        """Jobs as read from the metadata topic; None before it was read."""
        self._written: dict[str, tuple[float, RedriveJob]] = {}
        """Jobs written by this instance, with the time, until they are read back."""
        self._runners: dict[str, RedriveRunner] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._was_running: dict[str, bool] = {}
        """Whether the job of a runner was running when the runner started."""
        self._first: PartitionId | None
        self._checked_s = float("-inf")
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="ringfence-redrives", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Stop sending; unfinished jobs are continued by another instance, or later."""
        self._stopping = True
        self._thread.join(_STOP_S)

    def jobs(self) -> dict[str, RedriveJob]:
        """Return all known jobs by id, with the current progress of those that run here.

        Raises Unavailable until the metadata topic has been read.
        """
        if self._known is None:
            raise Unavailable("The metadata topic has not been read yet; ask again.")
        live = {name: runner.job for name, runner in list(self._runners.items())}
        return {
            name: _newer(job, live[name]) if name in live else job
            for name, job in list(self._known.items())
        }

    def know(self, job: RedriveJob) -> None:
        """Note a job that was written here, so that it is visible before it is read back."""
        self._written[job.id] = (self._clock.monotonic_s(), job)
        if self._known is not None:
            self._known[job.id] = job

    def _run(self) -> None:
        asyncio.run(self.work())

    async def work(self) -> None:
        """Run the jobs that this instance owns, until it stops."""
        while not self._stopping:
            try:
                self.refresh()
                await self._assign()
                await asyncio.sleep(_REFRESH_S)
            except KafkaException as error:
                _log.info("redrives_wait", cause=error.args[0].name())
                await asyncio.sleep(_PAUSE_S)
            except Exception:  # noqa: BLE001 - logged, and tried again
                _log.exception("redrives_failed")
                await asyncio.sleep(_PAUSE_S)
        for runner in self._runners.values():
            runner.stop()
        if self._tasks:
            await asyncio.wait(self._tasks.values(), timeout=_STOP_S)

    def refresh(self) -> None:
        """Update the known jobs from the metadata topic and the writes that are not read yet."""
        stored = self._metadata_watcher.redrives
        if stored is None:
            return
        known, now_s = dict(stored), self._clock.monotonic_s()
        for name, (written_s, job) in list(self._written.items()):
            read = known.get(name, job)
            # Clearing a job does not change its update time.
            was_read = name in known and (read == job or read.updated_at_ms > job.updated_at_ms)
            if was_read or now_s - written_s > _WRITTEN_S:
                del self._written[name]
            else:
                known[name] = job
        self._known = known

    async def _assign(self) -> None:
        """Start runners for jobs while this instance is the coordinator, and stop the others."""
        known = self._known or {}
        for name, runner in self._runners.items():
            # A runner either sends a running job or clears an ended one, and never changes over.
            if name not in known or known[name].is_running != self._was_running[name]:
                runner.stop()
        for name in [name for name, task in self._tasks.items() if task.done()]:
            self._tasks.pop(name).result()
            del self._runners[name], self._was_running[name]
        todo = [job for _, job in sorted(known.items()) if not job.is_over]
        if not todo:
            if len(known) > KEPT_MAX:
                await run_in_daemon_thread(partial(self._forget, min(known)))
        elif not await run_in_daemon_thread(self._is_ours):
            for runner in self._runners.values():
                runner.stop()
        else:
            for job in todo[:_AT_ONCE]:
                if job.id not in self._tasks:
                    runner = RedriveRunner(job, self._query_service, self._write, self._clock)
                    self._runners[job.id], self._was_running[job.id] = runner, job.is_running
                    self._tasks[job.id] = asyncio.create_task(self._do(runner))

    async def _do(self, runner: RedriveRunner) -> None:
        """Run one job as far as possible now; after a failure it restarts from its saved state."""
        name, sends, failure = runner.job.id, runner.job.is_running, ""
        if sends:
            _log.info("redrive_begins", redrive=name)
        try:
            owners = await run_in_daemon_thread(
                lambda: DeadLetterOwners.now(self._config(), self._clients().cluster)
            )
            reader = await run_in_daemon_thread(lambda: DeadLetterReader(self._clients()))
            try:
                await runner.run(owners.owner, reader)
            finally:
                await run_in_daemon_thread(reader.close)
            if runner.job.is_running:
                _log.info("redrive_rests", redrive=name)
            elif sends:
                _log.info("redrive_ends", redrive=name, state=runner.job.state)
        except JobDeletedError:
            _log.info("redrive_gone", redrive=name)
        except KafkaException as error:
            cause = error.args[0].name()
            _log.warning("redrive_waits", redrive=name, cause=cause)
            runner.waits(f"The broker answered {cause}; see its log and the topics.")
            await asyncio.sleep(_PAUSE_S)
        except RegistryUnavailableError as unavailable:
            _log.warning("redrive_waits", redrive=name, cause=str(unavailable))
            runner.waits(f"It waits for {unavailable}.")
            await asyncio.sleep(_PAUSE_S)
        except Exception as error:  # noqa: BLE001 - logged, and reported as the job's error
            _log.exception("redrive_failed", redrive=name)
            failure = f"An internal error: {error!r}; the log has more."
        if failure:
            await asyncio.sleep(_PAUSE_S)
            with suppress(KafkaException, JobDeletedError):  # then the job is tried again
                await runner.fail(failure)

    async def _write(
        self, name: str, change: Callable[[RedriveJob | None], RedriveJob]
    ) -> RedriveJob:
        for attempt in range(1, _ATTEMPTS):
            with suppress(KafkaException):  # others write the topic too, and fence each other
                return await run_in_daemon_thread(partial(self.write, name, change))
            await asyncio.sleep(_REFRESH_S * attempt)
        return await run_in_daemon_thread(partial(self.write, name, change))

    def write(self, name: str, change: Callable[[RedriveJob | None], RedriveJob]) -> RedriveJob:
        """Apply `change` to the newest state of a job and write it; its exceptions come through.

        Raises KafkaException if the broker refuses or another writer interfered: try again.
        """
        written: list[RedriveJob] = []

        def build(settings: MetadataImage) -> MetadataRecord:
            written[:] = [change(settings.redrives.by_id.get(name))]
            return written[0].record

        self._writer.write(build)
        self.know(written[0])
        return written[0]

    def begin(self, job: RedriveJob, suffix: str) -> RedriveJob:
        """Write a new job, or return the existing one whose id ends with the suffix.

        The newest state is searched, so that only one of two instances creates the job. Raises like
        `write`.
        """

        def build(settings: MetadataImage) -> MetadataRecord:
            for each in settings.redrives.by_id.values():
                if each.id.endswith(suffix):
                    raise _AlreadyStartedError(each)
            return job.record

        try:
            self._writer.write(build)
        except _AlreadyStartedError as begun:
            job = begun.job
        self.know(job)
        return job

    def _forget(self, oldest: str) -> None:
        """Delete the oldest job from the metadata topic; one at a time is enough."""
        self._writer.write(lambda _settings: forgetting(oldest))

    def _is_ours(self) -> bool:
        now_s = self._clock.monotonic_s()
        if now_s - self._checked_s > _OWNER_CHECK_S:
            self._first = first_deciding(self._config(), self._clients().cluster.names())
            self._checked_s = now_s
        return owns(self._status(), self._first)


def _newer(known: RedriveJob, live: RedriveJob) -> RedriveJob:
    """Return the live job, or the stored one with live progress if its state changed since."""
    if known.is_running == live.is_running:
        return live
    return known._replace(progress=live.progress)
