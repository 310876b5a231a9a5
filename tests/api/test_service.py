"""Info, status, partitions, metrics and the OpenAPI document."""

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from httpx2 import Response
from starlette.testclient import TestClient

from ringfence_api.app import create_app
from ringfence_api.content import NDJSON
from ringfence_api.ports import ServiceView
from ringfence_service.queries.status import ServiceStatus
from tests.api.fake_service import (
    RUNNING,
    STARTING,
    Clock,
    FakeSettings,
    make_view,
)
from tests.api.guarded import client_of, counted, operations
from tests.support.statuses import LOST_WORKER, worker_status


def test_workers_tell_how_each_process_does(view: ServiceView) -> None:
    well, gone = worker_status(), LOST_WORKER
    client = client_of(replace(view, workers=lambda: (well, gone)))
    document = client.get("/v1/workers").json()
    assert (document["instance"], document["complete"]) == ("0", True)
    assert document["workers"] == [
        {**dict(well), "since": "2026-01-02T03:04:05Z"},
        {**dict(gone), "since": "2026-01-02T03:04:05Z"},
    ]


def test_the_status_tells_what_is_applied_and_what_is_not(
    client_at: Callable[[ServiceStatus], TestClient],
) -> None:
    client = client_at(RUNNING._replace(config_revision=7, config_fault="they contradict"))
    document = client.get("/v1/status").json()
    assert (document["config_revision"], document["config_fault"]) == (7, "they contradict")
    assert client.get("/readyz").status_code == 200
    assert "ringfence_config_revision 7.0" in client.get("/metrics").text


def test_every_member_of_the_status_is_described_and_always_there(client: TestClient) -> None:
    schema = client.get("/openapi.json").json()["components"]["schemas"]["Status"]
    assert schema["required"] == list(schema["properties"])
    assert all("description" in each for each in schema["properties"].values())


def test_metrics_parse_and_count_requests_by_template(client: TestClient) -> None:
    client.get("/v1/addresses/secret-name")
    client.get("/no/such/path")
    client.request("BREW", "/v1/info")
    response = client.get("/metrics")
    assert response.headers["Content-Type"].startswith("text/plain; version=0.0.4")
    assert "secret-name" not in response.text
    requests = counted(client, "ringfence_http_requests_total", "route", "method", "status")
    assert ("/v1/addresses/{address}", "GET", "200") in requests
    assert ("_other", "GET", "404") in requests
    assert ("/v1/info", "_other", "405") in requests


PATHS = {
    "/livez": "/livez",
    "/readyz": "/readyz",
    "/startupz": "/startupz",
    "/metrics": "/metrics",
    "/v1/info": "/v1/info",
    "/v1/status": "/v1/status",
    "/v1/partitions": "/v1/partitions?scope=instance",
    "/v1/workers": "/v1/workers",
    "/v1/instances": "/v1/instances",
    "/v1/addresses": "/v1/addresses?page_size=10",
    "/v1/addresses/{address}": "/v1/addresses/a",
    "/v1/addresses/{address}/ids": "/v1/addresses/a/ids?page_size=10",
    "/v1/addresses/{address}/ids/{id}": "/v1/addresses/a/ids/x",
    "/v1/ids": "/v1/ids?address=a&page_size=10",
    "/v1/ids:search": "/v1/ids:search?id=x&page_size=10",
    "/v1/records/{topic}/{partition}/{offset}": "/v1/records/orders/3/42",
    "/v1/records:explain": "/v1/records:explain?at=orders.dlq-0@7",
    "/v1/ids:export": "/v1/ids:export?address=a&page_size=10",
    "/v1/addresses/{address}/ids:export": "/v1/addresses/a/ids:export?page_size=10",
    "/v1/publishers": "/v1/publishers?page_size=10",
    "/v1/publishers/{name}": "/v1/publishers/P",
    "/v1/audit": "/v1/audit?page_size=10",
    "/v1/routes": "/v1/routes?page_size=10",
    "/v1/routes/{name}": "/v1/routes/orders",
    "/v1/address-settings": "/v1/address-settings?page_size=10",
    "/v1/address-settings/{pattern}": "/v1/address-settings/%23",
    "/v1/settings": "/v1/settings",
    "/v1/settings/revisions": "/v1/settings/revisions?page_size=10",
    "/v1/settings/revisions/{revision}": "/v1/settings/revisions/10",
    "/v1/dead-letters": "/v1/dead-letters?page_size=10",
    "/v1/dead-letters/{topic}/{partition}/{offset}": "/v1/dead-letters/orders.dlq/0/7",
    "/v1/dead-letters:summary": "/v1/dead-letters:summary?page_token=",
    "/v1/redrives": "/v1/redrives?page_size=10",
    "/v1/redrives/{id}": "/v1/redrives/0-x",
}
WRITTEN = {
    "/v1/addresses/{address}/ids:import",
    "/v1/addresses/{address}/ids:lookup",
    "/v1/ids:import",
    "/v1/ids:lookup",
    "/v1/addresses/{address}:plan",
    "/v1/addresses:plan",
    "/v1/addresses/{address}:clear",
    "/v1/addresses:clear",
    "/v1/publishers/{name}/session",
    "/v1/routes/{name}:pause",
    "/v1/routes/{name}:resume",
    "/v1/settings/revisions/{revision}:rollback",
    "/v1/redrives/{id}:cancel",
    "/v1/partitions/{topic}/{partition}:skip",
}


def test_openapi_documents_every_path(client: TestClient) -> None:
    document = client.get("/openapi.json").json()
    assert document["openapi"].startswith("3.1")
    assert set(document["paths"]) == set(PATHS) | WRITTEN
    assert "HTTPValidationError" not in document["components"]["schemas"]


def test_openapi_refers_only_to_schemas_that_it_holds(client: TestClient) -> None:
    text = client.get("/openapi.json").text
    referred = set(re.findall(r'"#/components/schemas/([^"]+)"', text))
    held = set(client.get("/openapi.json").json()["components"]["schemas"])
    assert "Problem" in referred
    assert referred <= held


def test_openapi_describes_whatever_it_names(view: ServiceView) -> None:
    document = create_app(view).openapi()
    named = {
        f"{name}.{each}": told
        for name, schema in document["components"]["schemas"].items()
        for each, told in schema.get("properties", {}).items()
    }
    tags = {each["name"]: each for each in document["tags"]}
    for method, path, operation in operations(view):
        place = f"{method} {path}"
        named |= {f"{place} {each['name']}": each for each in operation.get("parameters", ())}
        named |= {f"{place} {each}": tags.get(each, {}) for each in operation["tags"]}
        assert operation["summary"], place
        for status, response in operation["responses"].items():
            assert "X-Request-Id" in response["headers"], (place, status)
            named |= {f"{place} {status} {k}": v for k, v in response["headers"].items()}
            if method == "post" and status.startswith("2"):
                assert "Idempotency-Replayed" in response["headers"], place
    assert len(named) > 500
    assert not [name for name, told in named.items() if not told.get("description")]
    assert document["info"]["license"]["identifier"] == "Apache-2.0"


def test_openapi_is_the_same_whenever_it_is_asked_for(client: TestClient) -> None:
    assert client.get("/openapi.json").json() == client.get("/openapi.json").json()


ODD: Final = (
    ("/ids/x", ("/ids/hex:x",)),
    ("scope=instance", ("scope=moon",)),
    ("page_size=10", ("page_size=0",)),
    ("page_token=", ("page_token=nonsense",)),
    ("/0/7", ("/0/99", "/0/seven")),
    ("/3/42", ("/3/99", "/3/seven")),
    ("at=orders.dlq-0@7", ("at=nosuch-0@1",)),
    ("/0-x", ("/y", f"/{'y' * 101}")),
    ("/publishers/P", (f"/publishers/{'x' * 1025}",)),
    ("/revisions/10", ("/revisions/0", "/revisions/9")),
    ("/routes/orders", ("/routes/nobody",)),
    ("%23", ("nothing",)),
    ("/address-settings?", ("/address-settings?name=no&", "/address-settings?name=%23&")),
)
"""What stands in a path, and what in its place is refused."""
CONDITIONS: Final = (("If-None-Match", "*"), ("If-Match", '"x"'))


def test_openapi_documents_the_statuses_a_resource_answers_and_no_other(
    client: TestClient, clock: Clock, view: ServiceView
) -> None:
    client.post("/v1/routes/orders:pause")  # a revision to be read
    others = [
        client_of(replace(view, settings=FakeSettings.foreign())),
        client_of(replace(view, settings=FakeSettings.unknown())),
        client_of(make_view(STARTING, clock, view.inbox)),
    ]
    documented = client.get("/openapi.json").json()["paths"]
    answers: dict[str, list[Response]] = {}
    for template, path in PATHS.items():
        asked = [path, f"{path.partition('?')[0]}?verbose=perhaps"]
        asked += [path.replace(part, each) for part, odd in ODD if part in path for each in odd]
        answers[template] = [client.get(each) for each in asked]
        answers[template] += [
            client.get(each, headers={name: value})
            for each, answer in zip(asked, answers[template], strict=True)
            if "ETag" in answer.headers
            for name, value in CONDITIONS
        ]
        answers[template] += [other.get(path) for other in others]
    clock.now_s += 3600  # the heartbeat is old
    for template, path in PATHS.items():
        operation = documented[template]["get"]
        answered = {str(each.status_code) for each in (*answers[template], client.get(path))}
        assert answered == set(operation["responses"]) - {"default"}, template
        media = {"200": "text/plain" if template == "/metrics" else "application/json"}
        for status, described in operation["responses"].items():
            content = set(described.get("content", ())) - {NDJSON}  # some have it as lines too
            expected = {media.get(status, "application/problem+json")}
            assert content == (set() if status == "304" else expected), template
