"""Redrives over REST: ordered, previewed, told of and cancelled."""

import pytest
from starlette.testclient import TestClient

from tests.api.fake_letters import PAST

ORDER = {
    "mode": "forget",
    "filter": {"reason": ["duplicate"], "address": "orders", "from": "2023-01-01T00:00:00Z"},
    "max_per_second": 50,
    "limit": 10,
    "reason": "a bug in the publisher",
}


def test_an_order_is_answered_with_where_its_job_is(client: TestClient) -> None:
    response = client.post("/v1/redrives", json=ORDER)
    assert response.status_code == 202
    document = response.json()
    assert response.headers["Location"] == f"/v1/redrives/{document['id']}"
    assert client.get(response.headers["Location"]).json() == document
    assert (document["state"], document["mode"], document["limit"]) == ("running", "forget", 10)
    assert document["filter"]["from"] == "2023-01-01T00:00:00Z"
    assert document["reason"] == "a bug in the publisher"
    assert document["created_by"] == "anonymous"


def test_the_reason_may_come_as_it_does_with_every_write(client: TestClient) -> None:
    document = client.post("/v1/redrives?reason=why", json={"mode": "through"}).json()
    assert document["reason"] == "why"


def test_a_dry_run_counts_and_samples_and_begins_nothing(client: TestClient) -> None:
    response = client.post("/v1/redrives?dry_run=true", json=ORDER)
    assert response.status_code == 200
    document = response.json()
    assert (document["matched"], document["skipped"]) == (1, {"foreign": 1})
    assert [sample["offset"] for sample in document["samples"]] == [7]
    assert document["samples"][0]["payload"] is None
    assert [each["id"] for each in client.get("/v1/redrives").json()["redrives"]] == [PAST]


def test_letters_may_be_named_one_by_one_or_by_a_filter_but_not_both(client: TestClient) -> None:
    letter = {"topic": "orders.dlq", "partition": 0, "offset": 7}
    named = client.post("/v1/redrives", json={"mode": "bypass", "letters": [letter, letter]})
    assert named.json()["letters"] == 1
    both = {"mode": "bypass", "letters": [letter], "topics": ["orders.dlq"]}
    assert client.post("/v1/redrives", json=both).status_code == 422


@pytest.mark.parametrize(
    "order",
    [
        {},
        {"mode": "sideways"},
        {"mode": "through", "max_per_second": 0},
        {"mode": "through", "limit": 0},
        {"mode": "through", "topics": ["nowhere"]},
        {"mode": "through", "filter": {"colour": "red"}},
        {"mode": "through", "letters": [{"topic": "t", "partition": -1, "offset": 0}]},
    ],
)
def test_an_order_that_cannot_be_carried_out_is_refused(
    client: TestClient, order: dict[str, object]
) -> None:
    assert client.post("/v1/redrives", json=order).status_code == 422


def test_the_newest_redrives_come_first_in_pages(client: TestClient) -> None:
    names = [client.post("/v1/redrives", json={"mode": "through"}).json()["id"] for _ in range(3)]
    first = client.get("/v1/redrives?page_size=2").json()
    assert [each["id"] for each in first["redrives"]] == names[:0:-1]
    rest = client.get(f"/v1/redrives?page_token={first['next_page_token']}").json()
    assert [each["id"] for each in rest["redrives"]] == [names[0], PAST]
    assert rest["complete"] is True


def test_a_cancelled_redrive_stays_cancelled(client: TestClient) -> None:
    name = client.post("/v1/redrives", json={"mode": "through"}).json()["id"]
    for _ in range(2):
        document = client.post(f"/v1/redrives/{name}:cancel?reason=enough").json()
        assert document["state"] == "cancelled"
        assert document["ended_at"] is not None


def test_a_redrive_that_nobody_knows_has_a_problem_of_its_own(client: TestClient) -> None:
    for response in (client.get("/v1/redrives/x"), client.post("/v1/redrives/x:cancel")):
        assert response.status_code == 404
        assert response.json()["type"] == "urn:ringfence:problem:no-redrive"
