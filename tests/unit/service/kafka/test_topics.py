"""Internal names, and what is known of the topics that are written."""

from service.kafka.model import TIME_LIMITS, UNLIMITED, TopicInfo
from service.kafka.topics import (
    OutputTopics,
    limits_to_raise,
    neighbours,
    new_by_address,
    new_target,
)
from tests.fakes.admin import FakeAdmin
from tests.fakes.log import FakeCluster
from tests.support.helpers import rows, some

BEFORE, AFTER, _ = TIME_LIMITS


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


ALL_TIMES = dict.fromkeys(TIME_LIMITS, UNLIMITED)


def info(**time_limits: int) -> TopicInfo:
    limits = {f"message.timestamp.{name}.max.ms": value for name, value in time_limits.items()}
    return TopicInfo("id", 3, 1000, "delete", {}, time_limits=limits)


@rows(
    ("has", "raised"),
    {
        "Kafka 3.5": (info(difference=5), {"message.timestamp.difference.max.ms": UNLIMITED}),
        "Kafka 3.9": (info(before=5, after=UNLIMITED, difference=UNLIMITED), {BEFORE: UNLIMITED}),
        "Kafka 3.9, by the older one": (
            info(before=UNLIMITED, after=UNLIMITED, difference=5),
            {"message.timestamp.difference.max.ms": UNLIMITED},
        ),
        "Kafka 4": (info(before=UNLIMITED, after=3_600_000), {AFTER: UNLIMITED}),
        "as it should be": (info(before=UNLIMITED, after=UNLIMITED), {}),
    },
)
def test_the_repartition_topic_is_made_and_becomes_without_limits_of_time(
    has: TopicInfo, raised: dict[str, int]
) -> None:
    spec = new_by_address("g", 3, 500, -1, has.time_limits)
    assert {name: int(spec.settings[name]) for name in has.time_limits} == dict.fromkeys(
        has.time_limits, UNLIMITED
    )
    assert spec.settings.keys() & ALL_TIMES.keys() == has.time_limits.keys()
    roomy = has._replace(record_bytes_max=1 << 20)
    assert limits_to_raise("g", [spec], {}, {spec.name: roomy}) == (
        {spec.name: raised} if raised else {}
    )


def test_an_output_that_is_made_takes_the_times_that_its_input_takes() -> None:
    spec = new_target("out", info(before=7, after=9), -1)
    assert (spec.settings[BEFORE], spec.settings[AFTER]) == ("7", "9")


def of_group(name: str) -> set[str]:
    return {f"{name}.config", f"{name}.dead-letters"}


def test_a_group_that_is_named_like_the_topics_of_another_is_told_in_either_order() -> None:
    for mine, other in (("a.changelog", "a"), ("a", "a.changelog"), ("a", "a.by-address")):
        (problem,) = neighbours(mine, of_group(other) | {"orders"}).problems
        assert 'all topics that begin with "a." belong to the first' in problem.what
    assert neighbours("a.b", of_group("a")).problems == ()
    assert len(neighbours("a.b", of_group("a")).warnings) == 1
    for names in (set[str](), {"a.config"}, of_group("ab"), of_group("a.b")):
        assert neighbours("a.b", names) == ((), ())
