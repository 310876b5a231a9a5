"""A POST that is sent again under its key is not done again."""

import threading
from dataclasses import replace
from typing import Any

import pytest
from starlette.testclient import TestClient

from ringfence_api.middleware import idempotency
from ringfence_api.middleware.idempotency import KEEP_S, ReplyCache
from ringfence_api.ports import ServiceView
from ringfence_service.queries.addresses import AddressAnswer, AddressQuery
from ringfence_service.queries.ids import ChangeAnswer, ImportAnswer
from ringfence_service.queries.registry import Answer, Query
from tests.api.fake_service import Clock, FakeAudit, answering
from tests.api.guarded import TOKENS, client_of, filled, operations
from tests.support.waiting import LIMIT_S

CLEAR = "/v1/addresses/orders:clear"
IMPORT = "/v1/addresses/orders/ids:import"
KEY = {"Idempotency-Key": "k"}
IDS: dict[str, Any] = {"topic": "orders", "partition": 3, "ids": [{"id": "a"}]}


def kind(answer: Any) -> str:
    return str(answer.json()["type"]).rpartition(":")[2]


def test_the_first_reply_is_given_again_and_nothing_is_done() -> None:
    asked: list[Query] = []

    def answer(query: Query) -> Answer:
        asked.append(query)
        return ImportAnswer(len(asked), new=0, complete=True)

    with answering(answer) as view:
        client = client_of(view)
        first, again = (client.post(IMPORT, json=IDS, headers=KEY) for _ in range(2))
        other = client.post(IMPORT, json=IDS, headers={"Idempotency-Key": "l"})
        without = client.post(IMPORT, json=IDS)
    assert len(asked) == 3
    assert (first.json(), first.status_code) == (again.json(), again.status_code)
    assert "Idempotency-Replayed" not in first.headers
    assert again.headers["Idempotency-Replayed"] == "true"
    assert first.headers["X-Request-Id"] != again.headers["X-Request-Id"]
    assert [other.json()["ids"], without.json()["ids"]] == [2, 3]


def test_every_post_of_the_api_takes_a_key(view: ServiceView) -> None:
    client = client_of(view)
    posts = [(path, told) for method, path, told in operations(view) if method == "post"]
    assert posts
    for number, (template, operation) in enumerate(posts):
        named = {each["name"] for each in operation["parameters"]}
        assert "Idempotency-Key" in named, template
        path, key = filled(template), {"Idempotency-Key": f"k{number}"}
        body: dict[str, Any] = {"json": {"reason": "again"}} if "requestBody" in operation else {}
        first, again = (client.post(path, headers=key, **body) for _ in range(2))
        assert first.status_code == again.status_code, template
        if first.status_code == 503:
            continue  # which says: ask again
        assert again.headers.get("Idempotency-Replayed") == "true", template
        assert first.json().get("detail") == again.json().get("detail"), template
        query = {"reason": "other"} if "reason" in named else {"page_size": "3"}
        other: dict[str, Any] = {"json": []} if body else {"params": query}
        assert kind(client.post(path, headers=key, **other)) == "idempotency-key-reused", template


def test_a_redrive_is_begun_once_under_a_key_whichever_replica_is_asked(view: ServiceView) -> None:
    order = {"mode": "bypass"}
    one, other = (client_of(view) for _ in range(2))
    begun, again = (
        each.post("/v1/redrives?reason=r", json=order, headers=KEY) for each in (one, other)
    )
    assert (begun.status_code, again.status_code) == (202, 202)
    assert again.headers["Location"] == begun.headers["Location"]
    changed = client_of(view).post("/v1/redrives?reason=other", json=order, headers=KEY)
    assert kind(changed) == "idempotency-key-reused"
    assert len(one.get("/v1/redrives").json()["redrives"]) == 2  # one was there before


def test_two_actors_may_choose_the_same_key(asking: ServiceView) -> None:
    client = client_of(asking, TOKENS["operator"])
    client.post(CLEAR, headers=KEY)
    client.headers["Authorization"] = f"Bearer {TOKENS['admin']}"
    other = client.post("/v1/addresses/other:clear", headers=KEY)
    assert other.status_code == 200
    assert "Idempotency-Replayed" not in other.headers


def test_a_request_that_still_runs_is_not_begun_again() -> None:
    begun, may_end = threading.Event(), threading.Event()

    def answer(query: Query) -> Answer:
        if isinstance(query, AddressQuery):
            return AddressAnswer(query.address, {}, (), complete=True)
        begun.set()
        may_end.wait(LIMIT_S)
        return ChangeAnswer(1, complete=True)

    with answering(answer, ask_timeout_s=LIMIT_S) as view, client_of(view) as client:
        first = threading.Thread(target=lambda: client.post(CLEAR, headers=KEY))
        first.start()
        assert begun.wait(LIMIT_S)
        second = client.post(CLEAR, headers=KEY)
        may_end.set()
        first.join(LIMIT_S)
        third = client.post(CLEAR, headers=KEY)
    assert second.status_code == 409
    assert kind(second) == "idempotency-in-progress"
    assert second.headers["Retry-After"] == "1"
    assert third.headers["Idempotency-Replayed"] == "true"


def test_what_could_not_be_done_now_is_tried_again(view: ServiceView) -> None:
    audit = FakeAudit()
    client = client_of(replace(view, audit=audit))
    audit.refuses = True
    assert client.post(CLEAR, headers=KEY).status_code == 503
    audit.refuses = False
    done = client.post(CLEAR, headers=KEY)
    assert done.status_code == 200
    assert "Idempotency-Replayed" not in done.headers


def test_a_request_whose_reply_is_too_large_to_keep_is_not_executed_again(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(idempotency, "REPLY_BYTES_MAX", 3)
    assert client.post(CLEAR, headers=KEY).status_code == 200
    assert "is done" in client.post(CLEAR, headers=KEY).json()["detail"]


@pytest.mark.parametrize("key", ["", "x" * 256])
def test_a_key_that_is_none_is_refused(client: TestClient, key: str) -> None:
    assert client.post(CLEAR, headers={"Idempotency-Key": key}).status_code == 400


def test_replies_are_bounded_in_time_number_and_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    replies = ReplyCache(clock)
    body = ({"type": "http.response.body", "body": b"x" * 10},)
    assert replies.begin(("a", "1"), b"r") is None
    replies.end(("a", "1"), body)
    assert replies.begin(("a", "1"), b"r") is not None
    clock.now_s += KEEP_S + 1
    assert replies.begin(("a", "1"), b"r") is None
    monkeypatch.setattr(idempotency, "REPLIES_MAX", 5)
    for number in range(20):
        replies.begin(("b", str(number)), b"r")
        replies.end(("b", str(number)), body)
    assert len(replies) == 5
    monkeypatch.setattr(idempotency, "BYTES_MAX", 25)
    replies.begin(("c", ""), b"r")
    replies.end(("c", ""), body)
    assert len(replies) == 2
    assert replies.kept_bytes == 20
