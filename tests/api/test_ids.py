"""What an address remembers, over HTTP: pages, export and import, forgetting."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from starlette.testclient import TestClient

from api.app import create_app
from api.media import LINE_BYTES_MAX, NDJSON
from service.control import Inbox
from service.queries.ids import IdsImport, ImportAnswer
from service.queries.table import Query
from tests.api.fake_service import RUNNING, Clock, make_view, serving

EXPORT = "/v1/addresses/orders/ids:export"
IMPORT = "/v1/addresses/orders/ids:import"


def test_ids_come_in_pages_that_begin_with_the_oldest_where_they_are_exported(
    client: TestClient,
) -> None:
    first = client.get(EXPORT, params={"page_size": 2}).json()
    assert [each["id"] for each in first["ids"]] == ["hex:ff00", ""]
    token = first["next_page_token"]
    last = client.get(EXPORT, params={"page_size": 2, "page_token": token}).json()
    assert [each["id"] for each in last["ids"]] == ["id-1"]
    assert last["next_page_token"] is None


@pytest.mark.parametrize("token", ["x", "e30", "WzFd", "\u00e9", "WyJhIiwwLC0xLG51bGxd"])
@pytest.mark.parametrize(
    "path", [EXPORT, "/v1/addresses/orders/ids", "/v1/addresses", "/v1/publishers"]
)
def test_a_token_that_no_page_has_given_is_refused(
    client: TestClient, path: str, token: str
) -> None:
    response = client.get(path, params={"page_token": token})
    assert response.status_code == 422
    assert "page token" in response.json()["detail"]


def test_what_was_exported_is_imported_as_it_is(client: TestClient) -> None:
    exported = client.get(EXPORT).json()["ids"]
    body = {"topic": "orders", "partition": 3, "ids": exported}
    assert client.post(IMPORT, json=body).json() == {"ids": 3, "new": 0, "complete": True}


def test_lines_hold_all_that_is_remembered_and_are_imported_as_they_are(
    client: TestClient,
) -> None:
    exported = client.get(EXPORT, headers={"Accept": NDJSON})
    assert exported.headers["Content-Type"].startswith(NDJSON)
    assert exported.headers["Ringfence-Complete"] == "true"
    rows = [json.loads(line) for line in exported.text.splitlines()]
    assert [row["id"] for row in rows] == ["hex:ff00", "", "id-1"]
    assert rows[-1] == {
        "id": "id-1",
        "topic": "orders",
        "partition": 3,
        "offset": 42,
        "time": "2023-11-14T22:13:20Z",
        "hashed": False,
    }
    done = client.post(IMPORT, content=exported.content, headers={"Content-Type": NDJSON})
    assert done.json() == {"ids": 3, "new": 0, "complete": True}


Post = Callable[[str, dict[str, Any]], dict[str, Any]]


@pytest.fixture
def imports() -> list[IdsImport]:
    """What the loop was told to import."""
    return []


@pytest.fixture
def post(clock: Clock, imports: list[IdsImport]) -> Any:
    """Import lines into a loop that decides topic `in` alone, and takes every id for new."""

    def answer(query: Query) -> ImportAnswer:
        assert isinstance(query, IdsImport)
        imports.append(query)
        count = sum((query.topic or each.topic) == "in" for each in query.ids)
        return ImportAnswer(count, count, complete=True)

    inbox = Inbox(depth=4)
    client = TestClient(create_app(make_view(RUNNING, clock, inbox)), base_url="http://127.0.0.1")

    def send(lines: str, params: dict[str, Any]) -> dict[str, Any]:
        headers = {"Content-Type": NDJSON}
        reply = client.post(IMPORT, content=lines.encode(), params=params, headers=headers)
        document: dict[str, Any] = reply.json()
        return document

    with serving(inbox, answer):
        yield send


def line(number: int, topic: str = "in") -> str:
    return json.dumps({"id": f"id-{number}", "topic": topic, "partition": number % 3}) + "\n"


def test_many_lines_are_taken_in_parts_and_counted_together(
    post: Post, imports: list[IdsImport]
) -> None:
    done = post("".join(map(line, range(10_000))), {})
    assert (done["ids"], done["new"]) == (10_000, 10_000)
    written = [each for each in imports if not each.dry_run]
    assert [known.identifier for each in written for known in each.ids] == [
        b"id-%d" % number for number in range(10_000)
    ]
    assert max(len(each.ids) for each in written) < 10_000
    assert sum(each.dry_run for each in imports) == 1  # no later part names a new place


def test_a_trial_import_changes_nothing(post: Post, imports: list[IdsImport]) -> None:
    assert post(line(1), {"dry_run": True})["ids"] == 1
    assert all(each.dry_run for each in imports)


def test_lines_of_a_place_that_nobody_decides_are_refused_before_any_is_taken(
    post: Post, imports: list[IdsImport]
) -> None:
    refused = post(line(1) + line(2, "elsewhere"), {})
    assert "elsewhere-2" in refused["detail"]
    assert "?input=" in refused["detail"]
    assert all(each.dry_run for each in imports)
    assert post(line(1) + line(2, "elsewhere"), {"input": "in"})["ids"] == 2


@pytest.mark.parametrize(
    ("fault", "sentence"),
    [
        ("{", "Line 2"),
        ("{}", "Line 2 id"),
        ('{"id": "a", "topic": "in", "partition": -1}', "Line 2 partition"),
        ('{"id": "hex:0", "topic": "in", "partition": 0}', "pairs of hexadecimal"),
        ('{"id": "a", "topic": "in", "partition": 0, "hashed": true}', "65 bytes"),
        ('{"id": "a", "topic": "in", "partition": 0, "time": "2026-01-01T00:00:00"}', "time"),
        ("x" * (LINE_BYTES_MAX + 1), "longer than"),
    ],
)
def test_a_line_that_is_not_one_is_named(post: Post, fault: str, sentence: str) -> None:
    assert sentence in post(line(1) + fault, {})["detail"]


def test_what_was_taken_in_before_a_fault_is_told(post: Post) -> None:
    refused = post("".join(map(line, range(5_000))) + "{", {})
    assert "Line 5001" in refused["detail"]
    assert "4000 ids were taken in before" in refused["detail"]


def test_a_long_id_is_told_as_it_is_kept(post: Post, imports: list[IdsImport]) -> None:
    told = {"id": "hex:" + "ab" * 65, "topic": "in", "partition": 0, "hashed": True}
    post(json.dumps(told), {})
    assert imports[-1].ids[0].hashed


def test_many_ids_are_looked_up_at_once(client: TestClient) -> None:
    path = "/v1/addresses/orders/ids:lookup"
    told = client.post(path, json={"ids": ["id-1", "no", "base64:/wA="]}).json()
    assert [each["known"] for each in told["ids"]] == [True, False, True]
    assert [each["id"] for each in told["ids"]] == ["id-1", "no", "hex:ff00"]
    assert (told["known"], told["ids"][0]["sightings"][0]["offset"]) == (2, 42)
    assert client.post(path, json={"ids": []}).status_code == 422
    assert client.post(path, json={"ids": ["a"] * 1_001}).status_code == 422


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"topic": "orders", "partition": 0, "ids": []},
        {"topic": "orders", "partition": -1, "ids": [{"id": "a"}]},
        {"topic": "orders", "partition": 0, "ids": [{"id": "hex:zz"}]},
        {"topic": "orders", "partition": 0, "ids": [{"id": "a", "time": "2026-01-01T00:00:00"}]},
        {"topic": "orders", "partition": 0, "ids": [{"id": "a", "offset": -1}]},
        {"topic": "orders", "partition": 0, "ids": [{"id": "a", "hashed": True}]},
    ],
)
def test_an_import_that_is_not_valid_names_its_fault(
    client: TestClient, body: dict[str, object]
) -> None:
    response = client.post(IMPORT, json=body)
    assert response.status_code == 422
    assert response.json()["errors"][0]["pointer"].startswith("/body")


def test_an_import_for_a_foreign_partition_says_why(client: TestClient) -> None:
    body = {"topic": "other", "partition": 0, "ids": [{"id": "a"}]}
    response = client.post(IMPORT, json=body)
    assert response.json()["type"] == "urn:ringfence:problem:not-possible"


def test_an_id_is_forgotten_by_its_name(client: TestClient) -> None:
    assert client.delete("/v1/addresses/orders/ids/hex:ff00").json()["ids"] == 1
    assert client.delete("/v1/addresses/orders/ids/other").json()["ids"] == 0


def test_an_address_is_cleared_by_path_and_by_query(client: TestClient) -> None:
    assert client.post("/v1/addresses/orders:clear").json()["ids"] == 3
    strange = client.post("/v1/addresses:clear", params={"name": "a/b c+d%\u00e9"})
    assert strange.json()["ids"] == 1


@pytest.mark.parametrize("path", ["/v1/addresses/orders/ids", "/v1/ids"])
def test_any_id_is_forgotten_by_query(client: TestClient, path: str) -> None:
    of = {} if path.endswith("orders/ids") else {"address": "orders"}
    for name, count in (("", 1), ("hex:ff00", 1), ("a/b%2Fc", 0)):
        assert client.delete(path, params={**of, "name": name}).json()["ids"] == count
    assert client.delete(path, params=of).status_code == 422, "no name is not all names"


def test_the_address_of_ids_may_stand_in_the_query(client: TestClient) -> None:
    of, body = {"address": "orders"}, {"ids": ["id-1", "never"]}
    by_path = "/v1/addresses/orders/ids"
    for verb in ("", ":export"):
        listed = client.get(f"/v1/ids{verb}", params=of).json()
        assert listed == client.get(f"{by_path}{verb}").json()
    told = client.post("/v1/ids:lookup", params=of, json=body).json()
    assert told == client.post(f"{by_path}:lookup", json=body).json()
    lines = client.get("/v1/ids:export", params=of, headers={"Accept": NDJSON}).content
    sent = {"Content-Type": NDJSON}
    done = client.post("/v1/ids:import", params=of, content=lines, headers=sent)
    assert done.json() == {"ids": 3, "new": 0, "complete": True}


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (IMPORT, {"topic": "orders", "partition": 3, "ids": [{"id": None}]}),
        ("/v1/addresses/orders/ids:lookup", {"ids": [1]}),
        ("/v1/redrives", {"mode": "through", "filter": {"header": {"k": None}}}),
    ],
)
def test_bytes_that_are_not_written_as_text_are_refused(
    client: TestClient, path: str, body: dict[str, Any]
) -> None:
    refused = client.post(path, json=body)
    assert refused.status_code == 422
    assert "an id is text" in refused.json()["detail"]


@pytest.mark.parametrize("accept", ["application/json", NDJSON])
def test_an_export_may_be_asked_for_by_either_verb(client: TestClient, accept: str) -> None:
    headers = {"Accept": accept}
    got, posted = client.get(EXPORT, headers=headers), client.post(EXPORT, headers=headers)
    assert posted.status_code == 200
    assert posted.content == got.content


def test_without_a_name_the_ids_are_listed_and_with_one_it_is_looked_up(client: TestClient) -> None:
    path = "/v1/addresses/orders/ids"
    assert len(client.get(path).json()["ids"]) == 3
    assert client.get(path, params={"name": "id-1"}).json()["known"]
    assert client.get(path, params={"name": ""}).json()["known"]
