"""Inputs: what is read, and the internal topics that are made for it."""

from dataclasses import replace

import pytest

from service.errors import ExitCode, ExitError
from service.inputs import Inputs
from tests.fakes.admin import FakeAdmin
from tests.unit.service.test_check import ROUTE, Hands, cluster_with, config_of, with_changelog


def test_changelog_and_fallback_are_made_as_they_have_to_be() -> None:
    cluster = cluster_with("orders")
    inputs = Inputs(config_of(ROUTE), FakeAdmin(cluster), Hands())
    assert list(inputs.topics) == ["orders"]
    made = cluster.logs["g.changelog.orders"]
    assert (len(made.partitions), made.cleanup_policy) == (3, "compact")
    letters = cluster.logs["g.dead-letters"]
    assert letters.record_bytes_max > cluster.logs["orders"].record_bytes_max
    assert set(cluster.logs) == {"orders", "g.changelog.orders", "g.dead-letters"}


def test_outputs_are_made_only_when_asked_for_and_as_wide_as_their_input() -> None:
    cluster = cluster_with("orders")
    inputs = Inputs(config_of(ROUTE, create_topics=True), FakeAdmin(cluster), Hands())
    assert inputs.targets() == {"orders.unique", "orders.dlq"}
    assert [len(cluster.logs[name].partitions) for name in sorted(inputs.targets())] == [3, 3]


def test_what_is_there_is_left_as_it_is() -> None:
    cluster = with_changelog(4, "compact")
    before = cluster.logs["g.changelog.orders"]
    Inputs(config_of(ROUTE), FakeAdmin(cluster), Hands())
    assert cluster.logs["g.changelog.orders"] is before


def test_new_topics_are_seen_when_it_is_time_to_ask_again() -> None:
    cluster, clock = cluster_with("a"), Hands()
    route = replace(ROUTE, inputs=("^[ab]",))
    inputs = Inputs(config_of(route), FakeAdmin(cluster), clock)
    cluster.create_topic("b", 1)
    assert not inputs.refresh()
    clock.sleep(31)
    assert inputs.refresh()
    assert set(inputs.routes) == {"a", "b"}
    assert "g.changelog.b" in cluster.logs
    clock.sleep(31)
    assert not inputs.refresh()


def test_an_input_that_grew_is_a_contradiction_until_the_route_says_keep() -> None:
    with pytest.raises(ExitError, match="on_partitions_added") as caught:
        Inputs(config_of(ROUTE), FakeAdmin(with_changelog(2, "compact")), Hands())
    assert caught.value.exit_code is ExitCode.CONTRADICTION


def test_an_input_that_grew_grows_its_changelog_where_the_route_says_keep() -> None:
    cluster = with_changelog(2, "compact")
    keep = replace(ROUTE, on_partitions_added="keep")
    Inputs(config_of(keep), FakeAdmin(cluster), Hands())
    assert len(cluster.logs["g.changelog.orders"].partitions) == 3
