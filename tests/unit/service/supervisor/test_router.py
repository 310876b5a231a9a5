"""Questions and metrics of a crew: every process is asked, and every question ends."""

import asyncio
import os
import pickle
import re
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from ringfence_service.config.tasks import tasks_of
from ringfence_service.dedup.record import KnownId
from ringfence_service.queries.addresses import AddressQuery
from ringfence_service.queries.errors import NotPossible, NotRestored, TimedOut, Unavailable
from ringfence_service.queries.ids import (
    ChangeAnswer,
    ClearAddress,
    ForgetId,
    IdAnswer,
    IdQuery,
    ImportAnswer,
    ImportIds,
)
from ringfence_service.supervisor import supervisor as restart_policy
from ringfence_service.supervisor.protocol import QueryRefused, WorkerEnded, WorkerSetup
from ringfence_service.supervisor.router import SupervisorMetrics, WorkerRouter
from ringfence_service.supervisor.supervisor import Supervisor
from ringfence_service.supervisor.worker_handle import WorkerFailedError
from ringfence_service.telemetry.metrics import Metrics
from tests.support.waiting import LIMIT_S, eventually
from tests.unit.service.supervisor.scene import config_of, freeze, play, supervisor_of


def asked(crew: Supervisor, query: Any, timeout_s: float = 10.0) -> Any:
    desk = WorkerRouter(crew.handles, crew.read)
    return asyncio.run(desk.ask(query, timeout_s))


def runs(crew: Supervisor) -> None:
    eventually(lambda: crew.read().phase == "running")


def test_all_are_asked_and_their_answers_merged(tmp_path: Path) -> None:
    crew = supervisor_of(tmp_path, "well")

    def scene() -> None:
        runs(crew)
        assert asked(crew, ClearAddress("a")) == ChangeAnswer(1 + 2, complete=True)
        assert asked(crew, IdQuery("a", b"x")) == IdAnswer(known=False, sightings=(), complete=True)

    play(crew, scene)


def test_what_only_its_owner_can_do_is_done_by_it(tmp_path: Path) -> None:
    crew = supervisor_of(tmp_path, "well")

    def scene() -> None:
        runs(crew)
        for partition in (0, 1):
            told = asked(crew, ImportIds("a", "orders", partition, (KnownId(b"x"),)))
            assert told == ImportAnswer(1, 1, complete=True)

    play(crew, scene)


def test_a_refusal_and_an_error_of_one_are_those_of_all(tmp_path: Path) -> None:
    crew = supervisor_of(tmp_path, "well")

    def scene() -> None:
        runs(crew)
        with pytest.raises(NotPossible, match="Only a ring"):
            asked(crew, ForgetId("a", b"x"))
        with pytest.raises(WorkerFailedError, match="ValueError"):
            asked(crew, AddressQuery("a"))

    play(crew, scene)


def test_a_process_that_is_stopped_makes_a_question_late_and_nothing_else(tmp_path: Path) -> None:
    crew = supervisor_of(tmp_path, "well")
    metrics = SupervisorMetrics(Metrics(crew, {"version": "0"}, addresses_max=1), crew.handles)

    def scene() -> None:
        runs(crew)
        pid = freeze(crew.handles[0].pid)
        with pytest.raises(TimedOut):
            asked(crew, IdQuery("a", b"x"), 0.3)
        assert crew.read().phase == "running"
        assert b"ringfence_build_info" in asyncio.run(metrics.scrape())
        os.kill(pid, signal.SIGCONT)
        assert not asked(crew, IdQuery("a", b"x")).known

    play(crew, scene)


def test_a_process_that_ends_ends_the_questions_that_it_was_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replaced_after(monkeypatch, 30.0)
    crew = supervisor_of(tmp_path, "well", workers=1)

    def scene() -> None:
        runs(crew)
        handle = crew.handles[0]
        freeze(handle.pid)
        reply = handle.ask(IdQuery("a", b"x"), time.monotonic() + 60)
        os.kill(handle.pid or 0, signal.SIGKILL)
        with pytest.raises(Unavailable, match="ended before it answered"):
            reply.result(LIMIT_S)
        eventually(lambda: not handle.is_up)
        with pytest.raises(NotRestored, match="being replaced"):
            asked(crew, IdQuery("a", b"x"))

    play(crew, scene)


def duplicates(exposition: bytes) -> float:
    found = re.search(rb'^ringfence_duplicates_total{route="r"} (\S+)$', exposition, re.MULTILINE)
    return 0.0 if found is None else float(found[1])


def replaced_after(monkeypatch: pytest.MonkeyPatch, pause_s: float) -> None:
    """What has ended is away for long enough to be seen."""
    monkeypatch.setattr(restart_policy, "_FIRST_PAUSE_S", pause_s)
    monkeypatch.setattr(restart_policy, "_PAUSE_MAX_S", pause_s)


def test_counts_are_of_all_processes_and_never_go_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replaced_after(monkeypatch, 3.0)
    crew = supervisor_of(tmp_path, "well")
    own = Metrics(crew, {"version": "0"}, addresses_max=1)
    crew.on_restart(lambda task: own.worker_restarted(task.worker, task.hop.value))
    metrics = SupervisorMetrics(own, crew.handles)

    def scene() -> None:
        runs(crew)
        eventually(lambda: duplicates(asyncio.run(metrics.scrape())) == 6)
        os.kill(crew.handles[0].pid or 0, signal.SIGKILL)
        eventually(lambda: not crew.handles[0].is_up)
        assert duplicates(asyncio.run(metrics.scrape())) == 6
        eventually(lambda: crew.handles[0].has_run)
        eventually(lambda: duplicates(asyncio.run(metrics.scrape())) == 9)
        told = asyncio.run(metrics.scrape())
        assert duplicates(told) == 9
        assert b'ringfence_worker_restarts_total{hop="inputs",worker="0"} 1.0' in told
        assert b"ringfence_assigned_partitions 4.0" in told

    play(crew, scene)


def at_the_other_end(message: Any) -> Any:
    return pickle.loads(pickle.dumps(message))  # noqa: S301 - our own bytes


def test_every_message_is_the_same_at_the_other_end() -> None:
    config = config_of(2)
    for part in tasks_of(config):
        begin = WorkerSetup(
            config, part, Path("/x"), part.label, 50, 60.0, float("-inf"), resumes=False
        )
        assert at_the_other_end(begin) == begin
    assert at_the_other_end(WorkerEnded(4, "Fenced.")) == WorkerEnded(4, "Fenced.")
    refused = at_the_other_end(QueryRefused(7, NotRestored("Not yet.", retry_after_s=9)))
    assert type(refused.reason) is NotRestored
    assert (str(refused.reason), refused.reason.retry_after_s) == ("Not yet.", 9)
