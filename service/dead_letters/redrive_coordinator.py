"""Redrive coordinator: runs the redrives of the group in one instance, on a thread of its own.

The coordinator is the instance that owns the first deciding partition (ADR 11). Correctness does
not depend on there being only one: owners decide each letter once, whoever sends it. A job is read
from the metadata topic, resumes at its last checkpoint, and is saved from time to time.
"""

import asyncio
import threading
from collections.abc import Callable, Collection
from contextlib import suppress
from functools import partial
from typing import Final

import structlog
from confluent_kafka import KafkaException

from service.clock import Clock
from service.config.load import Config
from service.config.tasks import Hop, hops_of
from service.dead_letters.owners import DeadLetterOwners
from service.dead_letters.reader import DeadLetterReader
from service.dead_letters.redrive_runner import JobDeletedError, RedriveRunner, aside
from service.dedup.route import resolve
from service.kafka.clients import Clients
from service.kafka.topics import by_address, config_topic
from service.metadata.image import MetadataImage
from service.metadata.record import MetadataRecord
from service.metadata.redrive_job import KEPT_MAX, RedriveJob, forgetting
from service.metadata.topic import MetadataWriter
from service.metadata.watcher import MetadataWatcher
from service.queries.errors import Unavailable
from service.queries.inbox import QueryService
from service.queries.status import ServiceStatus
from state.model import PartitionId


def first_deciding(config: Config, names: Collection[str]) -> PartitionId | None:
    """The partition whose owner has the turn, the same for all who ask; None without inputs.

    The first of by-address, where anything is decided by address; else that of the first input.
    """
    group_id = config.service.group_id
    if Hop.ADDRESSES in hops_of(route.scope for route in config.routes):
        return PartitionId(by_address(group_id), 0)
    inputs = resolve(config.routes, names, group_id)
    return PartitionId(min(inputs), 0) if inputs else None


def owns(status: ServiceStatus, place: PartitionId | None) -> bool:
    """Whether an instance reads a partition."""
    return place is not None and any(
        (each.topic, each.partition) == place and each.phase == "running"
        for each in status.partitions
    )


_LOOK_S: Final = 0.25

_OWNER_S: Final = 5.0

_TOLD_S: Final = 5.0

_STOP_S: Final = 2.0

_ATTEMPTS: Final = 4

_PAUSE_S: Final = 2.0

_AT_ONCE: Final = 4
"""Redrives that run at the same time; the others wait."""

_log = structlog.stdlib.get_logger(__name__)


class _AlreadyStartedError(Exception):
    """The job was begun before."""

    def __init__(self, job: RedriveJob) -> None:
        super().__init__(job.id)
        self.job = job


class RedriveCoordinator:
    """See the module. `jobs`, `know` and `write` are for any thread."""

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
        """As the config topic tells them; None before it was read."""
        self._told: dict[str, tuple[float, RedriveJob]] = {}
        """What was written here, and when, until it is read."""
        self._errands: dict[str, RedriveRunner] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._begun: dict[str, bool] = {}
        """Whether the job of an errand ran when it began."""
        self._first: PartitionId | None = None
        self._looked_s = float("-inf")
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="ringfence-redrives", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """Ask nobody any more; what is not done is done by others, or later."""
        self._stopping = True
        self._thread.join(_STOP_S)

    def jobs(self) -> dict[str, RedriveJob]:
        """All that are known, those that run here as they stand now; Unavailable at first."""
        if self._known is None:
            raise Unavailable("The config topic was not read yet; ask again.")
        live = {name: runner.job for name, runner in list(self._errands.items())}
        return {
            name: _newer(job, live[name]) if name in live else job
            for name, job in list(self._known.items())
        }

    def know(self, job: RedriveJob) -> None:
        """A job was written here: it will be read, but who asks now shall see it."""
        self._told[job.id] = (self._clock.monotonic_s(), job)
        if self._known is not None:
            self._known[job.id] = job

    def _run(self) -> None:
        asyncio.run(self._work())

    async def _work(self) -> None:
        while not self._stopping:
            try:
                self._look()
                await self._assign()
                await asyncio.sleep(_LOOK_S)
            except KafkaException as error:
                _log.info("redrives_wait", cause=error.args[0].name())
                await asyncio.sleep(_PAUSE_S)
            except Exception:  # noqa: BLE001 - logged, and tried again
                _log.exception("redrives_failed")
                await asyncio.sleep(_PAUSE_S)
        for runner in self._errands.values():
            runner.stop()
        if self._tasks:
            await asyncio.wait(self._tasks.values(), timeout=_STOP_S)

    def _look(self) -> None:
        """At what the config topic tells, and what was written here and not read yet."""
        told = self._metadata_watcher.redrives
        if told is None:
            return
        known, now_s = dict(told), self._clock.monotonic_s()
        for name, (told_s, job) in list(self._told.items()):
            read = known.get(name, job)
            # One that was cleared is as old as it was before.
            was_read = name in known and (read == job or read.updated_at_ms > job.updated_at_ms)
            if was_read or now_s - told_s > _TOLD_S:
                del self._told[name]
            else:
                known[name] = job
        self._known = known

    async def _assign(self) -> None:
        """Begin what is ours to do, and let go of what is not."""
        known = self._known or {}
        for name, runner in self._errands.items():
            # What it begins as, running or ended, it has to do to its end.
            if name not in known or known[name].is_running != self._begun[name]:
                runner.stop()
        for name in [name for name, task in self._tasks.items() if task.done()]:
            self._tasks.pop(name).result()
            del self._errands[name], self._begun[name]
        todo = [job for _, job in sorted(known.items()) if not job.is_over]
        if not todo:
            if len(known) > KEPT_MAX:
                await aside(partial(self._forget, min(known)))
        elif not await aside(self._is_ours):
            for runner in self._errands.values():
                runner.stop()
        else:
            for job in todo[:_AT_ONCE]:
                if job.id not in self._tasks:
                    runner = RedriveRunner(job, self._query_service, self._write, self._clock)
                    self._errands[job.id], self._begun[job.id] = runner, job.is_running
                    self._tasks[job.id] = asyncio.create_task(self._do(runner))

    async def _do(self, runner: RedriveRunner) -> None:
        """One job, as far as it can be done now; what fails is begun again as it was written."""
        name = runner.job.id
        _log.info("redrive_begins", redrive=name, state=runner.job.state)
        reader: DeadLetterReader | None = None
        try:
            ways = await aside(
                lambda: DeadLetterOwners.now(self._config(), self._clients().cluster)
            )
            reader = await aside(lambda: DeadLetterReader(self._clients()))
            await runner.run(ways.way, reader)
            _log.info("redrive_rests", redrive=name, state=runner.job.state)
        except JobDeletedError:
            _log.info("redrive_gone", redrive=name)
        except KafkaException as error:
            cause = error.args[0].name()
            _log.warning("redrive_waits", redrive=name, cause=cause)
            runner.waits(f"The broker answered {cause}; see its log, and our topics.")
            await asyncio.sleep(_PAUSE_S)
        except Exception as error:  # noqa: BLE001 - logged, and told as the job's end
            _log.exception("redrive_failed", redrive=name)
            await asyncio.sleep(_PAUSE_S)
            with suppress(KafkaException, JobDeletedError):  # then it is tried again
                await runner.fail(f"An error of ours: {error!r}; the log has more.")
        finally:
            if reader is not None:
                await aside(reader.close)

    async def _write(
        self, name: str, change: Callable[[RedriveJob | None], RedriveJob]
    ) -> RedriveJob:
        for attempt in range(1, _ATTEMPTS):
            with suppress(KafkaException):  # others write the topic too, and fence each other
                return await aside(partial(self.write, name, change))
            await asyncio.sleep(_LOOK_S * attempt)
        return await aside(partial(self.write, name, change))

    def write(self, name: str, change: Callable[[RedriveJob | None], RedriveJob]) -> RedriveJob:
        """Write what is made of a job as it stands now; what `change` raises comes through.

        KafkaException where the broker refuses, or another came between: ask again.
        """
        written: list[RedriveJob] = []

        def made(settings: MetadataImage) -> MetadataRecord:
            written[:] = [change(settings.redrives.by_id.get(name))]
            return written[0].record

        self._writer.write(made)
        self.know(written[0])
        return written[0]

    def begin(self, job: RedriveJob, mark: str) -> RedriveJob:
        """Write a new job, unless there is one whose id ends with the mark: then it is that one.

        It is looked for in the newest state, so that of two instances one begins. See `write`.
        """

        def made(settings: MetadataImage) -> MetadataRecord:
            for each in settings.redrives.by_id.values():
                if each.id.endswith(mark):
                    raise _AlreadyStartedError(each)
            return job.record

        try:
            self._writer.write(made)
        except _AlreadyStartedError as begun:
            job = begun.job
        self.know(job)
        return job

    def _forget(self, oldest: str) -> None:
        """One at a time: there is no hurry."""
        self._writer.write(lambda _settings: forgetting(oldest))

    def _is_ours(self) -> bool:
        now_s = self._clock.monotonic_s()
        if now_s - self._looked_s > _OWNER_S:
            self._first = first_deciding(self._config(), self._clients().cluster.names())
            self._looked_s = now_s
        return owns(self._status(), self._first)


def _newer(known: RedriveJob, live: RedriveJob) -> RedriveJob:
    """A job that runs here as it stands now; what it has become is as it was written."""
    if known.is_running == live.is_running:
        return live
    return known._replace(progress=live.progress)
