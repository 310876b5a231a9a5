"""Several workers of one instance: they share the work, and one that ends or hangs is replaced."""

import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.broker.conftest import NewWorld
from tests.broker.service import Service, struck
from tests.broker.victim import Step
from tests.broker.workload import PARTITIONS
from tests.broker.world import PLAIN, Manner, World
from tests.support.waiting import eventually
from tools.broker.cluster import Broker

pytestmark = pytest.mark.broker

LIMIT_S = 10.0


@pytest.fixture
def world(broker: Broker, new_world: NewWorld) -> World:
    return new_world(broker.client_properties, manner=Manner(workers=2))


def workers(service: Service) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = service.told("/v1/workers")["workers"]
    return found


def wait_shared(service: Service) -> None:
    """Until each has its share: after a hang and two looks of the group's, if need be.

    Halves at first; who comes back after its session was over is given what the group sees fit.
    """
    service.wait_ready()

    def is_shared() -> bool:
        owned = [worker["partitions_owned"] for worker in workers(service)]
        return bool(min(owned) > 0 and sum(owned) == PARTITIONS)

    eventually(is_shared, service)


@contextmanager
def always_answering(service: Service) -> Iterator[None]:
    """Meanwhile the API answers every request, and says that the instance lives."""
    silent: list[tuple[int, str]] = []
    over = threading.Event()

    def ask() -> None:
        while not over.wait(0.05):
            for path in ("/livez", "/v1/status", "/metrics"):
                answer = service.get(path, 30)
                if answer[0] != 200:
                    silent.append(answer)

    with ThreadPoolExecutor(1) as beside:
        asking = beside.submit(ask)
        try:
            yield
        finally:
            over.set()
        asking.result()
    assert silent == []


def limited(step: Step = Step.BEFORE_BEGIN, count: int = 0, **more: str) -> dict[str, str]:
    """A victim that hangs at the given step, or not at all, and may be silent for LIMIT_S."""
    return {**struck(step, count, "HANG"), "VICTIM_LIMIT_S": str(LIMIT_S), **more}


@pytest.mark.long
def test_two_workers_share_the_partitions_and_decide_everything_once(world: World) -> None:
    service = world.started()
    wait_shared(service)
    world.send()
    world.wait_decided()
    eventually(lambda: service.told("/v1/status")["records_consumed"] == 3000, service)
    assert service.told("/v1/status")["transactions_committed"] >= 15

    def is_told() -> bool:
        rings = service.told("/v1/addresses?name=a")
        numbers = [ring["partition"] for ring in rings["partitions"]]
        return bool(rings["complete"]) and numbers == [0, 1, 2, 3]

    eventually(is_told, service)
    world.conclude(service)
    world.manner = PLAIN
    alone = world.started()
    alone.wait_ready()
    assert alone.restored == [0, 0, 0, 0]
    alone.stop()


def test_a_worker_that_is_killed_is_replaced_and_nothing_is_lost_or_doubled(world: World) -> None:
    world.send(500)
    service = world.started()
    wait_shared(service)
    with always_answering(service):
        victim = workers(service)[0]["pid"]
        world.send(1500)
        os.kill(victim, signal.SIGKILL)
        service.wait_complaint("worker 0")
        world.send()
        world.wait_decided()
        wait_shared(service)
    first, second = workers(service)
    assert (first["restarts"], first["last_exit_code"]) == (1, -signal.SIGKILL)
    assert (second["restarts"], second["last_exit_code"]) == (0, None)
    told = service.get("/metrics")[1]
    assert 'ringfence_worker_restarts_total{hop="inputs",worker="0"} 1.0' in told
    world.conclude(service)


def test_a_worker_that_is_stopped_is_replaced_after_the_limit(world: World) -> None:
    service = world.service()
    world.send(500)
    service.start(limited())
    wait_shared(service)
    with always_answering(service):
        os.kill(workers(service)[1]["pid"], signal.SIGSTOP)
        world.send()
        world.wait_decided()
        wait_shared(service)
    assert workers(service)[1]["last_exit_code"] == -signal.SIGKILL
    assert "worker_unheard" in service.log.read_text()
    world.conclude(service)


def test_a_loop_that_hangs_in_a_call_ends_itself_and_is_replaced(
    world: World, tmp_path: Path
) -> None:
    service = world.service()
    world.send()
    service.start(limited(Step.AFTER_FLUSH, 3, VICTIM_ONCE=str(tmp_path / "struck")))
    world.wait_decided()
    wait_shared(service)
    assert sorted(w["last_exit_code"] or 0 for w in workers(service)) == [0, 6]
    log = service.log.read_text()
    assert "loop_hangs" in log
    assert "victim.py" in log, "the stacks tell where"
    world.conclude(service)


def test_a_supervisor_that_is_killed_alone_takes_its_workers_with_it(world: World) -> None:
    world.send()
    service = world.started()
    world.wait_decided(300)
    children = service.workers()
    service.kill()
    service.start()
    eventually(lambda: not any(Path(f"/proc/{pid}").exists() for pid in children), service)
    world.conclude(service)


def test_a_worker_that_receives_sigterm_stops_in_order_and_is_restarted(world: World) -> None:
    world.send(500)
    service = world.started()
    wait_shared(service)
    os.kill(workers(service)[0]["pid"], signal.SIGTERM)
    eventually(lambda: workers(service)[0]["restarts"] == 1, service)
    world.send()
    world.wait_decided()
    wait_shared(service)
    assert workers(service)[0]["last_exit_code"] == 0
    world.conclude(service)
