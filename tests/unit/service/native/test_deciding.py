"""Both paths on the same random batches: verdicts, outputs, changelog, origins, counts."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringfence_client.headers import DUPLICATE_ID, EXPIRES_AT, PUBLISHER, DeadLetter, Reason
from ringfence_service.config.tasks import Hop
from ringfence_service.dedup.dead_letter import Mode, RedrivenRecord
from ringfence_service.dedup.decider import import_ids
from ringfence_service.dedup.evaluator import Columns, Evaluator
from ringfence_service.dedup.plan import Unchecked
from ringfence_service.dedup.record import KnownId, RejectedError, origin_header
from ringfence_service.processor.apply import apply
from ringfence_state import cache
from ringfence_state.segment import Segment, put
from ringfence_state.strategies.ring_admin import forget_all
from tests.support.deciding import (
    CHANGELOG,
    NOW_MS,
    SOURCE,
    Decided,
    World,
    cluster_of,
    named,
    record,
)
from tests.support.native import native_deciding, needs_native
from tests.unit.service.dedup.test_evaluator import ROUTE, batches, new_worlds, plans, records

pytestmark = needs_native


def told(plan: Any) -> tuple[object, ...]:
    """All that a plan does, without the objects that differ from path to path."""
    sealed = [each.address for each in plan.sealed]
    outputs = [(*output[:7], list(output[7])) for output in plan.outputs]
    tally = plan.tally
    return (
        outputs,
        plan.edits,
        plan.next_offsets,
        plan.times_ms,
        sealed,
        tally,
        sorted(tally.distances_ms),
    )


@settings(max_examples=150, deadline=None)
@given(given_batches=batches, world=new_worlds)
def test_both_paths_decide_alike(
    given_batches: list[list[Any]], world: Callable[[], World]
) -> None:
    expected = plans(world(), given_batches)
    with native_deciding():
        found = plans(world(), given_batches)
    assert [told(plan) for plan in found] == [told(plan) for plan in expected]


def test_compiled_code_passes_records_without_an_id_among_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Python opens a path for each of the two kinds, and decides nothing else."""
    alone, rows = list[int](), Evaluator._rows

    def noted(self: Evaluator, columns: Columns, *rest: Any) -> None:
        alone.extend(columns.offsets)
        rows(self, columns, *rest)

    monkeypatch.setattr(Evaluator, "_rows", noted)
    messages = [
        record(offset, *((DUPLICATE_ID, b"%d" % offset),) * (offset % 2), ("trace", b"t"))
        for offset in range(100)
    ]
    with native_deciding():
        plan = World(ROUTE).decide(*messages)
    assert alone == [0, 1]
    assert plan.tally.accepted == {("orders", "orders"): 100}
    assert plan.tally.unchecked == {("orders", Unchecked.NO_ID): 50}


@pytest.mark.timeout(20)
def test_an_id_with_more_candidates_than_are_kept_is_decided(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As one that was forgotten and accepted again many times."""
    monkeypatch.setattr(cache, "WHOLE_IDS_MAX", 0)
    with native_deciding():
        world = World(ROUTE)
        segments = [
            Segment(number, 0, 20_000, (SOURCE,), (b"same",), [0], [number], [7])
            for number in range(200)
        ]
        world.store.keep([put("orders", segment) for segment in segments])
        world.commit(named(1_000, b"other"))
        world.store.keep(forget_all(world.store, "orders", range(200)))
        world.cache.reread(SOURCE, "orders")
        ids = (b"first", b"same", b"same")  # Python decides the first one of an address
        plan = world.decide(*(named(offset, each) for offset, each in enumerate(ids, 1_001)))
    assert plan.tally.accepted == {("orders", "orders"): 2}


@pytest.mark.parametrize("address", ["{topic}", "{key}", "{header:address}", "{key}{header:other}"])
@settings(max_examples=100, deadline=None)
@given(batch=st.lists(records, min_size=1, max_size=30), is_refused=st.booleans())
def test_both_paths_forward_alike(batch: list[Any], address: str, *, is_refused: bool) -> None:
    def forwarded() -> Decided:
        world = World(replace(ROUTE, address=address, scope="address"))
        if is_refused:
            world.refused[SOURCE, 1] = RejectedError(Reason.TOO_LARGE, "of the broker")
        return world.decide(
            *(
                record(offset, *headers, key=key, value=value, timestamp_ms=timestamp_ms)
                for offset, (headers, key, value, timestamp_ms) in enumerate(batch)
            )
        )

    expected = forwarded()
    with native_deciding():
        found = forwarded()
    assert told(found) == told(expected)


class Plain(NamedTuple):
    """A record with an address and an id, from one of the inputs of its address."""

    identifier: bytes
    address: bytes
    source: int
    skipped: int
    """Offsets of its input before it that hold no record."""
    key: bytes | None
    time_ms: int
    other: tuple[str, bytes] | None
    """A header with which it is not plain."""


SHOWN = [b"", b"1", b"2", b"x" * 64, b"a b~", "ü".encode()]
NOT_SHOWN = [b"hex:1", b"base64:1", b"\x1f", b"\x7f", b"\xff", b"a/b", b"y" * 65]
PLAIN = st.builds(
    Plain,
    st.sampled_from(SHOWN * 2 + NOT_SHOWN),
    st.sampled_from([b"a", b"a", b"b"]),
    st.integers(0, 2),
    st.sampled_from([0, 0, 255, 1 << 40]),
    st.sampled_from([b"k", None]),
    st.sampled_from([NOW_MS - 50, NOW_MS - 5, NOW_MS - 5_000_000_000, NOW_MS + 99]),
    st.sampled_from([None, None, None, (PUBLISHER, b"p"), (EXPIRES_AT, b"9999999999999")]),
)
IDS = st.sampled_from(SHOWN + NOT_SHOWN)
STEPS = st.lists(
    st.one_of(
        st.lists(PLAIN, min_size=1, max_size=20),
        st.lists(PLAIN, min_size=1, max_size=20),
        st.tuples(st.sampled_from(["import", "forget", "through"]), IDS),
    ),
    min_size=1,
    max_size=6,
)
Step = list[Plain] | tuple[str, bytes]


def decided(world: World, steps: Sequence[Step]) -> list[Decided]:
    """Batch after batch, each committed; ids of one address are imported or redriven in between."""
    found, offset, own_offsets = list[Decided](), 0, [70_000 * number for number in range(3)]
    for step in steps:
        if isinstance(step, tuple):
            how, identifier = step
            if how == "import" or world.hop is Hop.ADDRESSES:
                plan = world.unread(import_ids, "a", [KnownId(identifier)], after=(NOW_MS,))
            else:
                plan = redriven(world, cast("Mode", how), identifier)
        else:
            messages = []
            for each in step:
                headers = [("address", each.address), (DUPLICATE_ID, each.identifier)]
                if each.other is not None:
                    headers.append(each.other)
                own_offsets[each.source] += each.skipped + 1
                if world.hop is Hop.ADDRESSES:
                    name = b"%b-%d" % (
                        (b"orders", b"orders", b"payments")[each.source],
                        each.source,
                    )
                    headers.append(origin_header(name, own_offsets[each.source]))
                messages.append(record(offset, *headers, key=each.key, timestamp_ms=each.time_ms))
                offset += 1
            plan = world.decide(*messages)
        apply(plan, {CHANGELOG: 10}, {world.partition.source: world.partition}, world.cache, NOW_MS)
        found.append(plan)
    return found


def redriven(world: World, mode: Mode, identifier: bytes) -> Decided:
    headers = ("address", b"a"), (DUPLICATE_ID, identifier)
    letter = RedrivenRecord(0, *SOURCE, 9, NOW_MS - 7, b"k", b"v", headers, 0)
    return world.redrive(mode, letter)[1]


@pytest.mark.parametrize("hop", [Hop.INPUTS, Hop.ADDRESSES])
@pytest.mark.parametrize("on_duplicate", ["dead_letter", "drop"])
@settings(max_examples=150, deadline=None)
@given(
    steps=STEPS,
    capacity=st.sampled_from([1, 2, 3, 5, 20]),
    in_store=st.booleans(),
    window=st.none() | st.tuples(st.sampled_from([1, 44, 10**10]), st.booleans()),
)
def test_duplicates_of_plain_records_are_decided_alike(
    steps: list[Step],
    capacity: int,
    hop: Hop,
    on_duplicate: str,
    window: tuple[int, bool] | None,
    *,
    in_store: bool,
) -> None:
    keys: dict[str, object] = {"id_cache_size": capacity, "on_duplicate": on_duplicate}
    if window is not None:
        keys |= {"strategy": "window", "window_size": capacity}
        keys |= dict(zip(("window_ms", "refresh_on_hit"), window, strict=True))

    def world() -> World:
        return World(
            replace(
                ROUTE,
                inputs=("orders", "payments"),
                address="{header:address}",
                output="out",
                scope="address" if hop is Hop.ADDRESSES else "partition",
            ),
            {"#": keys},
            cluster_of(orders=3, payments=3, out=3, orders_dlq=3, payments_dlq=4),
            hop=hop,
        )

    with pytest.MonkeyPatch.context() as patch:
        if in_store:
            patch.setattr(cache, "WHOLE_IDS_MAX", 0)
        expected = decided(world(), steps)
        with native_deciding():
            found = decided(world(), steps)
    for ours, theirs in zip(found, expected, strict=True):
        if window is not None:
            for each in (ours, theirs):  # the forms forget at different times, and sample drops
                each.edits.clear()
                each.sealed.clear()
                if on_duplicate == "drop":
                    each.tally.distances_ms.clear()
        assert told(ours) == told(theirs)


def test_a_duplicate_that_goes_round_keeps_as_many_sets_of_headers_on_both_paths() -> None:
    def rounds() -> list[list[tuple[str, bytes | None]]]:
        world, found = World(replace(ROUTE, scope="partition")), list[Any]()
        world.commit(record(0, (DUPLICATE_ID, b"a")))
        headers: list[tuple[str, bytes | None]] = [(DUPLICATE_ID, b"a"), ("own", b"1")]
        for offset in range(1, 9):
            other = record(2 * offset, (DUPLICATE_ID, b"%d" % offset))  # Python decides the first
            letter = world.commit(other, record(2 * offset + 1, *headers)).outputs[-1]
            headers = list(letter[-1])
            found.append(headers)
        return found

    expected = rounds()
    with native_deciding():
        assert rounds() == expected
    counts = [sum(name == DeadLetter.REASON for name, _ in headers) for headers in expected]
    assert counts == [1, 2, 3, 4, 4, 4, 4, 4]
    offsets = [dict(headers)[DeadLetter.OFFSET] for headers in expected]
    assert offsets == [b"%d" % (2 * offset + 1) for offset in range(1, 9)]
