"""Liveness, start and readiness, as an orchestrator asks for them."""

from collections.abc import Callable

from starlette.testclient import TestClient

from ringfence_api.ports import ServiceView
from ringfence_service.queries.status import ServiceStatus, StandbyStatus
from tests.api.fake_service import OTHER_PARTITION, RUNNING, RUNNING_PARTITION, Clock, board_of
from tests.api.guarded import client_of
from tests.support.statuses import changed


def test_a_loop_whose_call_to_the_broker_does_not_return_is_alive_and_not_ready(
    client: TestClient, clock: Clock
) -> None:
    clock.now_s += 5
    assert client.get("/livez").status_code == 200
    refused = client.get("/readyz")
    assert refused.status_code == 503
    assert "has been blocked for 5 s" in refused.json()["detail"]


def test_a_loop_without_a_heartbeat_is_neither_alive_nor_ready(
    client: TestClient, clock: Clock, view: ServiceView
) -> None:
    clock.now_s += 30.0
    assert client.get("/livez").status_code == 200
    clock.now_s += 0.001
    assert client.get("/livez").status_code == 503
    assert client.get("/readyz").status_code == 503
    board_of(view).beat()
    assert client.get("/livez").status_code == 200


def test_a_service_stays_started_once_it_ran(view: ServiceView) -> None:
    client = client_of(view)
    board_of(view).publish(RUNNING._replace(phase="waiting"))
    assert client.get("/startupz").status_code == 200


def test_an_instance_that_makes_standby_copies_has_started_and_is_not_ready(
    client_at: Callable[[ServiceStatus], TestClient],
) -> None:
    copies = tuple(
        StandbyStatus(topic="orders", partition=number, warm=number > 0, lag_records=7)
        for number in range(3)
    )
    started = RUNNING._replace(phase="starting", partitions=())
    assert client_at(started).get("/startupz").status_code == 503
    client = client_at(started._replace(standbys=copies))
    assert client.get("/startupz").status_code == 200
    told = client.get("/readyz")
    assert told.status_code == 503
    assert "up to date: 1 of 3 are not" in told.json()["detail"]


def test_a_service_with_partitions_that_wait_is_ready_and_says_for_what(view: ServiceView) -> None:
    blocked = changed(OTHER_PARTITION, waiting_for="topic x: it does not exist; create it")
    status = RUNNING._replace(partitions=(RUNNING_PARTITION, blocked), inputs_missing=("more",))
    board_of(view).publish(status)
    told = client_of(view).get("/readyz")
    assert (told.status_code, told.json()["status"]) == (200, "ok")
    (check,) = told.json()["checks"]
    assert check["ok"]
    assert check["detail"].startswith("1 of 2 owned partitions wait, others go on; waiting for")
    assert "topic x: it does not exist; create it; the input more: it does not" in check["detail"]
    board_of(view).publish(RUNNING)
    assert client_of(view).get("/readyz").json() == {"status": "ok"}
