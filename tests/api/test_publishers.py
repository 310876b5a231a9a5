"""Publishers over HTTP: their numbers, and their sessions."""

import pytest
from starlette.testclient import TestClient

from ringfence.headers import bookmark

SESSION = "/v1/publishers/P/session"
TWELVE = {"address": "orders", "sequence": 12}
ANY = {"If-Match": "*"}


def test_a_publisher_stands_where_it_stands(client: TestClient) -> None:
    document = client.get("/v1/publishers/P").json()
    assert document["sequences"] == [
        {
            "address": "orders",
            "topic": "orders",
            "partition": 3,
            "sequence": 7,
            "stream": None,
            "bookmark": bookmark("P", 7).decode(),
        }
    ]
    assert (document["epoch"], document["complete"]) == (None, True)


def test_one_that_is_not_known_has_come_nowhere(client: TestClient) -> None:
    document = client.get("/v1/publishers/a%2Fb").json()
    assert (document["publisher"], document["sequences"]) == ("a/b", [])


def test_names_come_in_pages(client: TestClient) -> None:
    first = client.get("/v1/publishers", params={"page_size": 1}).json()
    assert (first["publishers"], first["complete"]) == (["P"], True)
    token = first["next_page_token"]
    last = client.get("/v1/publishers", params={"page_size": 1, "page_token": token}).json()
    assert (last["publishers"], last["next_page_token"]) == (["Q"], None)


def test_a_number_is_set(client: TestClient) -> None:
    headers = {"If-Match": client.get("/v1/publishers/P").headers["ETag"]}
    response = client.put("/v1/publishers/P", json=TWELVE, headers=headers)
    assert response.status_code == 200
    assert response.json()["sequences"][0]["sequence"] == 12
    assert response.headers["ETag"] != headers["If-Match"]


def test_one_that_is_not_known_needs_no_if_match(client: TestClient) -> None:
    assert client.put("/v1/publishers/Q", json=TWELVE).status_code == 200
    named = {"If-Match": client.get("/v1/publishers/Q").headers["ETag"]}
    assert client.put("/v1/publishers/Q", json=TWELVE, headers=named).status_code == 200


def test_what_cannot_be_done_says_why(client: TestClient) -> None:
    response = client.put("/v1/publishers/P", json={**TWELVE, "address": "other"}, headers=ANY)
    assert response.status_code == 422
    assert response.json()["type"] == "urn:ringfence:problem:not-possible"
    assert "strategy ring" in response.json()["detail"]


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"address": "orders"},
        {"address": "orders", "sequence": 0},
        {"address": "orders", "sequence": 9, "missing": [0]},
        {"address": "orders", "sequence": 2**63},
        {"address": "", "sequence": 1},
        {"address": "orders", "sequence": 1, "sequenze": 2},
    ],
)
def test_a_body_that_is_not_valid_names_its_fault(
    client: TestClient, body: dict[str, object]
) -> None:
    response = client.put("/v1/publishers/P", json=body, headers=ANY)
    assert response.status_code == 422
    assert response.json()["errors"][0]["pointer"].startswith("/body")


def test_a_session_gives_an_epoch_and_the_last_numbers(client: TestClient) -> None:
    first = client.put(SESSION, json={"user": "a"}).json()
    assert (first["publisher"], first["epoch"], first["user"]) == ("P", 1, "a")
    assert first["sequences"][0]["sequence"] == 7
    assert first["opened_at"] == "2023-11-14T22:13:20Z"
    assert client.put(SESSION, json={"user": "a"}).json()["epoch"] == 2


def test_another_user_is_refused_until_it_is_ended(client: TestClient) -> None:
    client.put(SESSION, json={"user": "a"})
    refused = client.put(SESSION, json={"user": "b"})
    assert refused.status_code == 409
    assert refused.json()["type"] == "urn:ringfence:problem:name-in-use"
    assert client.delete(SESSION, params={"user": "b"}).status_code == 409
    assert client.delete(SESSION, params={"user": "a"}).status_code == 204
    assert client.put(SESSION, json={"user": "b"}).json()["epoch"] == 2


def test_a_user_need_not_be_named(client: TestClient) -> None:
    assert client.put(SESSION, json={}).json()["user"] == ""


def test_a_method_that_a_resource_has_not_names_those_it_has(client: TestClient) -> None:
    response = client.post("/v1/publishers/P")
    assert response.status_code == 405
    assert "HEAD" in response.headers["Allow"]


def test_a_name_has_bounds(client: TestClient) -> None:
    response = client.put(f"/v1/publishers/{'x' * 1025}/session", json={})
    assert response.status_code == 422
