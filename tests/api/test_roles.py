"""Who may do what: every operation that there is, for every role, as the OpenAPI names it."""

import re
from pathlib import Path
from typing import Final

import pytest
from starlette.testclient import TestClient
from starlette.types import Scope

from ringfence_api.app import create_app
from ringfence_api.openapi import DocumentedApp
from ringfence_api.ports import ServiceView
from ringfence_api.principal import FREE, AccessRule, AccessRules, Principal
from ringfence_service.config.tokens import LEVELS, PAYLOAD_READ, ROLES
from ringfence_service.peers.protocol import ACTOR
from ringfence_service.telemetry.gauges import OTHER
from ringfence_service.telemetry.metrics import Metrics
from tests.api.fake_service import RUNNING as RUNS
from tests.api.fake_service import FakeAudit, board_of
from tests.api.guarded import (
    HERE,
    PEER,
    TOKENS,
    client_of,
    counted,
    filled,
    guarded,
    operations,
    settings,
)
from tests.support.statuses import changed

UNSAFE: Final = ("post", "put", "patch", "delete")
# Beside what each route says of itself: what must hold whatever it says.
ADMIN_ONLY: Final = re.compile(r"/v1/(settings|address-settings|routes|audit|config)\b")
RUNNING: Final = re.compile(r":(pause|resume)$")
PAYLOADS: Final = re.compile(r"/payload\b|/raw\b|/records/")
OPEN: Final = {"/livez", "/readyz", "/startupz", "/metrics"}


def called(client: TestClient, method: str, path: str) -> int:
    return client.request(method, filled(path)).status_code


def test_every_operation_names_a_role_that_there_is(asking: ServiceView) -> None:
    for method, path, operation in operations(asking):
        assert operation["x-role"] in {*ROLES, FREE}, (method, path)


def test_every_operation_is_for_those_who_have_its_role(asking: ServiceView) -> None:
    clients = {role: client_of(asking, TOKENS[role]) for role in ROLES}
    stranger = client_of(asking)
    for method, path, operation in operations(asking):
        needed = operation["x-role"]
        assert (called(stranger, method, path) == 401) == (needed != FREE), (method, path)
        for role, client in clients.items():
            may = Principal("", frozenset({role}), "token").may(needed)
            assert (called(client, method, path) != 403) == may, (method, path, role)
            assert called(client, method, path) != 401


def test_what_changes_something_is_not_for_viewers_and_settings_are_for_admins(
    asking: ServiceView,
) -> None:
    for method, path, operation in operations(asking):
        role = operation["x-role"]
        assert (role == FREE) == (path in OPEN), (method, path)
        if method in {"put", "patch", "delete"}:
            assert role in {"operator", "admin"}, (method, path)
        if method in UNSAFE and ADMIN_ONLY.search(path) and not RUNNING.search(path):
            assert role == "admin", (method, path)
        if PAYLOADS.search(path):
            assert role == PAYLOAD_READ, (method, path)


def test_each_level_may_do_what_those_before_it_may_and_no_more() -> None:
    for held, role in enumerate(LEVELS):
        who = Principal("", frozenset({role}), "token")
        assert [who.may(each) for each in LEVELS] == [held >= n for n in range(len(LEVELS))]
        assert not who.may(PAYLOAD_READ)
    reader = Principal("", frozenset({PAYLOAD_READ}), "token")
    assert [reader.may(each) for each in ROLES] == [False, False, False, True]


def test_an_unauthenticated_client_is_shown_how_to_authenticate(asking: ServiceView) -> None:
    refused = client_of(asking).get("/v1/info")
    assert refused.status_code == 401
    assert refused.headers["WWW-Authenticate"] == 'Bearer realm="ringfence"'
    assert refused.json()["type"] == "urn:ringfence:problem:unauthenticated"


def test_the_refusal_for_a_missing_role_names_the_role(asking: ServiceView) -> None:
    refused = client_of(asking, TOKENS["viewer"]).post("/v1/addresses/a:clear")
    assert refused.status_code == 403
    problem = refused.json()
    assert problem["type"] == "urn:ringfence:problem:role-missing"
    assert problem["missing_role"] == "operator"
    assert 'scope="operator"' in refused.headers["WWW-Authenticate"]


@pytest.mark.parametrize("path", ["/v1/nothing", "/favicon.ico", "/v1/info/", "/openapi.json"])
def test_a_stranger_does_not_learn_what_there_is(asking: ServiceView, path: str) -> None:
    assert client_of(asking).get(path).status_code == 401
    assert client_of(asking, TOKENS["viewer"]).get(path).status_code in {200, 404}


def test_a_path_that_is_written_in_another_way_has_no_other_rule(asking: ServiceView) -> None:
    viewer = client_of(asking, TOKENS["viewer"])
    for path in ("/v1/addresses/a%3Aclear", "/v1//addresses/a:clear", "/v1/./addresses/a:clear"):
        assert viewer.post(path).status_code in {403, 404, 405}, path
    assert client_of(asking).get("/livez/../v1/info").status_code == 401


def test_metrics_can_be_kept_from_strangers(view: ServiceView, tmp_path: Path) -> None:
    asking = guarded(view, settings(tmp_path, protect_metrics=True))
    assert client_of(asking).get("/metrics").status_code == 401
    assert client_of(asking, TOKENS["viewer"]).get("/metrics").status_code == 200
    assert client_of(asking).get("/livez").status_code == 200


@pytest.mark.parametrize("says", [False, True])
def test_metrics_name_addresses_to_who_may_read_and_to_others_where_the_file_says_so(
    view: ServiceView,
    tmp_path: Path,
    says: bool,  # noqa: FBT001 - as pytest hands it
) -> None:
    assert isinstance(view.metrics, Metrics)
    for address in ("customer-a", "customer-b"):
        view.metrics.duplicates("r", address, 2)
    asking = guarded(view, settings(tmp_path, metrics_addresses=says))
    name, named = "ringfence_duplicates_total", {("customer-a",): 2.0, ("customer-b",): 2.0}
    for token in ("x" * 40, None):
        told = counted(client_of(asking, token), name, "address")
        assert told == (named if says else {("_other",): 4.0})
    assert counted(client_of(asking, TOKENS["viewer"]), name, "address") == named
    assert counted(client_of(view), name, "address") == named


def test_an_unauthenticated_client_does_not_learn_what_the_service_waits_for(
    view: ServiceView, asking: ServiceView
) -> None:
    board_of(view).publish(
        RUNS._replace(phase="waiting", waiting_for="the topic secret-orders on broker-7")
    )
    for client in (client_of(asking), client_of(asking, "x" * 40)):
        told = client.get("/readyz?verbose")
        assert told.status_code == 503
        assert "secret-orders" not in told.text
        assert "a token of the role viewer" in told.json()["detail"]
    for client in (client_of(asking, TOKENS["viewer"]), client_of(view)):
        assert "secret-orders" in client.get("/readyz").json()["detail"]
    failures = counted(client_of(asking), "ringfence_http_auth_failures_total", "reason")
    assert failures == {("invalid",): 1}


def test_an_unauthenticated_client_does_not_learn_what_a_partition_waits_for(
    view: ServiceView, asking: ServiceView
) -> None:
    blocked = changed(RUNS.partitions[0], waiting_for="topic secret-orders")
    board_of(view).publish(RUNS._replace(partitions=(blocked,), inputs_missing=("secret",)))
    told = client_of(asking).get("/readyz?verbose")
    assert told.status_code == 200
    assert "secret" not in told.text
    assert "others go on; waiting for another system" in told.text
    assert "secret-orders" in client_of(asking, TOKENS["viewer"]).get("/readyz").text


def test_head_is_for_those_who_may_get(asking: ServiceView) -> None:
    assert client_of(asking).head("/v1/info").status_code == 401
    assert client_of(asking, TOKENS["viewer"]).head("/v1/info").status_code == 200


def test_nobody_says_for_whom_he_asks(asking: ServiceView) -> None:
    assert isinstance(asking.audit, FakeAudit)
    client, told = client_of(asking, TOKENS["operator"]), {ACTOR: "ada"}
    assert client.post("/v1/addresses/orders:clear", headers=told).status_code == 200
    assert asking.audit.written[-1].actor == "the-operator"
    assert client_of(asking, PEER).get("/v1/info").status_code == 401


@pytest.mark.parametrize("part", ["1", "a:clear", "a%2Fb", "ids%3Aimport"])
def test_the_rule_is_that_of_the_route_that_answers(view: ServiceView, part: str) -> None:
    app = create_app(view)
    answered: list[object] = []
    asked: list[object] = []

    class Noted(AccessRules):
        def of(self, scope: Scope) -> AccessRule:
            rule = super().of(scope)
            asked.append(rule.path)
            return rule

    class Counted(Metrics):
        def http_request(self, route: str, method: str, status: int, duration_s: float) -> None:
            del method, status, duration_s
            answered.append(None if route == OTHER else route)

    assert isinstance(app, DocumentedApp)
    app.rules.__class__ = Noted
    assert isinstance(view.metrics, Metrics)
    view.metrics.__class__ = Counted
    client = TestClient(app, base_url=HERE)
    for path, methods in app.openapi()["paths"].items():
        for method in {*methods, "get"}:
            client.request(method, filled(path, part))
            if method in methods or asked[-1] is not None:
                assert asked[-1] == answered[-1], (method, path, part)


def test_without_authentication_anybody_may_do_anything(client: TestClient) -> None:
    assert client.post("/v1/addresses/orders:clear").status_code == 200
    assert client.get("/v1/audit").status_code == 200
    client.headers["Authorization"] = "Bearer whatever"
    assert client.get("/v1/info").status_code == 200


@pytest.mark.parametrize(
    "auth", ["Basic YTpi", "Bearer", "Bearer ", "bearer  x", "x", "", "Bearer é"]
)
def test_what_is_no_token_lets_nobody_in(asking: ServiceView, auth: str) -> None:
    client = client_of(asking)
    refused = client.get("/v1/info", headers=[(b"Authorization", auth.encode())])
    assert refused.status_code == 401


def test_a_page_of_somebody_else_changes_nothing_even_without_authentication(
    client: TestClient,
) -> None:
    clear = "/v1/addresses/orders:clear"
    assert client.post(clear, headers={"Origin": "http://localhost:3000"}).status_code == 403
    assert client.post(clear, headers={"Origin": "null"}).status_code == 403
    assert client.post(clear, headers={"Origin": HERE}).status_code == 200
