"""A cluster that does not answer raises a KafkaException, whichever side notices first."""

from collections.abc import Mapping
from concurrent.futures import Future
from types import SimpleNamespace
from typing import cast

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from ringfence_service.kafka import admin as cluster
from ringfence_service.kafka.admin import KafkaClusterAdmin
from ringfence_service.kafka.model import TopicSpec
from ringfence_state.model import PartitionId


class Silent:
    """An admin client whose answers do not come, not even that they are late."""

    def describe_cluster(self, *, request_timeout: float) -> Future[object]:
        del request_timeout
        return Future()


def test_an_answer_that_never_comes_is_a_question_that_timed_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cluster, "REQUEST_TIMEOUT_S", 0.0)
    monkeypatch.setattr(cluster, "_GRACE_S", 0.0)
    with pytest.raises(KafkaException) as refused:
        KafkaClusterAdmin(lambda: cast("AdminClient", Silent())).cluster_id()
    assert refused.value.args[0].code() == KafkaError._TIMED_OUT


class Forgetful:
    """An admin client that has forgotten every broker, and asks nobody ever again."""

    def list_topics(self, *, timeout: float) -> object:
        del timeout
        reason = "Failed to get metadata: Local: Broker transport failure"
        raise KafkaException(KafkaError(KafkaError._TRANSPORT, reason))


class Knowing:
    """One that knows a broker."""

    def list_topics(self, *, timeout: float) -> object:
        del timeout
        return SimpleNamespace(topics={"orders": None})


def test_a_client_that_has_long_enough_found_no_broker_is_replaced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[object] = []

    def make() -> AdminClient:
        made.append(Knowing() if made else Forgetful())
        return cast("AdminClient", made[-1])

    asked = KafkaClusterAdmin(make)
    with pytest.raises(KafkaException, match="transport failure"):
        asked.names()
    assert len(made) == 1, "once is no proof"
    monkeypatch.setattr(cluster, "_REPLACE_AFTER_S", 0.0)
    with pytest.raises(KafkaException, match="transport failure"):
        asked.names()
    assert asked.names() == asked.names() == {"orders"}
    assert len(made) == 2


class Faithful:
    """An admin client that asks the controller it knows, until it reads the metadata again."""

    controller_is_there = False

    def describe_cluster(self, *, request_timeout: float) -> Future[object]:
        del request_timeout
        future: Future[object] = Future()
        if self.controller_is_there:
            future.set_result(SimpleNamespace(cluster_id="kraft"))
        else:
            reason = "Timed out waiting for controller"
            future.set_exception(KafkaException(KafkaError(KafkaError._TIMED_OUT, reason)))
        return future

    def list_topics(self, *, timeout: float) -> object:
        del timeout
        self.controller_is_there = True
        return SimpleNamespace(topics={})


@pytest.mark.row(36)
def test_a_client_that_waits_for_a_broker_that_is_away_asks_who_is_there() -> None:
    asked = KafkaClusterAdmin(lambda: cast("AdminClient", faithful))
    faithful = Faithful()
    assert not asked.has_answered
    with pytest.raises(KafkaException, match="waiting for controller"):
        asked.cluster_id()
    assert not asked.has_answered
    assert asked.cluster_id() == "kraft"
    assert asked.has_answered


class Electing:
    """An admin client of a broker that elects the leader of a new topic."""

    def __init__(self, unanswered: int, code: int) -> None:
        self.unanswered = unanswered
        self.fault = KafkaException(KafkaError(code, "who leads is not known yet"))

    def list_topics(self, *, timeout: float) -> object:
        del timeout
        return SimpleNamespace(topics={})

    def list_offsets(
        self, asked: Mapping[TopicPartition, object], *, request_timeout: float
    ) -> dict[TopicPartition, Future[object]]:
        del request_timeout
        self.unanswered -= 1
        future: Future[object] = Future()
        if self.unanswered < 0:
            future.set_result(SimpleNamespace(offset=7))
        elif self.fault.args[0].code() == KafkaError._NOENT:
            raise self.fault  # the client asks nobody
        else:
            future.set_exception(self.fault)
        return dict.fromkeys(asked, future)


@pytest.mark.parametrize("code", [KafkaError._NOENT, KafkaError.NOT_LEADER_FOR_PARTITION])
def test_a_topic_that_has_no_leader_yet_is_asked_again_for_a_moment(
    monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    monkeypatch.setattr(cluster, "_PAUSE_S", 0.0)
    place = PartitionId("g.config", 0)
    new = KafkaClusterAdmin(lambda: cast("AdminClient", Electing(2, code)))
    assert new.ends([place]) == {place: 7}
    monkeypatch.setattr(cluster, "_ELECTION_S", 0.0)
    with pytest.raises(KafkaException, match="who leads is not known yet"):
        KafkaClusterAdmin(lambda: cast("AdminClient", Electing(1_000_000, code))).ends([place])


def test_a_topic_that_is_wanted_twice_is_made_once_as_it_was_wanted_first() -> None:
    """The client crashes with a list that has a name twice."""
    wanted = [TopicSpec(name, count, 3, {}) for name, count in (("l", 1), ("o", 2), ("l", 6))]
    made = {each.topic: each.num_partitions for each in cluster.new_topics(wanted)}
    assert made == {"l": 1, "o": 2}
    assert len(cluster.new_topics(wanted)) == 2
