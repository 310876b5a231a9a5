"""A lane is a short cut and nothing else: without any, the same records have the same fates."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, Final

import pytest
from confluent_kafka import Message
from hypothesis import given, settings
from hypothesis import strategies as st

from ringfence_client.headers import DUPLICATE_ID, EXPIRES_AT, Headers, Reason
from ringfence_service.config.model import MissingId, RouteSettings
from ringfence_service.dedup.evaluator import FullPath
from ringfence_service.dedup.fast_paths import FastPaths
from ringfence_service.dedup.plan import Unchecked
from ringfence_service.dedup.record import Record, RejectedError
from tests.support.deciding import (
    NOW_MS,
    SOURCE,
    Decided,
    World,
    cluster_of,
    named,
    reasons,
    record,
)

ROUTE = RouteSettings(name="orders", inputs=("orders",), scope="partition")
ids = st.sampled_from([b"", b"1", b"2", b"3", b"4", b"5", b"x" * 65, b"y" * 70_000])
claims = st.one_of(
    st.tuples(st.just(DUPLICATE_ID), ids),
    st.tuples(st.just("_HQ_DUPL_ID"), ids),
    st.tuples(st.just(EXPIRES_AT), st.sampled_from([b"1", b"never", b"%d" % (NOW_MS + 9)])),
    st.tuples(st.sampled_from(["address", "other"]), st.sampled_from([b"a", b"b", None, b"\xff"])),
)
letters = st.sampled_from([b"a", b"b"])
usual = st.tuples(
    st.tuples(st.just("address"), letters),
    st.tuples(st.just("other"), letters),
    st.tuples(st.just(DUPLICATE_ID), ids),
)
records = st.tuples(
    st.one_of(usual, usual, st.lists(claims, max_size=4)),
    st.sampled_from([b"k", None]),
    st.sampled_from([b"v", None, b"large" * 50_000]),
    st.sampled_from(
        [
            NOW_MS - 50,
            NOW_MS - 5,
            NOW_MS,
            NOW_MS + 99,
            0,
            -1,
            NOW_MS - 9_000_000,
            NOW_MS + 9_000_000,
        ]
    ),
)
batches = st.lists(st.lists(records, min_size=1, max_size=12), min_size=1, max_size=4)


def plans(world: World, given_batches: list[list[Any]]) -> list[Decided]:
    """Batch after batch, each committed."""
    offset, found = 0, []
    for batch in given_batches:
        messages: list[Message] = []
        for headers, key, value, timestamp_ms in batch:
            messages.append(
                record(offset, *headers, key=key, value=value, timestamp_ms=timestamp_ms)
            )
            offset += 1
        found.append(world.commit(*messages))
    return found


def told(plan: Decided) -> tuple[object, ...]:
    """All that a plan does, without the objects that differ from world to world."""
    sealed = [(each.address, each.content) for each in plan.sealed]
    outputs = [(*output[:7], list(output[7])) for output in plan.outputs]
    return outputs, plan.edits, plan.next_offsets, plan.times_ms, sealed, plan.tally


def world_of(
    capacity: int,
    on_duplicate: str,
    address: str,
    output: str,
    partitions: int,
    limits_bytes: tuple[int, int],
    policies: tuple[str, str],
    refused: set[int],
    undeliverable: set[int],
    missing_id: MissingId,
) -> World:
    allowed = ("out.a", "out.b", "out.fixed", "out.k")
    route = replace(
        ROUTE, address=address, output=output, allowed_outputs=allowed, missing_id=missing_id
    )
    cluster = cluster_of()
    for name in (*allowed, "orders.unique", "orders.dlq"):
        at = name == "orders.dlq"
        cluster.create_topic(
            name,
            3 if at else partitions,
            record_bytes_max=limits_bytes[at],
            cleanup_policy=policies[at],
            settings={"message.timestamp.before.max.ms": "4000000"},
        )
    addresses = {"#": {"id_cache_size": capacity, "on_duplicate": on_duplicate}}
    why = RejectedError(Reason.TOO_LARGE, "of the broker")
    return World(
        route,
        addresses,
        cluster,
        refused={(SOURCE, offset): why for offset in refused},
        undeliverable={(SOURCE, offset) for offset in undeliverable},
    )


new_worlds: Final[st.SearchStrategy[Callable[[], World]]] = st.builds(
    partial,
    st.just(world_of),
    capacity=st.sampled_from([0, 1, 2, 3, 20]),
    on_duplicate=st.sampled_from(["dead_letter", "drop", "mark"]),
    address=st.sampled_from(["fixed", "{header:address}", "{key}", "{key}{header:other}"]),
    output=st.sampled_from(["{topic}.unique", "out.{address}", "out.{header:other}"]),
    partitions=st.sampled_from([1, 3]),
    limits_bytes=st.sampled_from([(1 << 20, 1 << 20), (300_000, 200_000), (200_000, 100_000)]),
    policies=st.sampled_from([("delete", "delete"), ("compact", "delete"), ("delete", "compact")]),
    refused=st.sets(st.integers(0, 40), max_size=10),
    undeliverable=st.sets(st.integers(0, 40), max_size=10),
    missing_id=st.sampled_from(["pass", "pass", "stamp", "dead_letter"]),
)


@settings(max_examples=300)
@given(given_batches=batches, world=new_worlds)
def test_the_fates_are_the_same_without_lanes(
    given_batches: list[list[Any]], world: Callable[[], World]
) -> None:
    with_lanes = plans(world(), given_batches)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FastPaths, "_open", lambda *_: None)
        without = plans(world(), given_batches)
    assert [told(plan) for plan in with_lanes] == [told(plan) for plan in without]


def test_what_may_not_fit_its_topic_is_measured_and_what_came_before_it_is_counted() -> None:
    cluster = cluster_of(orders_dlq=3)
    cluster.create_topic("orders.unique", 3, record_bytes_max=300_000)
    small, large = (named(0, b"a"), named(1, b"a")), named(3, b"b", value=b"." * 400_000)
    plan = World(cluster=cluster).decide_pieces([small, [named(2, b"a"), large]])
    assert reasons(plan.outputs) == [None, Reason.DUPLICATE, Reason.DUPLICATE, Reason.TOO_LARGE]
    assert plan.tally.duplicates == {("orders", "orders"): 2}
    assert plan.tally.dead_letters.total() == 3


FEW, ALL = range(0, 100, 20), 100


@pytest.fixture
def on_full_path(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The offsets of the records that the full path decides."""
    offsets, decide = list[int](), FullPath.decide

    def noted(self: FullPath, record: Record, headers: Headers, offset: int, *rest: Any) -> None:
        offsets.append(offset)
        decide(self, record, headers, offset, *rest)

    monkeypatch.setattr(FullPath, "decide", noted)
    return offsets


def with_one_in_twenty(kind: str) -> tuple[World, list[Message]]:
    """A hundred new ids, of which five records are refused, or may not fit."""
    others: dict[str, dict[str, Any]] = {
        "a large value": {"value": b"." * 1_000_000},
        "a large key": {"key": b"." * 1_000_000},
        "no key": {"key": None},
        "a time to come": {"timestamp_ms": NOW_MS + 2 * 3_600_000},
        "a time of old": {"timestamp_ms": NOW_MS - 2 * 3_600_000},
    }
    messages = [
        named(offset, b"%d" % offset, **(others.get(kind, {}) if offset in FEW else {}))
        for offset in range(ALL)
    ]
    if kind == "a large header":
        for offset in FEW:
            headers = (DUPLICATE_ID, b"%d" % offset), ("a", b"." * 1_000_000)
            messages[offset] = record(offset, *headers)
    few = {(SOURCE, offset) for offset in FEW}
    if kind == "refused":
        return World(
            refused={position: RejectedError(Reason.TOO_LARGE, "no") for position in few}
        ), messages
    if kind.startswith("un"):
        return World(**{kind: few}), messages  # type: ignore[arg-type]
    cluster = cluster_of(orders_dlq=3)
    cluster.create_topic(
        "orders.unique",
        3,
        cleanup_policy="compact" if kind == "no key" else "delete",
        settings={"message.timestamp.before.max.ms": "3600000"},
    )
    return World(cluster=cluster), messages


KINDS: Final = (
    "refused",
    "undeliverable",
    "unanswerable",
    "a large value",
    "a large key",
    "a large header",
    "no key",
    "a time to come",
    "a time of old",
)


@pytest.mark.parametrize("kind", KINDS)
def test_a_record_that_only_the_full_path_may_decide_leaves_the_others_to_the_fast_path(
    kind: str, on_full_path: list[int]
) -> None:
    world, messages = with_one_in_twenty(kind)
    plan = world.decide(*messages)
    assert on_full_path == list(FEW)
    assert len(plan.outputs) == ALL
    assert len(plan.next_offsets) == 1


def test_a_large_record_leaves_later_slices_to_the_fast_path(on_full_path: list[int]) -> None:
    large = named(0, b"a", value=b"." * 1_000_000)
    small = [named(offset, b"%d" % offset) for offset in range(1, 9)]
    plan = World().decide_pieces([[large], small])
    assert (on_full_path, len(plan.outputs)) == ([0], 9)


def without_ids(count: int = 100) -> list[Message]:
    return [record(offset, ("trace", b"%d" % offset), key=b"k") for offset in range(count)]


@pytest.mark.parametrize("detects", [True, False])
def test_a_record_without_an_id_that_passes_needs_no_full_path(
    on_full_path: list[int], *, detects: bool
) -> None:
    world = World(ROUTE, {"#": {"id_cache_size": 100 if detects else 0}})
    tally = world.commit(*without_ids()).tally
    assert on_full_path == []
    assert tally.accepted == {("orders", "orders"): 100}
    why = "orders", Unchecked.NO_ID if detects else Unchecked.OFF
    assert tally.unchecked == {why: 100}
    assert tally.unchecked_causes == ({why: f"it has no {DUPLICATE_ID}"} if detects else {})


def test_an_address_that_only_passes_records_is_not_held(on_full_path: list[int]) -> None:
    world = World(ROUTE, {"#": {"addresses_max": 1}})
    world.commit(*without_ids())
    assert world.partition.addresses == set()
    assert on_full_path == []


@pytest.mark.parametrize("missing_id", ["stamp", "dead_letter"])
def test_where_a_record_without_an_id_is_changed_or_refused_the_full_path_decides(
    missing_id: MissingId, on_full_path: list[int]
) -> None:
    World(replace(ROUTE, missing_id=missing_id)).commit(*without_ids(3))
    assert on_full_path == [0, 1, 2]


def test_a_template_that_does_not_match_needs_no_full_path_and_one_that_cannot_be_read_does(
    on_full_path: list[int],
) -> None:
    values = [b'{"a": 1}', b"{", b'{"id": 1}', b'{"b": 2}']
    messages = [record(offset, value=value) for offset, value in enumerate(values)]
    plan = World(replace(ROUTE, id="{json:/id}")).commit(*messages)
    assert on_full_path == [1]
    assert plan.tally.unchecked == {
        ("orders", Unchecked.NO_ID): 2,
        ("orders", Unchecked.UNREADABLE): 1,
    }
