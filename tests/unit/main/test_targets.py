"""What check warns of: topics that refuse what the input takes."""

from collections.abc import Collection
from dataclasses import replace
from typing import Any

import pytest

from ringfence_main.check import report_of
from ringfence_service.config.kafka_properties import KafkaSettings
from ringfence_service.config.model import Config, MissingId, RouteSettings
from ringfence_service.config.templates import expanded
from ringfence_service.errors import ExitCode
from ringfence_service.kafka.model import UNCHECKED
from tests.fakes.admin import FakeAdmin
from tests.fakes.log import KEPT, FakeCluster
from tests.fakes.rights import FakeRights
from tests.support.helpers import ending, rows
from tests.unit.main.test_check import ROUTE, config_of

NAMES = ("orders", "orders.unique", "orders.dlq")
COMPACTED = {"cleanup_policy": "compact"}
PAST, FUTURE = (f"message.timestamp.{name}.max.ms" for name in ("before", "after"))
DAY_MS = "86400000"


def warned(
    topics: dict[str, dict[str, Any]],
    route: RouteSettings = ROUTE,
    unreported: Collection[str] = (),
    config: Config | None = None,
) -> tuple[str, ...]:
    cluster = FakeCluster()
    for name in (*NAMES, "out.a"):
        settings = {"partitions": 3, **topics.get(name.replace(".", "_"), {})}
        cluster.create_topic(name, **settings)
    cluster.unreported = set(unreported)
    report = report_of(config or config_of(route), FakeAdmin(cluster), FakeRights(cluster))
    assert report.problems == ()
    return report.warnings


@rows(
    ("topics", "parts"),
    {
        "compacted": (
            {"orders_unique": COMPACTED},
            ['the output "orders.unique" has cleanup.policy compact', "missing-key"],
        ),
        "compacted dead letters": (
            {"orders_dlq": {"cleanup_policy": "compact,delete"}},
            ['"orders.dlq" has cleanup.policy compact,delete', "g.dead-letters; set it to delete"],
        ),
        "smaller": (
            {"orders_unique": {"record_bytes_max": 1000}},
            ["max.message.bytes", "and 1000 for its output", "raise it to 1048576"],
        ),
        "an earlier past": (
            {"orders_unique": {"settings": {PAST: DAY_MS}}},
            [f"{PAST} is 9223372036854775807", f"and {DAY_MS} for its output"],
        ),
        "a later future": (
            {"orders": {"settings": {FUTURE: DAY_MS}}},
            [f"{FUTURE} is {DAY_MS}", "and 3600000 for its output"],
        ),
        "smaller dead letters": (
            {"orders_dlq": {"record_bytes_max": 1000}},
            ['and 1000 for its dead-letter topic "orders.dlq"', "goes to g.dead-letters"],
        ),
        "the broker's time": (
            {"orders_unique": {"settings": {"message.timestamp.type": "LogAppendTime"}}},
            ["LogAppendTime", "timestamp of each message", "set it to CreateTime"],
        ),
        "the broker's time on both": (
            {
                name: {"settings": {"message.timestamp.type": "LogAppendTime"}}
                for name in ("orders", "orders_unique")
            },
            ['"orders.unique" has message.timestamp.type LogAppendTime'],
        ),
        "kept for a shorter time": (
            {"orders_unique": {"retention": {**KEPT, "retention.ms": "5"}}},
            ["retention.ms is 604800000", "and 5 for its output", "raise it to 604800000"],
        ),
        "kept for a shorter time than for ever": (
            {
                name: {"retention": {"retention.ms": "-1", "retention.bytes": "-1"}}
                for name in ("orders", "orders_dlq")
            },
            ["retention.ms is unlimited", "and 604800000 for its output", "raise it to -1"],
        ),
        "fewer bytes kept": (
            {"orders_unique": {"retention": {**KEPT, "retention.bytes": "5"}}},
            ["retention.bytes is unlimited", "and 5 for its output", "raise it to -1"],
        ),
        "a compacted input": (
            {"orders": COMPACTED},
            ["retention.ms is unlimited", "and 604800000 for its output"],
        ),
        "dead letters kept for a shorter time": (
            {"orders_dlq": {"retention": {**KEPT, "retention.ms": "5"}}},
            ['5 for its dead-letter topic "orders.dlq"', "redriven", "raise it to 604800000"],
        ),
        "nothing compressed": (
            {"orders_unique": {"settings": {"compression.type": "uncompressed"}}},
            ['"orders.unique" has compression.type uncompressed', "too-large", "to producer"],
        ),
        "dead letters not compressed": (
            {"orders_dlq": {"settings": {"compression.type": "uncompressed"}}},
            ['"orders.dlq" has compression.type uncompressed', "goes to g.dead-letters"],
        ),
        "fewer partitions": (
            {"orders_unique": {"partitions": 2}},
            ['"orders" has 3 partitions', '"orders.unique" 2', "give both equally many"],
        ),
        "more partitions": (
            {"orders_unique": {"partitions": 4}},
            ['"orders.unique" 4', "lose their order"],
        ),
    },
)
def test_a_target_that_is_stricter_than_its_input_is_a_warning(
    topics: dict[str, dict[str, Any]], parts: list[str]
) -> None:
    (warning,) = warned(topics)
    assert all(part in warning for part in parts)


@pytest.mark.parametrize(
    "topics",
    [
        {},
        {"orders": COMPACTED, "orders_unique": COMPACTED},
        {"orders": {"settings": {"message.timestamp.type": "LogAppendTime"}}},
        {"orders_unique": {"record_bytes_max": 2 << 20}},
        {"orders_unique": {"settings": {FUTURE: DAY_MS}}},
        {"orders_dlq": {"partitions": 1, "settings": {FUTURE: "5"}}},
        {"orders_dlq": {"settings": {"message.timestamp.type": "LogAppendTime"}}},
        {"orders_unique": {"settings": {"compression.type": "zstd"}}},
        {
            name: {"settings": {"compression.type": "uncompressed"}}
            for name in ("orders", "orders_unique", "orders_dlq")
        },
        {
            name: {"retention": {"retention.ms": "-1", "retention.bytes": "9"}}
            for name in ("orders", "orders_unique", "orders_dlq")
        },
    ],
    ids=str,
)
def test_a_target_that_takes_what_its_input_takes_is_none(topics: dict[str, Any]) -> None:
    assert warned(topics) == ()


def test_an_output_that_records_name_is_compared_as_well() -> None:
    route = replace(ROUTE, output="out.{header:a}", allowed_outputs=("out.a",))
    (warning,) = warned({"out_a": COMPACTED}, route)
    assert '"out.a"' in warning


def test_an_output_of_several_inputs_that_is_compacted_replaces_messages() -> None:
    route = replace(ROUTE, inputs=("orders", "out.a"), output="all", dead_letter="orders.dlq")
    cluster = FakeCluster()
    for name in (*NAMES, "out.a", "all"):
        policy = "delete" if name == "orders.dlq" else "compact"
        cluster.create_topic(name, 3, cleanup_policy=policy)
    report = report_of(config_of(route), FakeAdmin(cluster), FakeRights(cluster))
    (warning,) = report.warnings
    assert "messages of 2 inputs" in warning
    assert "replace each other" in warning


@pytest.mark.parametrize("setting", [name for names in UNCHECKED for name in names[:1]])
def test_a_setting_that_the_broker_does_not_report_is_named_once_with_what_is_unchecked(
    setting: str,
) -> None:
    names = next(names for names in UNCHECKED if setting in names)
    (warning,) = warned({}, unreported=names)
    assert warning.startswith(f"the broker does not report {setting}")
    assert "of 3 topics (orders, orders.dlq, orders.unique)" in warning
    assert UNCHECKED[names] in warning


def test_a_broker_of_an_earlier_version_that_has_one_limit_of_time_reports_enough() -> None:
    older = {"settings": {"message.timestamp.difference.max.ms": DAY_MS}}
    assert (
        warned(
            dict.fromkeys(("orders", "orders_unique", "orders_dlq"), older),
            unreported=(PAST, FUTURE),
        )
        == ()
    )


def test_a_broker_that_does_not_report_the_size_limit_ends_the_check_with_a_sentence() -> None:
    with ending(ExitCode.BROKER, r"does not report max\.message\.bytes of topic orders"):
        warned({}, unreported=("max.message.bytes",))


@pytest.mark.parametrize(("codec", "warns"), [("none", True), ("lz4", True), ("zstd", False)])
def test_a_codec_that_packs_less_than_publishers_may_is_a_warning(
    codec: str, *, warns: bool
) -> None:
    kafka = KafkaSettings({}, {}, {"compression.type": codec}, {})
    found = warned({}, config=replace(config_of(ROUTE), kafka=kafka))
    assert [f"is {codec}, so a message" in each for each in found] == [True] * warns


def test_dead_letters_of_the_group_that_are_compacted_are_a_problem() -> None:
    cluster = FakeCluster()
    for name in NAMES:
        cluster.create_topic(name, 3)
    cluster.create_topic("g.dead-letters", cleanup_policy="compact")
    report = report_of(config_of(ROUTE), FakeAdmin(cluster), FakeRights(cluster))
    (problem,) = report.problems
    assert "set its cleanup.policy to delete" in str(problem)


@pytest.mark.parametrize(
    ("template", "missing_id", "is_warned"),
    [
        ("{json:/id}", "pass", True),
        ("{debezium}", "pass", True),
        ("{key} {json:/id}", "pass", True),
        ("{json:/id or header:id}", "pass", False),
        ("{json:/id}", "dead_letter", False),
        ("", "pass", False),
    ],
)
def test_tombstones_that_pass_unchecked_to_a_compacted_output_are_named(
    template: str, missing_id: MissingId, *, is_warned: bool
) -> None:
    route = replace(ROUTE, id=expanded(template), missing_id=missing_id)
    topics = {"orders": COMPACTED, "orders_unique": COMPACTED}
    found = [each for each in warned(topics, route) if "without a value has no id" in each]
    assert bool(found) is is_warned
    assert not [each for each in warned({}, route) if "without a value has no id" in each]
