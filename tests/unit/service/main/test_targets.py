"""What check warns of: topics that refuse what the input takes."""

from dataclasses import replace
from typing import Any

import pytest

from service.config.load import RouteSettings
from service.main.check import report_of
from tests.fakes.admin import FakeAdmin
from tests.fakes.log import FakeCluster
from tests.fakes.rights import FakeRights
from tests.support.helpers import rows
from tests.unit.service.main.test_check import ROUTE, config_of

NAMES = ("orders", "orders.unique", "orders.dlq")
COMPACTED = {"cleanup_policy": "compact"}
PAST, FUTURE = (f"message.timestamp.{name}.max.ms" for name in ("before", "after"))
DAY_MS = "86400000"


def warned(topics: dict[str, dict[str, Any]], route: RouteSettings = ROUTE) -> tuple[str, ...]:
    cluster = FakeCluster()
    for name in (*NAMES, "out.a"):
        cluster.create_topic(name, 3, **topics.get(name.replace(".", "_"), {}))
    report = report_of(config_of(route), FakeAdmin(cluster), FakeRights(cluster))
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
        {"orders_dlq": {"record_bytes_max": 1000}},
    ],
    ids=str,
)
def test_a_target_that_takes_what_its_input_takes_is_none(topics: dict[str, Any]) -> None:
    assert warned(topics) == ()


def test_an_output_that_records_name_is_compared_as_well() -> None:
    route = replace(ROUTE, output="out.{header:a}", allowed_outputs=("out.a",))
    (warning,) = warned({"out_a": COMPACTED}, route)
    assert '"out.a"' in warning


def test_dead_letters_of_the_group_that_are_compacted_are_a_problem() -> None:
    cluster = FakeCluster()
    for name in NAMES:
        cluster.create_topic(name, 3)
    cluster.create_topic("g.dead-letters", cleanup_policy="compact")
    report = report_of(config_of(ROUTE), FakeAdmin(cluster), FakeRights(cluster))
    (problem,) = report.problems
    assert "set its cleanup.policy to delete" in str(problem)
