"""What the broker answers of our rights, and how long it may take to know a group."""

from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from types import SimpleNamespace
from typing import cast

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AclOperation, AdminClient

from ringfence_service.kafka import acls as rights
from ringfence_service.kafka.acls import KafkaAclQueries


def answer(told: Sequence[AclOperation] | int | None) -> "Future[object]":
    """Operations, or the code of an error."""
    future: Future[object] = Future()
    if isinstance(told, int):
        future.set_exception(KafkaException(KafkaError(told)))
    else:
        future.set_result(SimpleNamespace(authorized_operations=told))
    return future


class Admin:
    """An admin client that answers one after the other."""

    def __init__(self, *told: Sequence[AclOperation] | int | None) -> None:
        self.told: Iterator[Sequence[AclOperation] | int | None] = iter(told)

    def describe_topics(self, topics: TopicCollection, **_how: object) -> dict[str, object]:
        return {name: answer(next(self.told)) for name in topics.topic_names}

    def describe_consumer_groups(self, groups: list[str], **_how: object) -> dict[str, object]:
        return {name: answer(next(self.told)) for name in groups}


def of(*told: Sequence[AclOperation] | int | None) -> KafkaAclQueries:
    return KafkaAclQueries(cast("AdminClient", Admin(*told)))


def test_what_may_not_be_described_grants_nothing_and_what_is_absent_is_left_out() -> None:
    told = of(
        [AclOperation.READ, AclOperation.DESCRIBE],
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        None,
    )
    assert told.of_topics(["a", "b", "c", "d"]) == {
        "a": {"READ", "DESCRIBE"},
        "b": frozenset(),
        "d": None,
    }


def test_a_broker_that_has_just_started_is_asked_again_for_groups(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rights, "_PAUSE_S", 0.0)
    coming = (KafkaError.NOT_COORDINATOR, KafkaError.COORDINATOR_LOAD_IN_PROGRESS)
    assert of(*coming, [AclOperation.READ]).of_groups(["g"]) == {"g": frozenset({"READ"})}
    assert of(KafkaError.GROUP_AUTHORIZATION_FAILED).of_groups(["g"]) == {"g": frozenset()}
    monkeypatch.setattr(rights, "_COORDINATOR_S", -1.0)
    with pytest.raises(KafkaException):
        of(*coming).of_groups(["g"])


@pytest.mark.parametrize("code", [KafkaError._TIMED_OUT, KafkaError._TRANSPORT])
def test_no_answer_is_not_taken_for_a_refusal(code: int) -> None:
    with pytest.raises(KafkaException):
        of(code).of_topics(["a"])
    with pytest.raises(KafkaException):
        of(code).of_groups(["g"])


def test_a_factor_that_the_brokers_are_too_few_for_has_its_own_remedy() -> None:
    fault = KafkaError(KafkaError.INVALID_REPLICATION_FACTOR, "only 1 broker(s) are registered")
    (problem,) = rights.not_makeable({"g.acks": fault}, "User:svc")
    assert "only 1 broker(s)" in problem.what
    assert problem.fix.startswith("set service.internal_replication")
