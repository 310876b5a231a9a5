"""Internal names, and what is known of the topics that are written."""

import pytest

from service.route import is_legal_topic
from service.topics import NAME_LENGTH_MAX, Targets, changelog, fallback, internal
from tests.fakes.admin import FakeAdmin
from tests.fakes.log import FakeCluster


def test_internal_names_are_the_contracts() -> None:
    assert changelog("g", "orders") == "g.changelog.orders"
    assert fallback("g") == "g.dead-letters"


@pytest.mark.parametrize("length", [248, 249, 250, 400])
def test_a_name_fits_kafka_and_is_cut_only_when_it_must_be(length: int) -> None:
    kind = "x" * (length - 2)
    name = internal("g", kind)
    assert is_legal_topic(name)
    assert (name == f"g.{kind}") == (length <= NAME_LENGTH_MAX)


def test_names_that_are_cut_stay_apart_and_stay_the_same() -> None:
    one, other = "x" * 248 + "1", "x" * 248 + "2"
    assert changelog("g", one) != changelog("g", other)
    assert changelog("g", one) == changelog("g", one)
    assert changelog("g", one).startswith("g.changelog.")


def test_a_target_is_known_after_a_refresh_and_absent_is_an_answer() -> None:
    cluster = FakeCluster()
    cluster.create_topic("a", 3)
    targets = Targets(FakeAdmin(cluster))
    with pytest.raises(LookupError):
        targets.find("a")
    targets.refresh(["a", "b"])
    found = targets.find("a")
    assert found is not None
    assert found.partitions == 3
    assert targets.find("b") is None
    cluster.create_topic("b", 1)
    assert targets.find("b") is None
    targets.refresh()
    assert targets.find("b") is not None


def test_the_smallest_target_bounds_a_batch() -> None:
    cluster = FakeCluster()
    cluster.create_topic("a", record_bytes_max=5000)
    cluster.create_topic("b", record_bytes_max=1 << 30)
    targets = Targets(FakeAdmin(cluster))
    assert targets.batch_bytes_max == 1_000_000
    targets.refresh(["b", "absent"])
    assert targets.batch_bytes_max == 1_000_000
    targets.refresh(["a"])
    assert targets.batch_bytes_max == 5000
