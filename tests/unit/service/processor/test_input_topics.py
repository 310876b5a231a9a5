"""Inputs: what is read, and the internal topics that are made for it."""

from collections.abc import Mapping
from dataclasses import replace

import pytest
from confluent_kafka import KafkaException
from structlog.testing import capture_logs

from ringfence_service.config.tasks import Hop
from ringfence_service.errors import ExitCode
from ringfence_service.kafka.topics import ENVELOPE_BYTES, OutputTopics
from ringfence_service.processor.input_topics import InputTopics
from tests.fakes.admin import FakeAdmin
from tests.fakes.log import FakeCluster
from tests.support.helpers import ending
from tests.support.living import late
from tests.unit.main.test_check import (
    ROUTE,
    Hands,
    cluster_with,
    config_of,
    problems,
    with_changelog,
)

OWN = ("changelog.orders", "changelog.by-address", "by-address")


def test_changelog_and_fallback_are_made_as_they_have_to_be() -> None:
    cluster = cluster_with("orders")
    inputs = InputTopics(config_of(ROUTE), FakeAdmin(cluster), Hands(), Hop.INPUTS)
    assert list(inputs.topics) == ["orders"]
    made = cluster.logs["g.changelog.orders"]
    assert (len(made.partitions), made.cleanup_policy) == (3, "compact")
    letters = cluster.logs["g.dead-letters"]
    assert letters.record_bytes_max > cluster.logs["orders"].record_bytes_max
    assert set(cluster.logs) == {"orders", "g.changelog.orders", "g.config", "g.dead-letters"}


def test_outputs_are_made_only_when_asked_for_and_as_wide_as_their_input() -> None:
    cluster = cluster_with("orders")
    inputs = InputTopics(
        config_of(ROUTE, create_topics=True), FakeAdmin(cluster), Hands(), Hop.INPUTS
    )
    made = {name for name in cluster.logs if not name.startswith("g.")}
    assert made == {"orders", "orders.unique", "orders.dlq"}
    assert [len(cluster.logs[name].partitions) for name in made] == [3, 3, 3]
    assert made - {"orders"} <= inputs.targets()


def test_outputs_are_kept_for_as_long_as_their_input() -> None:
    cluster, years = cluster_with(), {"retention.ms": "-1", "retention.bytes": "1000000"}
    cluster.create_topic("orders", 3, retention=years)
    InputTopics(config_of(ROUTE, create_topics=True), FakeAdmin(cluster), Hands(), Hop.INPUTS)
    assert cluster.logs["orders.unique"].retention == years
    assert cluster.logs["orders.dlq"].retention == years


def test_what_is_there_is_left_as_it_is() -> None:
    cluster = with_changelog(4, "compact")
    before = cluster.logs["g.changelog.orders"]
    InputTopics(config_of(ROUTE), FakeAdmin(cluster), Hands(), Hop.INPUTS)
    assert cluster.logs["g.changelog.orders"] is before


def test_new_topics_are_seen_when_it_is_time_to_ask_again() -> None:
    cluster, clock = cluster_with("a"), Hands()
    route = replace(ROUTE, inputs=("^[a-c]",))
    inputs = InputTopics(config_of(route), FakeAdmin(cluster), clock, Hop.INPUTS)
    for name, read in (("b", {"a", "b"}), ("c", {"a", "b", "c"})):
        cluster.create_topic(name, 1)
        assert not inputs.refresh()
        clock.sleep(30)
        assert inputs.refresh()
        assert set(inputs.routes) == read
        assert f"g.changelog.{name}" in cluster.logs
    clock.sleep(30)
    assert not inputs.refresh()


def test_an_input_that_is_missing_is_named_and_looked_for_every_three_seconds() -> None:
    cluster, clock = cluster_with("orders"), Hands()
    config = config_of(ROUTE, replace(ROUTE, name="more", inputs=("more",)))
    assert not InputTopics(config, FakeAdmin(cluster), clock, Hop.ADDRESSES).missing
    inputs = InputTopics(config, FakeAdmin(cluster), clock, Hop.INPUTS)
    assert list(inputs.missing) == ["more"]
    cluster.create_topic("more")
    for is_found in (False, True):
        assert inputs.refresh() is is_found
        clock.sleep(3)
    assert not inputs.missing


def test_a_topic_that_is_not_described_as_soon_as_it_is_made_has_its_id_asked_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster, clock, genuine = cluster_with("orders"), Hands(), FakeAdmin.topics
    with monkeypatch.context() as early:
        early.setattr(FakeAdmin, "topics", lambda admin, _: genuine(admin, ["orders"]))
        inputs = InputTopics(config_of(ROUTE), FakeAdmin(cluster), clock, Hop.INPUTS)
    clock.sleep(30)
    assert inputs.refresh()
    assert inputs.input_topics["orders"].changelog_id == cluster.logs["g.changelog.orders"].id


def test_routes_that_contradict_the_topics_leave_everything_as_it_was() -> None:
    cluster, clock = cluster_with("orders", "more"), Hands()
    inputs = InputTopics(config_of(ROUTE), FakeAdmin(cluster), clock, Hop.INPUTS)
    cluster.create_topic("g.changelog.more", 2)
    more, clock.now_s = replace(ROUTE, name="more", inputs=("more",)), 30.0
    with ending(ExitCode.CONTRADICTION, "on_partitions_added"):
        inputs.configure(config_of(ROUTE, more))
    assert not inputs.refresh()
    clock.now_s = 60.0
    inputs.configure(config_of(ROUTE, replace(more, on_partitions_added="keep")))
    assert set(inputs.input_topics) == {"orders", "more"}
    cluster.create_topic("orders", 3)
    assert not inputs.refresh(), "the broker was asked just now"


def test_an_input_that_grew_is_a_contradiction_until_the_route_says_keep() -> None:
    with ending(ExitCode.CONTRADICTION, "on_partitions_added"):
        InputTopics(config_of(ROUTE), FakeAdmin(with_changelog(2, "compact")), Hands(), Hop.INPUTS)


def test_an_input_that_grew_grows_its_changelog_where_the_route_says_keep() -> None:
    cluster = with_changelog(2, "compact")
    keep = replace(ROUTE, on_partitions_added="keep")
    InputTopics(config_of(keep), FakeAdmin(cluster), Hands(), Hop.INPUTS)
    assert len(cluster.logs["g.changelog.orders"].partitions) == 3


def test_a_batch_is_no_larger_than_any_of_our_own_topics_takes() -> None:
    cluster = cluster_with("orders.unique", "orders.dlq", "more.unique", "more.dlq")
    for name in ("orders", "more"):
        cluster.create_topic(name, 3, record_bytes_max=50_000)
    routes = (ROUTE, replace(ROUTE, name="more", inputs=("more",), scope="address"))
    inputs = InputTopics(config_of(*routes), FakeAdmin(cluster), Hands(), Hop.INPUTS)
    targets = OutputTopics(FakeAdmin(cluster))
    targets.refresh(inputs.targets())
    smallest = min(cluster.logs[f"g.{name}"].record_bytes_max for name in OWN)
    assert targets.batch_bytes_max == smallest < 200_000


@pytest.mark.parametrize(
    ("inputs", "largest"),
    [({}, 1_048_588), ({"a": 50_000}, 50_000), ({"a": 50_000, "b": 5 << 20}, 5 << 20)],
)
def test_what_decides_by_address_takes_what_its_most_generous_input_takes(
    inputs: Mapping[str, int], largest: int
) -> None:
    cluster = FakeCluster()
    for name, record_bytes_max in inputs.items():
        cluster.create_topic(name, record_bytes_max=record_bytes_max)
    route = replace(ROUTE, inputs=("a", "b"), scope="address")
    InputTopics(config_of(route), FakeAdmin(cluster), Hands(), Hop.INPUTS)
    assert cluster.logs["g.by-address"].record_bytes_max == largest + ENVELOPE_BYTES


def test_an_input_whose_changelog_is_the_one_of_all_addresses_is_refused() -> None:
    cluster = cluster_with("by-address", "orders")
    here = replace(ROUTE, name="here", inputs=("^by.*",))
    InputTopics(config_of(here), FakeAdmin(cluster), Hands(), Hop.INPUTS)
    everywhere = replace(ROUTE, scope="address")
    with ending(ExitCode.CONTRADICTION, "by-address"):
        InputTopics(config_of(here, everywhere), FakeAdmin(cluster), Hands(), Hop.INPUTS)


def grown(*denied: tuple[str, str]) -> tuple[FakeCluster, InputTopics, Hands]:
    """Inputs of which one takes larger records since the internal topics were made."""
    cluster, clock = cluster_with("orders"), Hands()
    by_address = replace(ROUTE, scope="address")
    inputs = InputTopics(config_of(by_address), FakeAdmin(cluster), clock, Hop.INPUTS)
    cluster.denied = set(denied)
    cluster.logs["orders"] = replace(cluster.logs["orders"], record_bytes_max=5 << 20)
    clock.sleep(31)
    assert inputs.refresh()
    return cluster, inputs, clock


def test_internal_topics_take_larger_records_once_an_input_does() -> None:
    cluster, _, _ = grown()
    for name in ("g.by-address", "g.changelog.by-address"):
        assert cluster.logs[name].limit_bytes == (5 << 20) + ENVELOPE_BYTES
    assert problems(cluster, config_of(replace(ROUTE, scope="address"), create_topics=True)) == []


def test_an_answer_that_does_not_come_hides_no_topic_that_was_created_again() -> None:
    cluster, clock, lost = cluster_with("orders"), Hands(), iter([late()])
    inputs = InputTopics(config_of(ROUTE), FakeAdmin(cluster), clock, Hop.INPUTS)
    cluster.create_topic("g.changelog.orders", 3)

    def on_step(name: str) -> None:
        for error in lost if name == "raise_limits" else ():
            raise error

    cluster.on_step, clock.now_s = on_step, 30.0
    with pytest.raises(KafkaException):
        inputs.refresh()
    assert inputs.refresh()
    again = cluster.logs["g.changelog.orders"]
    assert inputs.input_topics["orders"].changelog_id == again.id
    assert again.limit_bytes == (1 << 20) + ENVELOPE_BYTES


def test_a_limit_that_may_not_be_raised_is_logged_once_and_all_goes_on() -> None:
    name = "g.by-address"
    with capture_logs() as logged:
        cluster, inputs, clock = grown((name, "ALTER_CONFIGS"))
        clock.sleep(31)
        assert not inputs.refresh()
    assert (
        cluster.logs[name].limit_bytes
        < 5 << 20
        < cluster.logs["g.changelog.by-address"].limit_bytes
    )
    (line,) = logged
    assert (line["event"], line["topic"], line["log_level"]) == (
        "limit_not_raised",
        name,
        "warning",
    )
    assert f"max.message.bytes to {(5 << 20) + ENVELOPE_BYTES}" in line["fix"]
