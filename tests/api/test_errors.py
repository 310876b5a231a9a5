"""Every error is a problem, and none tells more than it should."""

import io
import json
from dataclasses import replace
from typing import Any

import pytest
from starlette.testclient import TestClient

from ringfence_api.hosts import allowed_hosts
from ringfence_api.ports import ServiceView
from ringfence_service.config.model import ApiSettings
from ringfence_service.queries.addresses import AddressQuery
from ringfence_service.queries.errors import NotRestored
from ringfence_service.queries.inbox import QueryInbox
from ringfence_service.queries.registry import Answer, Query
from ringfence_service.queries.status import ServiceInfo
from tests.api.fake_service import INFO, answering, running
from tests.api.guarded import client_of


def problem_of(
    client: TestClient, path: str, status: int, method: str = "GET"
) -> dict[str, object]:
    response = client.request(method, path)
    assert response.status_code == status
    assert response.headers["Content-Type"] == "application/problem+json"
    assert response.headers["Cache-Control"] == "no-store"
    problem: dict[str, object] = response.json()
    assert problem["status"] == status
    assert problem["trace_id"] == response.headers["X-Request-Id"]
    assert problem["instance"] == path.partition("?")[0]
    assert str(problem["type"]).startswith("urn:ringfence:problem:")
    assert problem["title"]
    assert problem["detail"]
    return problem


def test_an_internal_error_is_a_problem_whose_stack_is_in_the_log_only(
    view: ServiceView, logged: io.StringIO
) -> None:
    calls = iter([INFO])

    def info() -> ServiceInfo:
        return next(calls)  # the second call raises, as a bug would

    problem = problem_of(client_of(replace(view, info=info)), "/v1/info", 500)
    assert "StopIteration" not in str(problem)
    assert "Traceback" not in str(problem)
    line = json.loads(logged.getvalue().splitlines()[0])
    assert line["trace_id"] == problem["trace_id"]
    assert "StopIteration" in line["exception"]


def test_an_answer_that_fails_is_a_problem_and_the_loop_lives() -> None:
    def answer(query: Query) -> Answer:
        raise ZeroDivisionError(query)

    with answering(answer) as view:
        for _ in range(2):
            assert "ZeroDivision" not in str(problem_of(client_of(view), "/v1/addresses/a", 500))


def test_a_loop_that_is_silent_is_a_503_with_retry_after() -> None:
    client = client_of(running(ask_timeout_s=0.05))
    assert "0.05 s" in str(problem_of(client, "/v1/addresses/a", 503)["detail"])
    assert client.get("/v1/addresses/a").headers["Retry-After"] == "1"


def test_a_full_inbox_is_a_503_with_retry_after() -> None:
    client = client_of(running(QueryInbox(depth=1), ask_timeout_s=0.05))
    client.get("/v1/addresses/a")  # nobody answers: its question stays in the inbox
    assert "already wait for the loop" in str(problem_of(client, "/v1/addresses/a", 503)["detail"])


def test_a_partition_that_the_loop_does_not_own_yet_is_a_503() -> None:
    told = "orders-3 is being restored; ask again."

    def answer(query: Query) -> Answer:
        assert query == AddressQuery("a")
        raise NotRestored(told, retry_after_s=7)

    with answering(answer) as view:
        client = client_of(view)
        assert problem_of(client, "/v1/addresses/a", 503)["detail"] == told
        assert client.get("/v1/addresses/a").headers["Retry-After"] == "7"


def test_a_service_that_stops_refuses_questions_at_once() -> None:
    inbox = QueryInbox(depth=4)
    inbox.close()
    client = client_of(running(inbox))
    assert "stopping" in str(problem_of(client, "/v1/addresses/a", 503)["detail"])


def test_on_loopback_it_answers_to_the_names_of_loopback_alone(client: TestClient) -> None:
    for host, status in (("localhost", 200), ("[::1]:8080", 200), ("ringfence.prod.example", 421)):
        assert client.get("/livez", headers={"Host": host}).status_code == status


def bound(**settings: Any) -> TestClient:
    """A client of a service that listens on every address."""
    api = ApiSettings(host="0.0.0.0", **settings)  # noqa: S104 - what is tested
    return client_of(running(allowed_hosts=allowed_hosts(api)))


def test_a_page_whose_name_resolves_to_a_service_that_asks_nobody_gets_no_answer() -> None:
    client = bound(auth="none", allowed_hosts=("ringfence.streams.svc",))
    own = {"Host": "evil.example:8080", "Origin": "http://evil.example:8080"}
    for method, path in (("GET", "/v1/info"), ("POST", "/v1/addresses/orders:clear")):
        assert client.request(method, path, headers=own).status_code == 421
    for host in ("10.1.2.3:8080", "[fe80::1]:8080", "localhost", "ringfence.streams.svc.:8080"):
        assert client.get("/v1/info", headers={"Host": host}).status_code == 200
        asked = {"Host": host, "Origin": "http://10.9.9.9"}
        assert client.get("/v1/info", headers=asked).status_code == 403
        asked["Origin"] = f"http://{host}"
        assert client.get("/v1/info", headers=asked).status_code == 200


def test_a_service_that_asks_who_answers_to_any_name() -> None:
    client = bound(auth="tokens")
    assert client.get("/livez", headers={"Host": "ringfence.prod.example"}).status_code == 200


def test_a_request_id_comes_back_and_a_bad_one_is_replaced(client: TestClient) -> None:
    assert (
        client.get("/livez", headers={"X-Request-Id": "abc-1"}).headers["X-Request-Id"] == "abc-1"
    )
    for bad in ("a b", "x" * 129, "<script>"):
        assert client.get("/livez", headers={"X-Request-Id": bad}).headers["X-Request-Id"] != bad
    assert (
        client.get("/livez").headers["X-Request-Id"] != client.get("/livez").headers["X-Request-Id"]
    )


@pytest.mark.parametrize(
    "name",
    ["Authorization", "Content-Type", "Idempotency-Key", "If-Match", "If-None-Match", "Origin"],
)
def test_a_header_that_decides_is_given_once(client: TestClient, name: str) -> None:
    headers = [(name, "a"), (name.lower(), "b")]
    answer = client.post("/v1/addresses/orders:clear", headers=headers)
    assert answer.status_code == 400
    assert name in answer.json()["detail"]


def test_a_field_of_a_form_is_given_once(client: TestClient) -> None:
    form = {"Content-Type": "application/x-www-form-urlencoded", "Accept": "text/html"}
    body = "name=orders&reason=a&name=other"
    answer = client.post("/console/address/clear", content=body, headers=form)
    assert "a field twice" in answer.text
