"""Internal names, and what is known of the topics that are written."""

from collections.abc import Mapping
from typing import Any

import pytest

from ringfence_service.errors import ExitCode
from ringfence_service.kafka.model import RETENTION, TIME_LIMITS, TOMBSTONES, UNLIMITED, TopicInfo
from ringfence_service.kafka.topics import (
    ENVELOPE_BYTES,
    OutputTopics,
    by_address_problems,
    changelog_problems,
    limits_to_raise,
    neighbours,
    new_acknowledgements,
    new_by_address,
    new_changelog,
    new_config_topic,
    new_dead_letters,
    new_target,
)
from tests.fakes.admin import FakeAdmin
from tests.fakes.log import FakeCluster
from tests.support.helpers import ending, rows, some

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


# Targets that are made.

REPORTED = {
    "max.message.bytes": "1000",
    "cleanup.policy": "delete",
    "retention.ms": "604800000",
    "retention.bytes": "5000",
    "delete.retention.ms": "86400000",
    "message.timestamp.type": "CreateTime",
    BEFORE: "7",
    AFTER: "9",
    "compression.type": "producer",
    "min.compaction.lag.ms": "60000",
    "max.compaction.lag.ms": str(UNLIMITED),
}


def reported(**settings: str | None) -> TopicInfo:
    """Named as settings are, with `_` for a dot; None: the broker does not report it."""
    given = {name.replace("_", "."): value for name, value in settings.items()}
    partitions = int(given.pop("partitions", None) or 3)
    return TopicInfo.of("orders", "id", partitions, {**REPORTED, **given})


BROKERS_TIME = {"message_timestamp_type": "LogAppendTime"}
COMPACTED = {"cleanup_policy": "compact"}
MADE: Mapping[str, tuple[list[TopicInfo], dict[str, str | None]]] = {
    "like its input": (
        [reported()],
        {
            "cleanup.policy": "delete",
            "retention.ms": "604800000",
            "retention.bytes": "5000",
            "message.timestamp.type": "CreateTime",
            BEFORE: "7",
            AFTER: "9",
            "compression.type": "producer",
            "max.message.bytes": str(1000 + ENVELOPE_BYTES),
        },
    ),
    "an input whose broker sets the time": (
        [reported(**BROKERS_TIME)],
        {"message.timestamp.type": "CreateTime", BEFORE: str(UNLIMITED), AFTER: str(UNLIMITED)},
    ),
    "a compacted input": (
        [reported(**COMPACTED)],
        {
            "cleanup.policy": "compact",
            "delete.retention.ms": "86400000",
            "min.compaction.lag.ms": "60000",
            "max.compaction.lag.ms": str(UNLIMITED),
        },
    ),
    "an input that is compacted and deleted from": (
        [reported(cleanup_policy="compact,delete")],
        {"cleanup.policy": "compact,delete", "retention.ms": "604800000"},
    ),
    "an input with a codec": (
        [reported(compression_type="uncompressed")],
        {"compression.type": "uncompressed"},
    ),
    "several inputs": (
        [
            reported(retention_ms="5", max_message_bytes="900", partitions="2"),
            reported(retention_bytes="-1", compression_type="lz4", **BROKERS_TIME),
        ],
        {
            "cleanup.policy": "delete",
            "retention.ms": "604800000",
            "retention.bytes": "-1",
            "compression.type": "producer",
            "max.message.bytes": str(1000 + ENVELOPE_BYTES),
            BEFORE: str(UNLIMITED),
        },
    ),
    "several inputs with as many bytes each": (
        [reported(), reported()],
        {"retention.bytes": "10000", "retention.ms": "604800000"},
    ),
    "several compacted inputs": (
        [reported(**COMPACTED)] * 2,
        {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"},
    ),
    "one compacted input and one that is not": (
        [reported(**COMPACTED), reported()],
        {"cleanup.policy": "delete", "retention.ms": "-1"},
    ),
    "an input of which little is reported": (
        [TopicInfo.of("orders", "id", 3, {"max.message.bytes": "1000"})],
        {
            "message.timestamp.type": "CreateTime",
            "compression.type": "producer",
            "cleanup.policy": None,
            "retention.ms": None,
            BEFORE: None,
        },
    ),
}


@rows(("inputs", "settings"), MADE)
def test_an_output_that_is_made_takes_and_keeps_what_its_inputs_do(
    inputs: list[TopicInfo], settings: dict[str, str | None]
) -> None:
    spec = new_target("out", inputs, -1, is_output=True)
    assert {name: spec.settings.get(name) for name in settings} == settings
    assert spec.partitions == 3


@rows("inputs", {name: inputs for name, (inputs, _) in MADE.items()})
def test_a_topic_for_dead_letters_is_never_compacted_and_keeps_as_much(
    inputs: list[TopicInfo],
) -> None:
    spec = new_target("dlq", inputs, -1, is_output=False)
    assert spec.settings["cleanup.policy"] == "delete"
    assert spec.settings["message.timestamp.type"] == "CreateTime"
    assert spec.settings["compression.type"] == "producer"
    if any(not each.is_deleted_from for each in inputs):
        assert (spec.settings["retention.ms"], spec.settings["retention.bytes"]) == ("-1", "-1")


def test_every_internal_topic_keeps_timestamps_and_compression_as_they_were_sent() -> None:
    made = [
        new_by_address("g", 3, 1000, -1, TIME_LIMITS),
        new_acknowledgements("g", -1),
        new_config_topic("g", -1),
        new_changelog("g", "orders", 3, 1000, -1),
        new_dead_letters("g.dead-letters", -1),
    ]
    for spec in made:
        assert spec.settings["message.timestamp.type"] == "CreateTime"
        assert spec.settings["compression.type"] == "producer"


# What a broker does not report.


@rows(
    ("value", "is_known"),
    {
        "left out": (..., False),
        "hidden": (None, False),
        "no number": ("a lot", False),
        "a number": ("5", True),
    },
)
@pytest.mark.parametrize("setting", [*RETENTION, TOMBSTONES, BEFORE, "max.message.bytes"])
def test_a_number_that_is_not_reported_is_unknown_and_only_one_is_needed(
    setting: str, value: Any, *, is_known: bool
) -> None:
    settings: dict[str, str | None] = {**REPORTED, setting: value}
    if value is ...:
        del settings[setting]
    if setting == "max.message.bytes" and not is_known:
        with ending(ExitCode.BROKER, r"does not report max\.message\.bytes of topic orders"):
            TopicInfo.of("orders", "id", 3, settings)
        return
    found = TopicInfo.of("orders", "id", 3, settings)
    assert found.limit("max.message.bytes") == (5 if setting == "max.message.bytes" else 1000)
    if setting != "max.message.bytes":
        assert found.reports(setting) == is_known


def test_internal_topics_of_which_little_is_reported_have_no_problem() -> None:
    little = TopicInfo.of("log", "id", 3, {"max.message.bytes": "1000"})
    assert changelog_problems("log", little) == by_address_problems("by", little) == []
