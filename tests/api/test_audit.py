"""What is changed is written down before it is done, and what came of it after."""

import io
import json
from dataclasses import replace
from pathlib import Path

import pytest

from ringfence_api.ports import ServiceView
from ringfence_service.queries.addresses import AddressAnswer, AddressQuery
from ringfence_service.queries.ids import ChangeAnswer
from ringfence_service.queries.inbox import QueryInbox
from ringfence_service.queries.registry import Answer, Query
from tests.api.fake_service import STARTING, Clock, FakeAudit, answering, make_view, running
from tests.api.guarded import TOKENS, client_of, filled, guarded, operations, settings

CLEAR = "/v1/addresses/orders:clear"
NUMBER = {"address": "orders", "sequence": 9}


@pytest.fixture
def audit() -> FakeAudit:
    return FakeAudit()


@pytest.fixture
def audited(view: ServiceView, audit: FakeAudit) -> ServiceView:
    return replace(view, audit=audit)


def test_a_change_is_recorded_before_it_is_made_and_after(audit: FakeAudit) -> None:
    seen: list[int] = []

    def answer(query: Query) -> Answer:
        if isinstance(query, AddressQuery):
            return AddressAnswer(query.address, {}, (), complete=True)
        seen.append(len(audit.written))
        return ChangeAnswer(3, complete=True)

    with answering(answer, audit=audit) as view:
        client_of(view).post(CLEAR)
    assert seen == [1]
    before, after = audit.written
    assert (before.id, before.status) == (after.id, None)
    assert after.status == 200


def test_a_record_tells_who_what_when_and_why(
    audited: ServiceView, audit: FakeAudit, tmp_path: Path
) -> None:
    client = client_of(guarded(audited, settings(tmp_path)), TOKENS["operator"])
    client.put(
        "/v1/publishers/P?reason=gap%20found&dry_run=false",
        json=NUMBER,
        headers={"X-Request-Id": "r-1", "If-Match": "*"},
    )
    record = audit.written[-1]
    assert (record.actor, record.roles, record.request_id) == ("the-operator", ("operator",), "r-1")
    assert (record.method, record.path) == ("PUT", "/v1/publishers/P")
    assert record.query == "dry_run=false"
    assert (record.reason, record.source, record.status) == ("gap found", "testclient", 200)
    assert record.before["sequences"][0]["sequence"] == 7  # type: ignore[index]  # as JSON
    assert record.after["sequences"][0]["sequence"] == 9  # type: ignore[index]


def test_what_cannot_be_recorded_is_not_done(audit: FakeAudit) -> None:
    audit.refuses = True
    inbox = QueryInbox(depth=4)  # nobody answers: the loop is never asked
    refused = client_of(running(inbox, audit=audit)).post(CLEAR)
    assert refused.status_code == 503
    assert refused.json()["type"] == "urn:ringfence:problem:audit-unavailable"
    assert refused.headers["Retry-After"] == "3"
    assert not inbox._changes


def test_every_operation_that_may_change_something_leaves_a_record(
    audited: ServiceView, audit: FakeAudit
) -> None:
    client = client_of(audited)
    for method, path, operation in operations(audited):
        audit.written.clear()
        client.request(method, filled(path))
        changes = method != "get" and operation["x-role"] in {"operator", "admin"}
        assert len(audit.written) == (2 if changes else 0), (method, path)


def test_what_fails_is_recorded_too(audit: FakeAudit, clock: Clock, inbox: QueryInbox) -> None:
    def bug(_query: Query) -> Answer:
        raise ZeroDivisionError

    with answering(bug, audit=audit) as view:
        assert client_of(view).post(CLEAR).status_code == 500
    client = client_of(replace(make_view(STARTING, clock, inbox), audit=audit))
    assert client.post(CLEAR).status_code == 503
    client.post("/v1/addresses:clear")
    assert [each.status for each in audit.written] == [None, 500, None, 503, None, 422]


def test_who_is_refused_leaves_none(audited: ServiceView, audit: FakeAudit, tmp_path: Path) -> None:
    asking = guarded(audited, settings(tmp_path))
    client_of(asking).post(CLEAR)
    client_of(asking, TOKENS["viewer"]).post(CLEAR)
    assert audit.written == []


def test_a_reply_that_is_given_again_leaves_none(audited: ServiceView, audit: FakeAudit) -> None:
    client = client_of(audited)
    for _ in range(2):
        client.post(CLEAR, headers={"Idempotency-Key": "k"})
    assert len(audit.written) == 2


def test_the_log_tells_of_each_change_in_one_line(
    audited: ServiceView, logged: io.StringIO
) -> None:
    client_of(audited).post(f"{CLEAR}?reason=why", headers={"X-Request-Id": "r-2"})
    (line,) = (json.loads(x) for x in logged.getvalue().splitlines() if '"audit"' in x)
    assert (line["event"], line["path"], line["reason"]) == ("audit", CLEAR, "why")
    assert (line["request_id"], line["actor"], line["status"]) == ("r-2", "anonymous", 200)


def test_the_trail_is_read_newest_first_in_pages_and_by_what_is_asked(
    audited: ServiceView,
) -> None:
    client = client_of(audited)
    for name in "abc":
        client.post(f"/v1/addresses/{name}:clear")
    first = client.get("/v1/audit?page_size=2").json()
    assert [each["path"][-7:] for each in first["records"]] == ["c:clear", "b:clear"]
    rest = client.get(f"/v1/audit?page_size=2&page_token={first['next_page_token']}").json()
    assert [each["path"][-7:] for each in rest["records"]] == ["a:clear"]
    assert rest["next_page_token"] is None
    by_path = client.get("/v1/audit?resource=/v1/addresses/b").json()["records"]
    assert len(by_path) == 1
    assert client.get("/v1/audit?actor=ada").json()["records"] == []
    middle = by_path[0]["time"]
    since = client.get("/v1/audit", params={"since": middle}).json()["records"]
    until = client.get("/v1/audit", params={"until": middle}).json()["records"]
    assert len(since) + len(until) == 3
    assert by_path[0] in since


def test_dry_runs_and_refusals_can_be_left_out_of_the_trail(audited: ServiceView) -> None:
    client, path = client_of(audited), "/v1/address-settings/x"
    for query, body in (("?dry_run=true", {"id_cache_size": 7}), ("", {"id_cache_sise": 7})):
        client.put(f"{path}{query}", json=body)
    client.post("/v1/addresses/a:clear")
    paths = [each["path"] for each in client.get("/v1/audit?changes=true").json()["records"]]
    assert paths == ["/v1/addresses/a:clear"]
    assert len(client.get("/v1/audit").json()["records"]) == 3
