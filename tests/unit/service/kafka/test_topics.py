"""Internal names, and what is known of the topics that are written."""

from service.kafka.topics import OutputTopics
from tests.fakes.admin import FakeAdmin
from tests.fakes.log import FakeCluster
from tests.support.helpers import some


def test_a_target_is_known_after_a_refresh_and_absent_is_an_answer() -> None:
    cluster = FakeCluster()
    cluster.create_topic("a", 3)
    targets = OutputTopics(FakeAdmin(cluster))
    assert targets.find("a") is None
    targets.refresh(["b"])
    found = some(targets.find("a"))
    assert found.partitions == 3
    assert targets.find("b") is None
    cluster.create_topic("b", 1)
    assert targets.find("b") is None
    targets.refresh()
    assert targets.find("b") is not None


def test_what_a_refresh_has_not_found_is_absent_until_that_is_forgotten() -> None:
    cluster = FakeCluster()
    targets = OutputTopics(FakeAdmin(cluster))
    assert not targets.is_absent("a"), "nobody has asked"
    targets.refresh(["a"])
    assert targets.is_absent("a")
    targets.forget_absences()
    assert not targets.is_absent("a")


def test_what_will_be_made_is_never_absent() -> None:
    targets = OutputTopics(FakeAdmin(FakeCluster()), are_made=True)
    targets.refresh(["a"])
    assert not targets.is_absent("a")


def test_the_smallest_target_bounds_a_batch() -> None:
    cluster = FakeCluster()
    cluster.create_topic("a", record_bytes_max=5000)
    cluster.create_topic("b", record_bytes_max=1 << 30)
    targets = OutputTopics(FakeAdmin(cluster))
    assert targets.batch_bytes_max == 1_000_000
    targets.refresh(["b", "absent"])
    assert targets.batch_bytes_max == 1_000_000
    targets.refresh(["a"])
    assert targets.batch_bytes_max == 5000
