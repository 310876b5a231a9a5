"""Instances: what any of them tells of all."""

from collections.abc import Callable
from dataclasses import replace

from starlette.testclient import TestClient

from api.view import ServiceView
from service.status import Status
from tests.api.conftest import client_of
from tests.api.fake_service import OTHER_PARTITION, RESTORING_PARTITION, RUNNING


def test_instances_tell_how_each_does_and_who_does_not_answer(client: TestClient) -> None:
    document = client.get("/v1/instances").json()
    own, other, gone = document["instances"]
    assert (own["instance"], own["own"], own["reachable"], own["revision"]) == ("0", True, True, 7)
    assert (own["partitions_owned"], own["lag_records"]) == (1, 5)
    assert (other["own"], other["revision"], other["lag_records"]) == (False, 6, 2)
    assert other["url"] == "http://127.0.0.1:8081"
    assert (gone["reachable"], gone["trouble"]) == (False, "it cannot be reached")
    assert (gone["phase"], gone["partitions_owned"], gone["lag_records"]) == (None, None, None)
    assert gone["started_at"] == "2026-01-02T03:04:05Z"
    assert document["complete"] is False


def test_partitions_are_those_of_all_instances_with_their_owners(client: TestClient) -> None:
    document = client.get("/v1/partitions").json()
    told = [(each["instance"], each["partition"]) for each in document["partitions"]]
    assert told == [("0", 3), ("1", 5)]
    assert document["instance"] == "0"
    assert document["complete"] is False, "one instance does not answer"


def test_the_own_partitions_can_be_asked_for_alone(client: TestClient) -> None:
    document = client.get("/v1/partitions?scope=instance").json()
    assert [each["partition"] for each in document["partitions"]] == [3]
    assert document["complete"] is True


def test_a_partition_that_moves_is_told_once_by_who_runs_it(
    client_at: Callable[[Status], TestClient],
) -> None:
    moving = RESTORING_PARTITION._replace(partition=OTHER_PARTITION.partition)
    document = client_at(RUNNING._replace(partitions=(moving,))).get("/v1/partitions").json()
    assert [(each["instance"], each["phase"]) for each in document["partitions"]] == [
        ("1", "running")
    ]


def test_a_program_that_is_alone_tells_its_own_partitions(view: ServiceView) -> None:
    alone = client_of(replace(view, fleet=None), without_state=True)
    document = alone.get("/v1/partitions").json()
    assert [each["instance"] for each in document["partitions"]] == ["0"]
