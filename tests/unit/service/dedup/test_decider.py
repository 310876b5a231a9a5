"""Decisions: the order of the checks, what is remembered, and where each record goes."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
from confluent_kafka import Message

from ringfence_client.headers import DUPLICATE_ID, EXPIRES_AT, MARK, DeadLetter, Reason
from ringfence_service.config.model import RouteSettings
from ringfence_service.dedup.batch import Batch, Slice, read
from ringfence_service.dedup.dead_letter import RedrivenRecord
from ringfence_service.dedup.decider import apply_settings, decide, give_up, import_ids, redrive
from ringfence_service.dedup.output import TargetMissingError
from ringfence_service.dedup.plan import BY_KEY, NO_TIME_MS, Output, Plan
from ringfence_service.dedup.record import KnownId, RejectedError
from ringfence_service.dedup.route import InputPartition, InputRoute
from ringfence_service.dedup.waiting_order import GroupName
from ringfence_service.kafka.compression import Compression
from ringfence_service.kafka.model import UNREADABLE
from ringfence_state import segment as run
from ringfence_state.model import Edit, PartitionId
from tests.support.deciding import (
    CHANGELOG,
    FALLBACK,
    NOW_MS,
    SOURCE,
    World,
    cluster_of,
    named,
    reasons,
    record,
    told,
    topics,
)
from tests.support.helpers import rows

ROUTE = RouteSettings(name="orders", inputs=("orders",), scope="partition")
LATE = (EXPIRES_AT, b"%d" % (NOW_MS - 1))
BAD_TIME = (EXPIRES_AT, b"tomorrow")
SEEN = (DUPLICATE_ID, b"seen")
DISAGREES = ("_AMQ_DUPL_ID", b"other")
BIG = b"x" * 2000
HALF_A_GROUP = (("_TX_ID", b"t"), ("_TX_SIZE", b"2"), ("_TX_SEQ", b"1"))
LATE_LETTER = RedrivenRecord(
    0, *SOURCE, 0, NOW_MS - 1, b"k", b"v", ((DUPLICATE_ID, b"new"), LATE), 0
)


def strict() -> World:
    """Everything that can be wrong with a record is checked here; the id `seen` is known."""
    cluster = cluster_of(orders_dlq=3)
    cluster.create_topic("orders.unique", 3, record_bytes_max=1000)
    route = replace(ROUTE, address="{header:A}", missing_id="dead_letter")
    world = World(route, cluster=cluster)
    world.commit(record(0, ("A", b"a"), SEEN))
    return world


@rows(
    ("headers", "reason"),
    {
        "no address before anything else": ([DISAGREES, SEEN, LATE], Reason.NO_ADDRESS),
        "an address that is no text": ([("A", b"\xff"), DISAGREES, SEEN, LATE], Reason.NO_ADDRESS),
        "an empty address": ([("A", b""), DISAGREES, SEEN, LATE], Reason.NO_ADDRESS),
        "an address too long": ([("A", b"a" * 4097), SEEN], Reason.NO_ADDRESS),
        "an invalid claim before expiry": (
            [("A", b"a"), SEEN, DISAGREES, LATE],
            Reason.INVALID_CLAIM,
        ),
        "an expiry that is no number": ([("A", b"a"), SEEN, BAD_TIME], Reason.INVALID_CLAIM),
        "a missing id before expiry": ([("A", b"a"), LATE], Reason.MISSING_ID),
        "expiry before the duplicate": ([("A", b"a"), SEEN, LATE], Reason.EXPIRED),
        "the duplicate before the size": ([("A", b"a"), SEEN], Reason.DUPLICATE),
        "the size last": ([("A", b"a"), (DUPLICATE_ID, b"new")], Reason.TOO_LARGE),
    },
)
def test_the_first_check_that_fails_gives_the_reason(
    headers: list[tuple[str, bytes | None]], reason: Reason
) -> None:
    plan = strict().decide(record(1, *headers, key=None, value=BIG))
    assert reasons(plan.outputs) == [reason]
    assert (plan.tally.consumed, plan.tally.bytes_consumed) == ({"orders": 1}, {"orders": len(BIG)})
    assert not plan.tally.accepted
    assert not plan.edits


def test_an_accepted_record_goes_out_as_it_came() -> None:
    headers = [("h", b"1"), (DUPLICATE_ID, b"a"), ("h", None), ("", b"\xff")]
    plan = World().decide(record(5, *headers, key=None, value=None))
    assert plan.outputs == [("orders.unique", None, None, 1, None, None, NOW_MS - 1000, headers)]
    assert plan.next_offsets == {SOURCE: 6}
    assert plan.tally.accepted == {("orders", "orders"): 1}


def test_an_id_is_accepted_once_in_a_batch_and_over_batches() -> None:
    world = World()
    first = world.commit(named(0, b"a"), named(1, b"a"), named(2, b"b"))
    second = world.commit(named(3, b"b"), named(4, b"a"), named(5, b"c"))
    assert topics(first) == ["orders.unique", "orders.dlq", "orders.unique"]
    assert topics(second) == ["orders.dlq", "orders.dlq", "orders.unique"]
    assert first.tally.duplicates == {("orders", "orders"): 1}


@pytest.mark.parametrize("committed", [True, False], ids=["before", "in this batch"])
def test_a_duplicate_names_the_place_of_its_original(*, committed: bool) -> None:
    world = World()
    original, copy = named(7, b"a"), named(9, b"a")
    if committed:
        world.commit(original)
        letter = world.decide(copy).outputs[0]
    else:
        letter = world.decide(original, copy).outputs[1]
    assert told(letter[-1])[DeadLetter.ORIGINAL] == "orders-1@7"
    assert letter[6] == NOW_MS


def test_a_plan_that_is_dropped_leaves_nothing_behind() -> None:
    world = World()
    assert topics(world.decide(named(0, b"a"))) == ["orders.unique"]
    assert topics(world.decide(named(0, b"a"))) == ["orders.unique"]
    assert list(world.store.scan(b"")) == []


def test_the_same_batch_on_the_same_state_gives_the_same_plan() -> None:
    plans = []
    for _ in range(2):
        world = World(replace(ROUTE, address="{key}"))
        world.commit(named(0, b"a", key=b"x"))
        batch = [named(n, b"%d" % (n % 3), key=b"x%d" % (n % 2)) for n in range(1, 20)]
        plan = world.decide(*batch)
        plans.append((plan.outputs, plan.edits, plan.next_offsets, plan.times_ms, plan.tally))
    assert plans[0] == plans[1]


def test_every_record_has_exactly_one_fate() -> None:
    world = World(addresses={"orders": {"id_cache_size": 2, "on_duplicate": "drop"}})
    plan = world.decide(*[named(n, b"%d" % (n % 4 // 2)) for n in range(40)], record(40))
    fates = plan.tally.accepted.total() + plan.tally.duplicates.total()
    assert fates + plan.tally.dead_letters.total() == plan.tally.consumed.total() == 41


@pytest.mark.parametrize(
    "first",
    [
        named(0, b"a", value=BIG),
        record(0, (DUPLICATE_ID, b"a"), LATE),
        record(0, (DUPLICATE_ID, b"a"), ("_HQ_DUPL_ID", b"b")),
    ],
    ids=["too large", "expired", "invalid claim"],
)
def test_an_id_that_was_not_accepted_is_not_remembered(first: object) -> None:
    cluster = cluster_of(orders_dlq=3)
    cluster.create_topic("orders.unique", 3, record_bytes_max=1000)
    plan = World(cluster=cluster).decide(first, named(1, b"a"))  # type: ignore[arg-type]
    assert topics(plan) == ["orders.dlq", "orders.unique"]


def test_what_only_the_broker_can_measure_is_not_refused_for_its_size() -> None:
    cluster = cluster_of(orders_dlq=3)
    cluster.create_topic("orders.unique", 3, record_bytes_max=1000)
    plan = World(cluster=cluster, compression=Compression("lz4")).decide(named(0, b"a", value=BIG))
    assert topics(plan) == ["orders.unique"]


def test_a_record_that_the_broker_refused_is_dead_lettered_and_not_remembered() -> None:
    refusal = RejectedError(Reason.TOO_LARGE, "the broker refused it")
    plan = World(refused={(SOURCE, 0): refusal}).decide(named(0, b"a"), named(1, b"a"))
    assert reasons(plan.outputs) == ["too-large", None]
    undeliverable = World(refused={(SOURCE, 0): refusal}, undeliverable={(SOURCE, 0)})
    assert topics(undeliverable.decide(named(0, b"a"))) == [FALLBACK]


@rows(
    ("refused", "reason"),
    {
        "at once": ({}, Reason.UNREADABLE_HEADERS),
        "after its checks failed": (
            {(SOURCE, 0): RejectedError(Reason.FAILED_CHECK, "its checks failed")},
            Reason.FAILED_CHECK,
        ),
    },
)
def test_a_record_whose_headers_cannot_be_read_is_dead_lettered_without_them(
    refused: dict[tuple[PartitionId, int], RejectedError],
    reason: Reason,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        "ringfence_service.dedup.batch.read_headers", lambda some: [UNREADABLE for _ in some]
    )
    (output,) = World(refused=refused).decide(record(0, SEEN)).outputs
    assert output[0] == "orders.dlq"
    assert told(output[-1])[DeadLetter.REASON] == reason
    assert {name for name, _ in output[-1]} == told(output[-1]).keys()


@pytest.mark.parametrize("reason", [Reason.TOO_LARGE, Reason.EXPIRED, Reason.DUPLICATE])
def test_a_dead_letter_names_its_id_whatever_the_reason(reason: Reason) -> None:
    cluster = cluster_of(orders_dlq=3)
    cluster.create_topic("orders.unique", 3, record_bytes_max=1000)
    world = World(cluster=cluster)
    records = {
        Reason.TOO_LARGE: [named(0, b"a", value=BIG)],
        Reason.EXPIRED: [record(0, (DUPLICATE_ID, b"a"), LATE)],
        Reason.DUPLICATE: [named(0, b"a"), named(1, b"a")],
    }[reason]
    letter = told(world.decide(*records).outputs[-1][-1])
    assert (letter[DeadLetter.REASON], letter.get(DeadLetter.ID)) == (reason, "a")


@rows(
    ("out", "dead", "key", "number"),
    {
        "equal": (3, 3, b"k", 1),
        "equal without key": (3, 3, None, 1),
        "by key": (5, 3, b"k", BY_KEY),
        "without key": (5, 3, None, 1),
        "folded": (1, 3, None, 0),
    },
)
def test_the_output_partition_is_the_inputs_or_the_keys(
    out: int, dead: int, key: bytes | None, number: int
) -> None:
    world = World(cluster=cluster_of(orders_unique=out, orders_dlq=dead))
    plan = world.decide(record(0, key=key), named(1, b"plain", key=key))
    assert [output[3] for output in plan.outputs] == [number] * 2


@pytest.mark.parametrize("identifier", [b"", b"\xff\x00", b"x" * 65_536], ids=str)
def test_any_bytes_are_an_id(identifier: bytes) -> None:
    plan = World().decide(named(0, identifier), named(1, identifier), named(2, b"other"))
    assert topics(plan) == ["orders.unique", "orders.dlq", "orders.unique"]


@pytest.mark.parametrize(
    ("missing_id", "topic", "stamp"),
    [
        ("pass", "orders.unique", []),
        ("stamp", "orders.unique", [(DUPLICATE_ID, b"cluster/orders/1/7")]),
        ("dead_letter", "orders.dlq", []),
    ],
)
def test_a_record_without_an_id_is_passed_stamped_or_refused(
    missing_id: str, topic: str, stamp: list[tuple[str, bytes]]
) -> None:
    world = World(replace(ROUTE, missing_id=missing_id))  # type: ignore[arg-type]
    plan = world.decide(record(7, ("h", b"1"), (DUPLICATE_ID, None)))
    assert topics(plan) == [topic]
    kept = [pair for pair in plan.outputs[0][-1] if not pair[0].startswith("ringfence.")]
    assert kept == [("h", b"1"), (DUPLICATE_ID, None), *stamp]
    assert not plan.edits


@pytest.mark.parametrize("offset_ms", [-1, 0, 1])
def test_a_record_expires_after_its_time_and_not_at_it(offset_ms: int) -> None:
    expiry = (EXPIRES_AT, b"%d" % (NOW_MS + offset_ms))
    plan = World().decide(record(0, (DUPLICATE_ID, b"a"), expiry))
    assert reasons(plan.outputs) == (["expired"] if offset_ms < 0 else [None])


def test_expiry_is_left_to_others_where_the_address_says_so() -> None:
    world = World(addresses={"orders": {"process_expired": False}})
    assert topics(world.decide(record(0, (DUPLICATE_ID, b"a"), LATE))) == ["orders.unique"]


def test_a_dropped_duplicate_is_counted_and_written_nowhere() -> None:
    world = World(addresses={"#": {"on_duplicate": "drop"}})
    plan = world.decide(named(0, b"a"), named(1, b"a"))
    assert topics(plan) == ["orders.unique"]
    assert plan.tally.duplicates.total() == 1
    assert plan.next_offsets == {SOURCE: 2}


def test_a_marked_duplicate_goes_out_with_the_place_of_the_one_accepted() -> None:
    world = World(addresses={"#": {"on_duplicate": "mark"}})
    plan = world.decide(named(5, b"a"), named(7, b"a"))
    assert topics(plan) == ["orders.unique"] * 2
    assert plan.outputs[1][-1] == [(DUPLICATE_ID, b"a"), (MARK, b"orders-1@5")]
    assert plan.outputs[1][6] == plan.outputs[0][6]
    assert (plan.tally.accepted.total(), plan.tally.duplicates.total()) == (1, 1)
    assert plan.tally.dead_letters.total() == 0


def test_a_marked_duplicate_is_remembered_no_longer_than_a_dropped_one() -> None:
    world = World(addresses={"#": {"on_duplicate": "mark", "id_cache_size": 2}})
    plan = world.decide(*[named(n, i) for n, i in enumerate([b"a", b"b", b"a", b"c", b"a"])])
    assert [MARK in dict(output[-1]) for output in plan.outputs] == [
        False,
        False,
        True,
        False,
        False,
    ]


def test_ids_may_come_from_any_part_of_the_record() -> None:
    world = World(replace(ROUTE, id="{key}/{sha256:value}", missing_id="dead_letter"))
    plan = world.decide(
        record(0, (DUPLICATE_ID, b"1"), key=b"a"),
        record(1, (DUPLICATE_ID, b"2"), ("_AMQ_DUPL_ID", b"3"), key=b"a"),
        record(2, (DUPLICATE_ID, b"1"), key=b"a", value=b"other"),
        record(3, (DUPLICATE_ID, b"1"), key=None),
        record(4, LATE, key=b"b"),
        record(5, key=b"k" * 65_536),
    )
    assert reasons(plan.outputs) == [
        None,
        Reason.DUPLICATE,
        None,
        Reason.MISSING_ID,
        Reason.EXPIRED,
        Reason.INVALID_CLAIM,
    ]


ORDER = b'{"id": %b, "tenant": "t-%b"}'


def json_route(**keys: Any) -> RouteSettings:
    return replace(ROUTE, id="{json:/id}", address="{json:/tenant}", **keys)


def orders(*members: tuple[bytes, bytes]) -> list[Message]:
    return [record(offset, value=ORDER % each) for offset, each in enumerate(members)]


def test_ids_and_addresses_come_from_the_json_of_the_value_which_stays_as_it_is() -> None:
    world = World(json_route())
    plan = world.decide(*orders((b"1", b"a"), (b"1", b"b"), (b'"1"', b"a"), (b"2", b"a")))
    assert reasons(plan.outputs) == [None, None, Reason.DUPLICATE, None]
    assert [output[1] for output in plan.outputs][:2] == [
        ORDER % (b"1", b"a"),
        ORDER % (b"1", b"b"),
    ]
    assert plan.tally.accepted == {("orders", "t-a"): 2, ("orders", "t-b"): 1}


@rows(
    ("missing_id", "envelope"),
    {
        "pass": ("pass", (None, None)),
        "dead letter": (
            "dead_letter",
            (
                Reason.MISSING_ID,
                "the value has nothing at {json:/id}, and the route requires an id",
            ),
        ),
    },
)
def test_a_value_without_the_member_goes_where_missing_id_says(
    missing_id: str, envelope: tuple[str | None, str | None]
) -> None:
    plan = World(json_route(missing_id=missing_id)).decide(*orders((b"null", b"a")))
    (output,) = plan.outputs
    found = told(output[-1])
    assert (found.get(DeadLetter.REASON), found.get(DeadLetter.CAUSE)) == envelope


def test_a_value_without_an_address_is_a_dead_letter_that_says_what_the_value_lacks() -> None:
    plan = World(json_route()).decide(record(0, value=b"no JSON"))
    (output,) = plan.outputs
    envelope = told(output[-1])
    assert envelope[DeadLetter.REASON] == Reason.NO_ADDRESS
    assert envelope[DeadLetter.CAUSE] == "no address: the value is not JSON from character 0 on"


def test_an_output_may_be_named_by_the_value_if_it_is_an_allowed_one() -> None:
    keys = {"output": "{json:/tenant}", "allowed_outputs": ("t-a", "t-b")}
    world = World(json_route(**keys), cluster=cluster_of(t__=1, **{"t-a": 1, "orders_dlq": 1}))
    plan = world.decide(*orders((b"1", b"a"), (b"2", b"c")))
    assert topics(plan) == ["t-a", FALLBACK]
    assert reasons(plan.outputs) == [None, Reason.NO_OUTPUT]


@pytest.mark.parametrize("off", [{"id_cache_size": 0}, {"strategy": "off"}])
def test_with_detection_off_nothing_is_lost_or_remembered(off: dict[str, object]) -> None:
    world = World(addresses={"#": off})
    plan = world.decide(named(0, b"a"), named(1, b"a"))
    assert topics(plan) == ["orders.unique"] * 2
    assert plan.tally.accepted.total() == 2
    assert not plan.edits


def test_a_resize_takes_effect_on_a_live_ring_and_the_newest_ids_stay() -> None:
    world = World()
    world.commit(*[named(n, b"%d" % n) for n in range(5)])
    world.addresses = {"orders": {"id_cache_size": 2}}
    again = world.commit(*[named(5 + n, b"%d" % n) for n in (4, 3, 0)])
    assert topics(again) == ["orders.dlq", "orders.dlq", "orders.unique"]


STEERED = replace(
    ROUTE, output="{header:TO}", dead_letter="{header:TO}.dlq", allowed_outputs=("a", "a.dlq")
)


@rows(
    ("to", "topic"),
    {
        "allowed": (b"a", "a"),
        "not allowed": (b"b", FALLBACK),
        "illegal": (b"../x", FALLBACK),
        "empty": (b"", FALLBACK),
        "absent": (None, FALLBACK),
        "no text": (b"\xff", FALLBACK),
        "too long": (b"a" * 300, FALLBACK),
    },
)
def test_a_steered_record_goes_where_it_may_or_to_the_fallback(
    to: bytes | None, topic: str
) -> None:
    cluster = cluster_of(a=3)
    cluster.create_topic("a.dlq", 3)
    plan = World(STEERED, cluster=cluster).decide(record(0, ("TO", to), (DUPLICATE_ID, b"1")))
    assert topics(plan) == [topic]
    assert reasons(plan.outputs) == [None if topic == "a" else "no-output"]
    assert bool(plan.edits) == (topic == "a")


def test_a_topic_that_a_record_names_and_that_is_absent_is_no_output() -> None:
    world = World(STEERED, cluster=cluster_of())
    plan = world.decide(record(0, ("TO", b"a"), (DUPLICATE_ID, b"1")))
    assert (topics(plan), reasons(plan.outputs)) == ([FALLBACK], ["no-output"])
    assert not plan.edits
    world.targets.forget_absences()
    with pytest.raises(TargetMissingError):
        world.decide(record(0, ("TO", b"a")))


def test_a_configured_target_that_is_absent_is_the_brokers_fault() -> None:
    with pytest.raises(TargetMissingError) as caught:
        World(cluster=cluster_of(orders_dlq=3)).decide(record(0))
    assert caught.value.topic == "orders.unique"


def test_a_target_that_nobody_asked_for_is_missing_until_the_next_refresh() -> None:
    world = World()
    world.partition.input_partition = InputPartition(
        SOURCE, InputRoute.bind(replace(ROUTE, output="new.topic"), "orders"), 3
    )
    world.cluster.create_topic("new.topic", 1)
    with pytest.raises(TargetMissingError):
        world.decide(record(0))
    world.targets.refresh()
    assert topics(world.decide(record(0))) == ["new.topic"]


def test_a_missing_fallback_topic_is_the_brokers_fault() -> None:
    world = World(undeliverable={(SOURCE, 0)})
    del world.cluster.logs[FALLBACK]
    world.targets.refresh()
    with pytest.raises(TargetMissingError) as caught:
        world.decide(record(0, LATE))
    assert caught.value.topic == FALLBACK


def test_a_dead_letter_too_large_for_its_topic_goes_to_the_fallback() -> None:
    cluster = cluster_of(orders_unique=3)
    cluster.create_topic("orders.dlq", 3, record_bytes_max=300)
    plan = World(cluster=cluster).decide(named(0, b"a"), named(1, b"a"))
    assert topics(plan) == ["orders.unique", FALLBACK]


def test_a_dead_letter_topic_for_each_address_needs_an_address() -> None:
    allowed = ("OUT.x", "DLQ.x", "OUT.y")
    route = replace(ROUTE, address="{key}", output="OUT.{address}", dead_letter="DLQ.{address}")
    cluster = cluster_of(**{name.replace(".", "_"): 1 for name in allowed})
    world = World(replace(route, allowed_outputs=allowed), cluster=cluster)
    keys = (b"x", b"x", b"y", b"y", b"z", None)
    plan = world.decide(*(named(n, b"a", key=key) for n, key in enumerate(keys)))
    assert topics(plan) == ["OUT.x", "DLQ.x", "OUT.y", FALLBACK, FALLBACK, FALLBACK]


@pytest.mark.parametrize(("key", "topic"), [(b"x", "DLQx"), (b"y", FALLBACK), (None, FALLBACK)])
def test_the_dead_letter_topic_of_an_address_gets_what_is_rejected_for_any_reason(
    key: bytes | None, topic: str
) -> None:
    route = replace(ROUTE, address="{key}", dead_letter="DLQ{address}")
    cluster = cluster_of(DLQ=1, DLQx=1, DLQy=1)
    world = World(replace(route, allowed_outputs=("DLQ", "DLQx")), cluster=cluster)
    assert topics(world.decide(record(0, LATE, key=key))) == [topic]


@rows(
    ("key", "value", "headers", "size_bytes"),
    {
        "nothing": (None, None, [], 68),
        "key": (b"k" * 20, None, [], 88),
        "value": (None, b"v" * 20, [], 88),
        "headers": (None, None, [("", None), ("h", b""), ("name", b"value")], 68 + 2 + 3 + 11),
        "all": (b"k" * 20, b"v" * 30, [("name", b"value")] * 2, 68 + 20 + 30 + 22),
    },
)
def test_a_record_as_large_as_its_topic_takes_is_accepted_and_one_byte_more_is_not(
    key: bytes | None,
    value: bytes | None,
    headers: list[tuple[str, bytes | None]],
    size_bytes: int,
) -> None:
    for room, reason in ((0, None), (-1, Reason.TOO_LARGE)):
        cluster = cluster_of(orders_dlq=3)
        cluster.create_topic("orders.unique", 3, record_bytes_max=size_bytes + room)
        plan = World(cluster=cluster).decide(record(0, *headers, key=key, value=value))
        assert reasons(plan.outputs) == [reason]


def test_a_dead_letter_as_large_as_its_topic_takes_goes_there() -> None:
    (output,) = World().decide(record(0, LATE)).outputs
    size_bytes = 68 + len(b"kv") + sum(2 + len(k) + len(v or b"") for k, v in output[-1])
    for room, topic in ((0, "orders.dlq"), (-1, FALLBACK)):
        cluster = cluster_of(orders_unique=3)
        cluster.create_topic("orders.dlq", 3, record_bytes_max=size_bytes + room)
        assert topics(World(cluster=cluster).decide(record(0, LATE))) == [topic]


@pytest.mark.parametrize(
    ("address", "expected"), [("{key}", ["x", "y"]), ("{key}{header:_DUPL_ID}", ["x|", "y|"])]
)
def test_equal_ids_on_different_addresses_are_different(address: str, expected: list[str]) -> None:
    world = World(replace(ROUTE, address=address))
    plan = world.commit(named(0, b"", key=b"x"), named(1, b"", key=b"y"))
    assert topics(plan) == ["orders.unique"] * 2
    assert world.partition.addresses == set(expected)


def by_key(size: int = 20_000) -> World:
    settings = {"#": {"addresses_max": 2, "id_cache_size": size}}
    return World(replace(ROUTE, address="{key}"), addresses=settings)


@pytest.mark.parametrize("besides", [[], [(EXPIRES_AT, b"9" * 15)]], ids=["plain", "not plain"])
def test_an_address_too_many_is_refused_and_those_that_are_there_go_on(
    besides: list[tuple[str, bytes]],
) -> None:
    world = by_key()
    ids = [(DUPLICATE_ID, b"%d" % n) for n in range(4)]
    plan = world.commit(*(record(n, ids[n], *besides, key=b"xyzx"[n : n + 1]) for n in range(4)))
    assert reasons(plan.outputs) == [None, None, "too-many-addresses", None]
    later = world.decide(named(4, b"4", key=b"y"), named(5, b"5", key=b"z"), record(6, key=b"z"))
    assert reasons(later.outputs) == [None, "too-many-addresses", None]


@pytest.mark.parametrize("at_once", [True, False])
def test_an_address_on_which_a_group_waits_takes_room_once(*, at_once: bool) -> None:
    keys = (b"x", b"y", b"z")
    x, y, z = (named(n, b"a", key=key) for n, key in enumerate(keys))
    of_x, of_y, of_z = (record(n, *HALF_A_GROUP, key=key) for n, key in enumerate(keys))
    world, waiting = by_key(), by_key()
    world.commit(of_x)
    for part in [(x, y)] if at_once else [(x,), (y,)]:
        assert reasons(world.commit(*part).outputs) == [None] * len(part)
    assert reasons(world.commit(z, of_z).outputs) == ["too-many-addresses"] * 2
    waiting.commit(of_x, of_y)
    assert reasons(waiting.commit(y, z).outputs) == [None, "too-many-addresses"]


def test_an_address_that_remembers_nothing_takes_no_room() -> None:
    plan = by_key(0).decide(*[named(n, b"a", key=b"%d" % n) for n in range(4)])
    assert reasons(plan.outputs) == [None] * 4


def test_a_record_that_was_not_accepted_takes_no_room() -> None:
    world = by_key()
    world.refused = {(SOURCE, n): RejectedError(Reason.TOO_LARGE, "refused") for n in (0, 1)}
    plan = world.decide(*[named(n, b"a", key=b"%d" % n) for n in range(4)])
    assert reasons(plan.outputs) == ["too-large", "too-large", None, None]


def test_a_record_without_an_id_takes_no_room() -> None:
    nameless = [record(n, key=b"%d" % n) for n in range(2)]
    plan = by_key().decide(*nameless, named(2, b"a", key=b"x"), named(3, b"a", key=b"y"))
    assert reasons(plan.outputs) == [None] * 4


def test_the_time_of_a_partition_follows_records_but_never_back_and_never_into_the_future() -> None:
    world = World()
    future, past = NOW_MS + 10**9, NOW_MS - 10**9
    times = [NOW_MS - 5, past, future]
    seen = []
    for n, at_ms in enumerate(times):
        world.commit(record(n, (DUPLICATE_ID, b"%d" % n), timestamp_ms=at_ms))
        seen.append(world.partition.time_ms)
    assert seen == [NOW_MS - 5, NOW_MS - 5, NOW_MS]


@pytest.mark.parametrize(
    ("times_ms", "oldest_ms", "newest_ms"),
    [((-1, 0, 1, NOW_MS), 1, NOW_MS), ((0, 1, NOW_MS), 1, NOW_MS), ((-1,), NO_TIME_MS, 0)],
)
def test_a_record_without_a_timestamp_is_sent_with_none_and_is_not_the_oldest(
    times_ms: tuple[int, ...], oldest_ms: int, newest_ms: int
) -> None:
    plan = World().decide(
        *(record(n, (DUPLICATE_ID, b"%d" % n), timestamp_ms=at) for n, at in enumerate(times_ms))
    )
    assert [output[6] for output in plan.outputs] == [max(at_ms, 0) for at_ms in times_ms]
    assert (plan.tally.oldest_ms, plan.tally.newest_ms) == (oldest_ms, newest_ms)


@pytest.mark.parametrize("settings", [{}, {"on_duplicate": "mark"}, {"strategy": "window"}])
def test_every_duplicate_tells_how_long_after_its_original_it_came(
    settings: dict[str, object],
) -> None:
    world = World(addresses={"#": settings})
    world.commit(record(0, (DUPLICATE_ID, b"a"), timestamp_ms=NOW_MS - 900))
    plan = world.decide(
        record(1, (DUPLICATE_ID, b"a"), timestamp_ms=NOW_MS - 500),
        record(2, (DUPLICATE_ID, b"b"), timestamp_ms=NOW_MS - 500),
        record(3, (DUPLICATE_ID, b"a"), timestamp_ms=NOW_MS - 200),
    )
    since_ms = 300 if settings.get("strategy") == "window" else 700
    assert plan.tally.distances_ms == [400, since_ms], "a window counts from the last sight"


def test_of_dropped_duplicates_one_tells_how_long_after_its_original_it_came() -> None:
    world = World(addresses={"#": {"on_duplicate": "drop"}})
    world.commit(record(0, (DUPLICATE_ID, b"a"), timestamp_ms=NOW_MS - 900))
    plan = world.decide(
        *(record(n, (DUPLICATE_ID, b"a"), timestamp_ms=NOW_MS - 500 + n) for n in range(1, 9))
    )
    assert plan.tally.duplicates.total() == 8
    assert plan.tally.distances_ms == [401]


def test_no_more_than_sixteen_addresses_look_for_the_original_of_what_they_dropped() -> None:
    world = World(replace(ROUTE, address="{key}"), addresses={"#": {"on_duplicate": "drop"}})
    plan = world.decide(*(named(n, b"a", key=b"%d" % (n % 20)) for n in range(40)))
    assert plan.tally.duplicates.total() == 20
    assert len(plan.tally.distances_ms) == 16


def test_what_a_transaction_reads_is_counted_over_all_its_batches() -> None:
    world, plan = World(), Plan()
    batches = [
        Batch((Slice.of(world.partition, *read([named(n, b"a")])[:2]),), NOW_MS, 100 + n)
        for n in range(3)
    ]
    for _ in decide(batches, world.rules(), plan):
        pass
    assert plan.tally.bytes_read == 303


def test_edits_go_to_the_changelog_of_the_partition() -> None:
    assert list(World().decide(named(0, b"a")).edits) == [CHANGELOG]


def test_a_record_that_has_no_headers_at_all_goes_on_as_it_came() -> None:
    bare = Message(
        topic=SOURCE.topic,
        partition=SOURCE.partition,
        offset=1,
        key=b"k",
        value=b"v",
        timestamp=(1, NOW_MS),
    )
    plan = World().decide(named(0, b"1"), bare, named(2, b"2"))
    assert plan.outputs[1] == ("orders.unique", b"v", b"k", 1, None, None, NOW_MS, [])


# Without anything being read.


@rows(
    ("fill", "given", "after", "dead"),
    {
        "given up": (give_up, [[GroupName("orders", b"t")]], [NOW_MS], ["group-incomplete"]),
        "imported": (import_ids, ["orders", [KnownId(b"new")]], [NOW_MS], []),
        "settled": (apply_settings, [["orders"]], [], []),
        "redriven": (redrive, [[LATE_LETTER], "through"], [NOW_MS, []], ["expired"]),
    },
)
def test_whatever_is_decided_of_a_ring_deletes_the_runs_that_it_has_outlived(
    fill: Callable[..., Iterator[Sequence[Output]]],
    given: list[object],
    after: list[object],
    dead: list[str],
) -> None:
    world = World(addresses={"#": {"id_cache_size": 1}})
    world.commit(named(0, b"a"))
    world.commit(named(1, b"b"), record(2, *HALF_A_GROUP))
    plan = world.unread(fill, *given, after=after)
    assert Edit(run.key("orders", 0), None) in plan.edits[CHANGELOG]
    assert plan.next_offsets == {SOURCE: 3}
    assert reasons(plan.outputs) == dead
    assert all(output[6] == NOW_MS for output in plan.outputs)


@rows(
    ("before_ms", "told_ms", "time_ms"),
    {
        "none is given": (0, [None], NOW_MS),
        "the newest": (0, [NOW_MS - 9, NOW_MS - 5, None], NOW_MS - 5),
        "one in the future": (0, [NOW_MS + 5, NOW_MS - 5], NOW_MS),
        "an older one": (NOW_MS - 3, [NOW_MS - 5], NOW_MS - 3),
    },
)
def test_the_time_of_a_partition_follows_imported_ids_too(
    before_ms: int, told_ms: list[int | None], time_ms: int
) -> None:
    world = World()
    world.partition.time_ms = before_ms
    ids = [KnownId(b"%d" % n, n, at_ms) for n, at_ms in enumerate(told_ms)]
    plan = world.unread(import_ids, "orders", ids, after=[NOW_MS])
    assert (plan.times_ms, plan.next_offsets) == ({SOURCE: time_ms}, {SOURCE: 0})
