"""Settings over REST: ETags, preconditions, dry runs, history; the same for every resource."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import pytest
from httpx2 import Response
from starlette.testclient import TestClient

from api.view import ServiceView
from service.status import Status
from tests.api.conftest import client_of
from tests.api.fake_service import FILE, RUNNING, FakeSettings


class Resource(NamedTuple):
    """One that has a document: an existing one, and what to put there."""

    path: str
    body: dict[str, Any]


DOCUMENTS = {
    "route": Resource("/v1/routes/orders", {"inputs": ["orders"], "output": "elsewhere"}),
    "pattern": Resource("/v1/address-settings/%23", {"id_cache_size": 5_000}),
    "pattern by query": Resource("/v1/address-settings?name=%23", {"id_cache_size": 5_000}),
    "settings": Resource("/v1/settings", {"addresses": {"a/b.*": {"id_cache_size": 7}}}),
}
NEW = {
    "route": Resource("/v1/routes/more", {"inputs": ["more"]}),
    "pattern": Resource("/v1/address-settings/a%2Fb.%2A", {"id_cache_size": 7}),
}
NUMBER = Resource("/v1/publishers/P", {"address": "orders", "sequence": 12})
"""Has an ETag like these, and no history."""
every_guarded = pytest.mark.parametrize(
    "resource", [*DOCUMENTS.values(), NUMBER], ids=[*DOCUMENTS, "publisher"]
)
every_document = pytest.mark.parametrize("resource", DOCUMENTS.values(), ids=DOCUMENTS)
every_new = pytest.mark.parametrize("resource", NEW.values(), ids=NEW)


def etag(client: TestClient, path: str) -> str:
    return str(client.get(path).headers["ETag"])


def put(client: TestClient, resource: Resource, more: str = "", **headers: str) -> Response:
    joint = "&" if "?" in resource.path else "?"
    path = f"{resource.path}{joint}{more}" if more else resource.path
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return client.put(path, json=resource.body, headers=named)


def kind(response: Response) -> str:
    return str(response.json()["type"]).removeprefix("urn:ringfence:problem:")


@every_guarded
def test_a_change_without_if_match_is_428_and_tells_the_etag(
    client: TestClient, resource: Resource
) -> None:
    now = etag(client, resource.path)
    refused = put(client, resource)
    assert (refused.status_code, kind(refused)) == (428, "match-required")
    assert refused.headers["ETag"] == now


@every_document
def test_a_stale_if_match_is_412_and_tells_the_current_etag(
    client: TestClient, resource: Resource
) -> None:
    before = etag(client, resource.path)
    assert put(client, resource, If_Match=before).status_code == 200
    refused = put(client, resource, If_Match=before)
    assert (refused.status_code, kind(refused)) == (412, "stale")
    assert refused.headers["ETag"] == etag(client, resource.path) != before


@every_guarded
def test_an_if_match_that_was_never_told_is_412_and_tells_the_current_etag(
    client: TestClient, resource: Resource
) -> None:
    refused = put(client, resource, If_Match='"of another time"')
    assert (refused.status_code, kind(refused)) == (412, "stale")
    assert refused.headers["ETag"] == etag(client, resource.path)


def test_a_dry_run_of_a_number_tells_how_it_would_stand(client: TestClient) -> None:
    tried = put(client, NUMBER, "dry_run=true", If_Match=etag(client, NUMBER.path))
    assert tried.json()["sequences"][0]["sequence"] == 12
    assert "ETag" not in tried.headers


@every_document
def test_a_change_tells_its_revision_and_the_new_etag(
    client: TestClient, resource: Resource
) -> None:
    done = put(client, resource, If_Match=etag(client, resource.path))
    assert done.json()["revision"] == 10
    assert done.headers["ETag"] == done.json()["after"]["etag"] == etag(client, resource.path)


@every_document
def test_a_dry_run_tells_before_after_and_effect_and_changes_nothing(
    client: TestClient, resource: Resource
) -> None:
    before = etag(client, resource.path)
    told = put(client, resource, "dry_run=true", If_Match=before).json()
    assert told["dry_run"]
    assert told["before"] != told["after"]
    assert told["effect"]
    assert etag(client, resource.path) == before
    assert client.get("/v1/settings/revisions").json()["revisions"] == []


@every_guarded
def test_a_dry_run_is_refused_as_the_change_would_be(
    client: TestClient, resource: Resource
) -> None:
    assert put(client, resource, "dry_run=true").status_code == 428
    assert put(client, resource, "dry_run=true", If_Match='"no"').status_code == 412


@every_guarded
def test_a_weak_etag_matches_nothing(client: TestClient, resource: Resource) -> None:
    assert put(client, resource, If_Match=f"W/{etag(client, resource.path)}").status_code == 412


@every_document
def test_if_none_match_makes_no_second_one(client: TestClient, resource: Resource) -> None:
    if resource.path == "/v1/settings":
        pytest.skip("there is always one")
    refused = put(client, resource, If_None_Match="*")
    assert (refused.status_code, kind(refused)) == (409, "already-exists")


@every_new
def test_what_does_not_exist_is_made_once(client: TestClient, resource: Resource) -> None:
    assert put(client, resource, If_Match='"x"').status_code == 412
    assert put(client, resource, If_None_Match="*").status_code == 200
    assert put(client, resource, If_None_Match="*").status_code == 409
    assert client.get(resource.path).json()["source"] == "rest"


@every_new
def test_what_was_made_is_deleted_with_its_etag(client: TestClient, resource: Resource) -> None:
    put(client, resource)
    assert client.delete(resource.path).status_code == 428
    gone = client.delete(resource.path, headers={"If-Match": etag(client, resource.path)})
    assert (gone.status_code, gone.json()["after"]) == (200, None)
    assert client.get(resource.path).status_code == 404
    assert client.delete(resource.path, headers={"If-Match": "*"}).status_code == 404
    assert client.get("/v1/settings").json()["routes"] == {}


def test_what_the_file_has_is_deleted_for_good_by_null(client: TestClient) -> None:
    client.delete("/v1/address-settings/%23", headers={"If-Match": "*"})
    assert client.get("/v1/settings").json()["addresses"] == {"#": None}
    assert client.get("/v1/address-settings").json()["address_settings"] == []


def test_every_entry_of_a_list_tells_its_source_and_etag(client: TestClient) -> None:
    put(client, NEW["route"])
    first, second = client.get("/v1/routes").json()["routes"]
    assert (first["name"], first["source"]) == ("orders", "file")
    assert (second["name"], second["source"]) == ("more", "rest")
    assert second["etag"] == etag(client, "/v1/routes/more")
    (only,) = client.get("/v1/address-settings").json()["address_settings"]
    assert only == {
        "pattern": "#",
        "source": "file",
        "etag": etag(client, "/v1/address-settings/%23"),
        "id_cache_size": 20_000,
    }


def test_lists_come_in_pages(client: TestClient) -> None:
    put(client, NEW["route"])
    put(client, NEW["pattern"])
    for path, key in (("/v1/routes", "routes"), ("/v1/address-settings", "address_settings")):
        first = client.get(f"{path}?page_size=1").json()
        token = first["next_page_token"]
        second = client.get(f"{path}?page_size=1&page_token={token}").json()
        assert second["next_page_token"] is None
        assert [*first[key], *second[key]] == client.get(path).json()[key]
    assert client.get("/v1/routes?page_token=no").status_code == 422


def test_what_was_read_can_be_put_back_as_it_is(client: TestClient) -> None:
    route = client.get("/v1/routes/orders").json()
    done = client.put("/v1/routes/orders", json=route, headers={"If-Match": route["etag"]})
    assert done.status_code == 200
    whole = client.get("/v1/settings")
    again = client.put(
        "/v1/settings", json=whole.json(), headers={"If-Match": whole.headers["ETag"]}
    )
    assert again.json()["effect"] == []


# The rules of the file.


@pytest.mark.parametrize(
    ("path", "body", "pointer", "sentence"),
    [
        ("/v1/routes/new", {"inputs": ["a"], "outptu": "b"}, "/body/outptu", "nearest is output"),
        ("/v1/routes/new", {"inputs": ["a"], "scope": "x"}, "/body/scope", "allowed is"),
        ("/v1/routes/new", {}, "/body/inputs", "inputs is missing"),
        ("/v1/routes/new", {"inputs": ["ringfence.x"]}, "/body/inputs", "belong to Ringfence"),
        ("/v1/routes/new", {"inputs": ["out"]}, "/body/inputs", "a topic that a route writes"),
        (
            "/v1/routes/new",
            {"inputs": ["orders"], "scope": "partition", "output": "x"},
            "/body",
            "their scopes differ",
        ),
        ("/v1/routes/new", {"name": "old", "inputs": ["a"]}, "/body/name", "keeps its name"),
        ("/v1/address-settings/a", {"id_cache_size": -1}, "/body/id_cache_size", "whole number"),
        ("/v1/address-settings/a%23b", {}, "/body", "whole words between dots"),
        (
            "/v1/settings",
            {"routes": {"a/b~c": {"inputs": 1}}},
            "/body/routes/a~1b~0c/inputs",
            "allowed is",
        ),
        ("/v1/settings", {"paused": ["nobody"]}, "/body/paused", "is no route"),
        ("/v1/settings", {"routes": {"orders": None}}, "/body/routes", "[[routes]] is missing"),
    ],
)
def test_what_a_file_may_not_hold_is_refused_with_its_place_and_the_files_sentence(
    client: TestClient, path: str, body: dict[str, Any], pointer: str, sentence: str
) -> None:
    headers = {"If-Match": "*"} if path == "/v1/settings" else {}
    refused = client.put(path, json=body, headers=headers)
    assert (refused.status_code, kind(refused)) == (422, "invalid-settings")
    faults = {fault["pointer"]: fault["detail"] for fault in refused.json()["errors"]}
    assert sentence in faults[pointer]
    assert client.get("/v1/settings/revisions").json()["revisions"] == []


@pytest.mark.parametrize("key", ["scope", "address", "id"])
def test_what_is_remembered_hangs_on_never_changes(client: TestClient, key: str) -> None:
    value = {"scope": "partition", "address": "all", "id": "{key}"}[key]
    body = {"inputs": ["orders"], "output": "out", key: value}
    refused = client.put("/v1/routes/orders", json=body, headers={"If-Match": "*"})
    (fault,) = refused.json()["errors"]
    assert fault["pointer"] == f"/body/{key}"
    assert "delete the route and make another" in fault["detail"]


def test_where_the_file_manages_nothing_is_written_and_it_says_what_to_do(
    view: ServiceView,
) -> None:
    file = replace(FILE, service=replace(FILE.service, managed_by="file"))
    client = client_of(replace(view, settings=FakeSettings(file)))
    for resource in DOCUMENTS.values():
        refused = put(client, resource, If_Match="*")
        assert (refused.status_code, kind(refused)) == (403, "managed-by-file")
        assert "change the file" in refused.json()["detail"]
    assert client.post("/v1/routes/orders:pause").status_code == 403
    assert client.get("/v1/routes").status_code == 200


# Pause, history, waiting, force.


def test_a_route_is_paused_and_resumed(client: TestClient) -> None:
    assert client.post("/v1/routes/orders:pause").json()["effect"] == ["paused: orders"]
    assert client.get("/v1/routes/orders").json()["paused"]
    assert client.post("/v1/routes/orders:resume").json()["effect"] == ["resumed: orders"]
    assert not client.get("/v1/routes/orders").json()["paused"]
    assert client.post("/v1/routes/nobody:pause").status_code == 404


def test_the_history_tells_who_changed_what_and_why_and_is_gone_back_in(
    client: TestClient,
) -> None:
    pattern = DOCUMENTS["pattern"]
    put(client, pattern, "reason=full%20disks", If_Match="*")
    client.post("/v1/routes/orders:pause")
    newest, first = client.get("/v1/settings/revisions").json()["revisions"]
    assert first == {
        "revision": 10,
        "time": "2023-11-14T22:13:20Z",
        "actor": "anonymous",
        "reason": "full disks",
        "source": "rest",
        "changes": ['addresses."#": set'],
    }
    assert newest["changes"] == ["paused: orders"]
    told = client.get("/v1/settings/revisions/10").json()["settings"]
    assert told["addresses"] == {"#": {"id_cache_size": 5_000}}
    back = client.post("/v1/settings/revisions/10:rollback").json()
    assert (back["revision"], back["effect"]) == (30, ["resumed: orders"])
    assert client.get("/v1/settings/revisions/11").status_code == 404
    assert client.post("/v1/settings/revisions/11:rollback").status_code == 404


def test_the_history_comes_in_pages(client: TestClient) -> None:
    for verb in ("pause", "resume", "pause"):
        client.post(f"/v1/routes/orders:{verb}")
    first = client.get("/v1/settings/revisions?page_size=2").json()
    token = first["next_page_token"]
    second = client.get(f"/v1/settings/revisions?page_size=2&page_token={token}").json()
    assert [each["revision"] for each in first["revisions"]] == [30, 20]
    assert [each["revision"] for each in second["revisions"]] == [10]
    assert second["next_page_token"] is None


@pytest.mark.parametrize(("is_applied", "status"), [(True, 200), (False, 202)])
def test_who_waits_is_told_whether_it_is_applied(
    view: ServiceView,
    is_applied: bool,  # noqa: FBT001 - a parameter of the test
    status: int,
) -> None:
    settings = FakeSettings()
    settings.is_applied = is_applied
    client = client_of(replace(view, settings=settings))
    done = client.post("/v1/routes/orders:pause?wait=applied&timeout=500ms")
    assert (done.status_code, done.json()["applied"]) == (status, is_applied)


@pytest.mark.parametrize(
    ("timeout", "status"), [("500ms", 200), ("PT10S", 200), ("PT0.5S", 200), ("soon", 422)]
)
def test_a_timeout_is_a_duration(client: TestClient, timeout: str, status: int) -> None:
    done = client.post(f"/v1/routes/orders:pause?wait=applied&timeout={timeout}")
    assert done.status_code == status
    assert client.post(f"/v1/routes/orders:pause?timeout={'9' * 400}s").status_code == 422


def test_a_dry_run_of_a_resize_tells_what_would_be_forgotten_by_age(client: TestClient) -> None:
    body = {"id_cache_size": 1}
    told = client.put("/v1/address-settings/orders?dry_run=true", json=body).json()["forgets"]
    assert (told["ids_forgotten"], told["needs_force"], told["complete"]) == (2, False, True)
    (one,) = told["addresses"]
    assert one["oldest_time"] == "1970-01-01T00:00:01Z"
    assert one["newest_time"] == "1970-01-01T00:00:02Z"


def test_a_change_of_strategy_needs_force_and_its_dry_run_tells_what_is_forgotten(
    client: TestClient,
) -> None:
    path, body = "/v1/address-settings/orders", {"strategy": "window"}
    told = client.put(f"{path}?dry_run=true", json=body).json()["forgets"]
    assert (told["ids_forgotten"], told["needs_force"]) == (3, True)
    refused = client.put(path, json=body)
    assert (refused.status_code, kind(refused)) == (422, "needs-force")
    assert client.put(f"{path}?force=true", json=body).status_code == 200


def test_the_status_tells_what_is_applied_and_what_is_not(
    client_at: Callable[[Status], TestClient],
) -> None:
    client = client_at(RUNNING._replace(config_revision=7, config_fault="they contradict"))
    document = client.get("/v1/status").json()
    assert (document["config_revision"], document["config_fault"]) == (7, "they contradict")
    assert client.get("/readyz").status_code == 200
    assert "ringfence_config_revision 7.0" in client.get("/metrics").text


def test_settings_of_a_newer_version_are_kept_and_the_way_back_is_open(view: ServiceView) -> None:
    client = client_of(replace(view, settings=FakeSettings.foreign()))
    refused = client.post("/v1/routes/orders:pause")
    assert "run the newer version" in refused.json()["detail"]
    assert client.get("/v1/routes/orders").json()["source"] == "file"
    assert client.get("/v1/settings/revisions/10").json()["settings"] is None
    assert client.post("/v1/settings/revisions/10:rollback").status_code == 404
