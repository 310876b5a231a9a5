"""What a topic is known to refuse: it is refused before the transaction, with limit and remedy."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from ringfence_client.headers import DUPLICATE_ID, REPLY_TO, DeadLetter, Reason
from ringfence_service.config.tasks import Hop
from ringfence_service.dedup.apart import present
from ringfence_service.kafka.compression import Compression
from ringfence_service.kafka.model import UNLIMITED, Present, TopicInfo
from tests.fakes.log import FakeCluster
from tests.support.deciding import (
    FALLBACK,
    NOW_MS,
    Decided,
    World,
    cluster_of,
    named,
    reasons,
    record,
    told,
    topics,
)
from tests.support.helpers import rows
from tests.unit.service.dedup.test_evaluator import ROUTE

HOUR_MS = 3_600_000
MARGIN_MS = 10_000
COMPACTED: Mapping[str, Any] = {"cleanup_policy": "compact,delete"}
PAST: Mapping[str, Any] = {"settings": {"message.timestamp.before.max.ms": str(HOUR_MS)}}
SMALL: Mapping[str, Any] = {"record_bytes_max": 1000}
KEYLESS: Mapping[str, Any] = {"key": None}
OLD: Mapping[str, Any] = {"timestamp_ms": NOW_MS - HOUR_MS}
NEW: Mapping[str, Any] = {"timestamp_ms": NOW_MS + HOUR_MS}
LARGE: Mapping[str, Any] = {"value": b"." * 1000}
ORDERED: Mapping[str, Any] = {"#": {"strategy": "sequence"}}


def cluster_with(
    output: Mapping[str, Any] | None = None, letters: Mapping[str, Any] | None = None
) -> FakeCluster:
    cluster = cluster_of()
    cluster.create_topic("orders.unique", 3, **(output or {}))
    cluster.create_topic("orders.dlq", 3, **(letters or {}))
    return cluster


TIME = (
    "3600000 ms {0} the present; orders.unique takes 3600000; correct the publisher's clock or "
    "unit, or raise message.timestamp.{0}.max.ms of orders.unique"
)
KINDS = {
    "no key": (COMPACTED, KEYLESS, Reason.MISSING_KEY, "set cleanup.policy of orders.unique"),
    "too old": (
        PAST,
        OLD,
        Reason.INVALID_TIMESTAMP,
        TIME.format("before"),
    ),
    "too new": (
        {},
        NEW,
        Reason.INVALID_TIMESTAMP,
        TIME.format("after"),
    ),
    "too large": (
        SMALL,
        LARGE,
        Reason.TOO_LARGE,
        "orders.unique takes 1000; raise its",
    ),
}


@pytest.mark.parametrize("addresses", [{}, ORDERED], ids=["fast path", "full path"])
@rows(("output", "fault", "reason", "cause"), KINDS)
def test_what_the_output_refuses_is_dead_lettered_with_limit_and_remedy_and_not_remembered(
    output: Mapping[str, Any],
    fault: Mapping[str, Any],
    reason: Reason,
    cause: str,
    addresses: Mapping[str, Any],
) -> None:
    world = World(addresses=addresses, cluster=cluster_with(output))
    good = [named(offset, b"%d" % offset) for offset in (1, 2, 3)]
    plan = world.decide(named(0, b"a", **fault), *good)
    assert topics(plan) == ["orders.dlq", *["orders.unique"] * 3]
    letter = plan.outputs[0]
    assert reasons([letter]) == [reason]
    assert cause in told(letter[-1])[DeadLetter.CAUSE]
    assert letter[6] == NOW_MS, "the time of the decision, which every topic takes"
    again = world.decide(named(0, b"a", **fault), named(1, b"a"), *good)
    assert reasons(again.outputs[:2]) == [reason, None]


@rows(
    ("letters", "fault"),
    {"no key": (COMPACTED, KEYLESS), "too large": (SMALL, LARGE)},
)
@pytest.mark.parametrize("rejected", ["a duplicate", "another"])
def test_a_dead_letter_that_its_topic_refuses_goes_to_the_fallback(
    letters: Mapping[str, Any], fault: Mapping[str, Any], rejected: str
) -> None:
    world = World(cluster=cluster_with(letters=letters))
    headers = () if rejected == "a duplicate" else (("_EXPIRES_AT", b"1"),)
    bad = record(1, (DUPLICATE_ID, b"a"), *headers, **fault)
    plan = world.decide(named(0, b"a"), bad, named(2, b"a"))
    assert topics(plan) == ["orders.unique", FALLBACK, "orders.dlq"]


def test_a_dead_letter_of_an_old_record_goes_to_its_topic_since_it_has_a_time_of_its_own() -> None:
    plan = World(cluster=cluster_with(PAST, PAST)).decide(named(0, b"a", **OLD))
    assert topics(plan) == ["orders.dlq"]


def test_a_dead_letter_that_may_be_small_enough_once_compressed_goes_to_its_topic() -> None:
    world = World(cluster=cluster_with(SMALL, SMALL), compression=Compression("lz4"))
    plan = world.decide(named(0, b"a", **LARGE), named(1, b"a", **LARGE))
    assert topics(plan) == ["orders.unique", "orders.dlq"]


@pytest.mark.parametrize("topic", [COMPACTED, SMALL], ids=["compacted", "small"])
def test_a_reply_that_its_topic_refuses_is_left_out(topic: Mapping[str, Any]) -> None:
    cluster = cluster_with()
    cluster.create_topic("told", 3, **topic)
    world = World(replace(ROUTE, reply_topics=("told",)), cluster=cluster)
    asking = (REPLY_TO, b"told")
    keyless, large = record(0, asking), record(1, (DUPLICATE_ID, b"x" * 1000), asking)
    plan = world.decide(keyless, large, record(2, (DUPLICATE_ID, b"a"), asking))
    assert topics(plan).count("orders.unique") == 3
    assert topics(plan).count("told") == 2


# Limits of time.


def info(timestamp_type: str = "CreateTime", **limits: int) -> TopicInfo:
    settings = {f"message.timestamp.{name}.max.ms": value for name, value in limits.items()}
    return TopicInfo("id", 1, 1, "delete", {}, 1, timestamp_type, settings)


@rows(
    ("topic", "past_ms", "future_ms"),
    {
        "none known": (info(), UNLIMITED, UNLIMITED),
        "the older setting": (info(difference=HOUR_MS), HOUR_MS, HOUR_MS),
        "the newer ones": (info(before=5, after=HOUR_MS), 5, HOUR_MS),
        "the newer before the older": (
            info(before=HOUR_MS, after=UNLIMITED, difference=7),
            HOUR_MS,
            7,
        ),
        "the broker's own time": (info("LogAppendTime", before=5, after=5), UNLIMITED, UNLIMITED),
    },
)
def test_a_limit_of_time_is_the_one_in_force_less_a_margin(
    topic: TopicInfo, past_ms: int, future_ms: int
) -> None:
    """The margin is ten seconds, or a tenth of a limit below 100 seconds."""
    past_ms -= min(MARGIN_MS, past_ms // 10)
    future_ms -= min(MARGIN_MS, future_ms // 10)
    now = Present.at(NOW_MS)
    assert topic.times_ms == (past_ms, future_ms)
    for time_ms, takes in (
        (NOW_MS - past_ms, True),
        (NOW_MS - past_ms - 1, False),
        (NOW_MS + future_ms, True),
        (NOW_MS + future_ms + 1, False),
    ):
        if 0 < time_ms <= UNLIMITED:
            assert (topic.time_fault(time_ms, now) is None) == takes
    assert topic.time_fault(0, now) is None, "the producer sends the present"


def test_a_refusal_names_the_setting_that_the_broker_knows() -> None:
    now = Present.at(NOW_MS)
    assert info(difference=5).time_fault(1, now) == ("message.timestamp.difference.max.ms", 5)
    both = info(before=UNLIMITED, after=5, difference=7)
    assert both.time_fault(1, now) == ("message.timestamp.difference.max.ms", 7)
    assert both.time_fault(NOW_MS + 9, now) == ("message.timestamp.after.max.ms", 5)


@rows(
    ("ahead_ms", "latest_ms"),
    {
        "one of three": ([0, 0, 9 * HOUR_MS], 0),
        "two of three": ([0, 2 * HOUR_MS, 3 * HOUR_MS], 2 * HOUR_MS),
        "all, by a little": ([59_000] * 3, 0),
        "all, in microseconds": ([NOW_MS * 999] * 3, 24 * HOUR_MS),
    },
)
def test_our_clock_is_not_believed_where_most_records_are_ahead_of_it(
    ahead_ms: list[int], latest_ms: int
) -> None:
    times_ms = [NOW_MS + each for each in ahead_ms]
    assert present(NOW_MS, times_ms, max(times_ms)) == Present(NOW_MS, NOW_MS + latest_ms)


@pytest.mark.parametrize("addresses", [{}, ORDERED], ids=["fast path", "full path"])
@rows(
    ("ahead_ms", "reason"),
    {
        "a clock that is slow": (10 * HOUR_MS, None),
        "microseconds": (NOW_MS * 999, Reason.INVALID_TIMESTAMP),
    },
)
def test_records_are_not_refused_since_our_clock_is_slow(
    ahead_ms: int, reason: Reason | None, addresses: Mapping[str, Any]
) -> None:
    later = [named(n, b"%d" % n, timestamp_ms=NOW_MS + ahead_ms + n) for n in range(3)]  # type: ignore[arg-type]
    plan = World(addresses=addresses, cluster=cluster_with()).decide(*later)
    assert reasons(plan.outputs) == [reason] * 3


# The first hop.


def carried(fault: Mapping[str, Any], **topic: Any) -> Decided:
    cluster = cluster_with()
    cluster.create_topic("g.by-address", 12, **topic)
    world = World(replace(ROUTE, scope="address"), cluster=cluster, hop=Hop.INPUTS)
    world.targets.refresh(["g.by-address"])
    return world.decide(named(0, b"a", **fault), named(1, b"b"))


@rows(
    ("topic", "fault", "reason"),
    {
        "too old": (PAST, OLD, Reason.INVALID_TIMESTAMP),
        "too large": (
            {"record_bytes_max": 100_000},
            {"value": b"." * 100_000},
            Reason.TOO_LARGE,
        ),
        "good": ({}, {}, None),
    },
)
def test_what_the_repartition_topic_refuses_is_dead_lettered_by_the_first_hop(
    topic: Mapping[str, Any], fault: Mapping[str, Any], reason: Reason | None
) -> None:
    plan = carried(fault, **topic)
    assert reasons(plan.outputs) == [reason, None]
    assert topics(plan)[1] == "g.by-address"
