"""Liveness, start and readiness, as an orchestrator asks for them."""

from collections.abc import Callable

import pytest
from starlette.testclient import TestClient

from api.app import WITHOUT_STATE, create_app
from api.view import ServiceView
from service.status import Status
from tests.api.conftest import client_of
from tests.api.fake_service import RESTORING_PARTITION, RUNNING, STARTING, Clock, board_of

ClientAt = Callable[[Status], TestClient]
WAITING = RUNNING._replace(
    phase="waiting", waiting_for="The broker at b:9092 refuses orders.unique; grant WRITE."
)


def test_a_running_service_is_alive_started_and_ready(client: TestClient) -> None:
    for path in ("/livez", "/startupz", "/readyz"):
        response = client.get(path)
        assert response.status_code == 200
        assert response.json() == {"status": "ok"}


def test_a_loop_whose_call_to_the_broker_does_not_return_is_alive_and_not_ready(
    client: TestClient, clock: Clock
) -> None:
    clock.now_s += 5
    assert client.get("/livez").status_code == 200
    refused = client.get("/readyz")
    assert refused.status_code == 503
    assert "Waiting for 5 s for a call to return" in refused.json()["detail"]


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


def test_a_service_that_starts_is_alive_and_not_ready(client_at: ClientAt) -> None:
    client = client_at(STARTING)
    assert client.get("/livez").status_code == 200
    assert client.get("/startupz").status_code == 503
    assert client.get("/readyz").status_code == 503


def test_a_service_stays_started_once_it_ran(view: ServiceView) -> None:
    client = client_of(view)
    board_of(view).publish(WAITING)
    assert client.get("/startupz").status_code == 200


@pytest.mark.parametrize(
    ("status", "failing"),
    [
        (RUNNING._replace(partitions=(RESTORING_PARTITION,)), "state"),
        (WAITING, "broker"),
        (RUNNING._replace(phase="stopping"), "stop"),
    ],
)
def test_readiness_names_the_check_that_fails(
    view: ServiceView, status: Status, failing: str
) -> None:
    board_of(view).publish(status)
    response = client_of(view).get("/readyz")
    assert response.status_code == 503
    assert [check["name"] for check in response.json()["checks"]] == [failing]
    assert response.headers["Retry-After"] == "1"


def test_readiness_says_what_the_service_waits_for(client_at: ClientAt) -> None:
    assert "grant WRITE" in client_at(WAITING).get("/readyz").json()["detail"]


def test_an_instance_that_joined_and_owns_nothing_is_ready(client_at: ClientAt) -> None:
    assert client_at(RUNNING._replace(partitions=())).get("/readyz").status_code == 200


@pytest.mark.parametrize("query", ["?verbose", "?verbose=", "?verbose=1", "?verbose=true"])
def test_verbose_lists_every_check(client: TestClient, query: str) -> None:
    checks = client.get(f"/readyz{query}").json()["checks"]
    assert [check["name"] for check in checks] == ["loop", "assignment", "stop", "broker", "state"]
    assert all(check["ok"] for check in checks)


def test_head_answers_as_get_without_a_body(client: TestClient) -> None:
    response = client.head("/livez")
    assert (response.status_code, response.content) == (200, b"")


def test_a_program_without_state_has_health_and_status_and_no_addresses(view: ServiceView) -> None:
    app = create_app(view, WITHOUT_STATE)
    client = TestClient(app, base_url="http://127.0.0.1:8080")
    for path in ("/livez", "/readyz", "/startupz", "/metrics", "/v1/status", "/v1/partitions"):
        assert client.get(path).status_code == 200
    assert client.get("/v1/addresses/orders").status_code == 404
