"""What check says of the two clusters of a bridge."""

from collections.abc import Mapping

from ringfence_service.bridge.check import ClusterReport, report_of
from ringfence_service.bridge.config import BridgeConfig
from ringfence_service.config.kafka_properties import KafkaSettings
from ringfence_service.config.model import ApiSettings, BridgeSettings
from ringfence_service.errors import ConfigIssue
from tests.fakes.admin import FakeAdmin
from tests.fakes.log import FakeCluster
from tests.fakes.rights import FakeRights

NOTHING: Mapping[str, str] = {}
CONFIG = BridgeConfig(
    BridgeSettings(topics=("orders",), target_topic="far.{topic}", group_id="b"),
    KafkaSettings({"sasl.username": "near"}, NOTHING, NOTHING, NOTHING),
    KafkaSettings({"sasl.username": "far"}, NOTHING, NOTHING, NOTHING),
    ApiSettings(),
)


def cluster() -> FakeCluster:
    one = FakeCluster()
    for name in ("orders", "far.orders", "b.dead-letters"):
        one.create_topic(name, 3)
    return one


def problems(one: FakeCluster) -> list[ConfigIssue]:
    side = ClusterReport(FakeAdmin(one), FakeRights(one))
    return list(report_of(CONFIG, side, side).problems)


def test_two_clusters_that_have_and_grant_everything_have_no_problem() -> None:
    assert problems(cluster()) == []


def test_each_side_is_asked_for_its_own_rights() -> None:
    one = cluster()
    one.denied = {("orders", "READ"), ("group b", "READ"), ("far.orders", "WRITE")}
    one.denied |= {("orders", "WRITE"), ("far.orders", "READ")}  # which nobody needs
    assert [problem.fix for problem in problems(one)] == [
        "grant READ on source topic orders to User:near",
        "grant READ on group b to User:near",
        "grant WRITE on target topic far.orders to User:far",
    ]


def test_topics_without_describe_permission_are_not_reported_as_missing() -> None:
    one = cluster()
    one.denied = {("orders", "DESCRIBE"), ("far.orders", "DESCRIBE")}
    told = [problem.what for problem in problems(one)]
    assert len(told) == 6
    assert all("is not granted" in what for what in told)


def test_a_dead_letter_topic_that_cannot_be_created_is_reported() -> None:
    one = cluster()
    del one.logs["b.dead-letters"]
    assert problems(one) == []
    one.denied = {("b.dead-letters", "CREATE")}
    assert [problem.fix for problem in problems(one)] == [
        "grant CREATE on topic b.dead-letters to User:far"
    ]
