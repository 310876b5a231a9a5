"""Info, status, partitions, metrics and the OpenAPI document."""

import re
from collections.abc import Callable

import pytest
from prometheus_client.parser import text_string_to_metric_families
from starlette.testclient import TestClient

from api.view import ServiceView
from service.status import Status
from tests.api.conftest import client_of
from tests.api.fake_service import RESTORING_PARTITION, RUNNING, STARTING, Clock, make_view


def test_info_names_versions_cluster_and_instance(client: TestClient) -> None:
    assert client.get("/v1/info").json() == {
        "version": "0.1.0",
        "python": "3.11.9",
        "libraries": {"confluent_kafka": "2.16.1", "librdkafka": "2.16.0"},
        "cluster_id": "cluster-1",
        "instance": "0",
        "group_id": "ringfence",
    }


def test_status_counts_since_the_start(client: TestClient) -> None:
    document = client.get("/v1/status").json()
    assert document["phase"] == "running"
    assert document["started_at"] == "2026-01-02T03:04:05Z"
    assert document["records_accepted"] == 8
    assert document["partitions_assigned"] == 1
    assert document["heartbeat_age_ms"] == 0


def test_status_answers_before_the_loop_has_run(client_at: Callable[[Status], TestClient]) -> None:
    document = client_at(STARTING).get("/v1/status").json()
    assert document["phase"] == "starting"
    assert document["last_commit_at"] is None


def test_partitions_show_offsets_lag_and_restore(
    client_at: Callable[[Status], TestClient],
) -> None:
    status = RUNNING._replace(partitions=(*RUNNING.partitions, RESTORING_PARTITION))
    document = client_at(status).get("/v1/partitions").json()
    assert document["complete"] is True
    first, second = document["partitions"]
    assert first == {**RUNNING.partitions[0]._asdict()}
    assert (second["phase"], second["restore_remaining_records"]) == ("restoring", 41)


def test_metrics_parse_and_count_requests_by_template(client: TestClient) -> None:
    client.get("/v1/addresses/secret-name")
    client.get("/no/such/path")
    client.request("BREW", "/v1/info")
    response = client.get("/metrics")
    assert response.headers["Content-Type"].startswith("text/plain; version=0.0.4")
    assert "secret-name" not in response.text
    requests = {
        (sample.labels["route"], sample.labels["method"], sample.labels["status"])
        for family in text_string_to_metric_families(response.text)
        for sample in family.samples
        if sample.name == "ringfence_http_requests_total"
    }
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
    "/v1/partitions": "/v1/partitions",
    "/v1/addresses": "/v1/addresses?name=a",
    "/v1/addresses/{address}": "/v1/addresses/a",
    "/v1/addresses/{address}/ids": "/v1/addresses/a/ids?name=x",
    "/v1/addresses/{address}/ids/{id}": "/v1/addresses/a/ids/x",
    "/v1/ids": "/v1/ids?address=a&name=x",
}


def test_openapi_documents_every_path(client: TestClient) -> None:
    document = client.get("/openapi.json").json()
    assert document["openapi"].startswith("3.1")
    assert set(document["paths"]) == set(PATHS)
    assert "HTTPValidationError" not in document["components"]["schemas"]


def test_openapi_refers_only_to_schemas_that_it_holds(client: TestClient) -> None:
    text = client.get("/openapi.json").text
    referred = set(re.findall(r'"#/components/schemas/([^"]+)"', text))
    held = set(client.get("/openapi.json").json()["components"]["schemas"])
    assert "Problem" in referred
    assert referred <= held


@pytest.mark.parametrize(("template", "path"), PATHS.items())
def test_openapi_documents_the_statuses_a_resource_answers_and_no_other(
    client: TestClient, clock: Clock, view: ServiceView, template: str, path: str
) -> None:
    operation = client.get("/openapi.json").json()["paths"][template]["get"]
    answers = [client.get(path), client.get(f"{path.partition('?')[0]}?verbose=perhaps")]
    answers.append(client.get(path.replace("/ids/x", "/ids/hex:x")))
    answers.append(client_of(make_view(STARTING, clock, view.inbox)).get(path))
    clock.now_s += 3600  # the heartbeat is old
    answers.append(client.get(path))
    answered = {str(answer.status_code) for answer in answers}
    assert answered == set(operation["responses"]) - {"default"}
    media = {"200": "text/plain" if template == "/metrics" else "application/json"}
    for status, described in operation["responses"].items():
        assert set(described["content"]) == {media.get(status, "application/problem+json")}
