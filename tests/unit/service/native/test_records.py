"""Pieces: what compiled code reads of records, and what it leaves to Python."""

from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringfence_client.headers import Headers
from ringfence_service.config.addresses import AddressSettings
from ringfence_service.dedup.batch import read
from ringfence_service.dedup.record import strip_origins
from ringfence_service.kafka.model import UNREADABLE
from ringfence_service.native.records import Records
from ringfence_service.native.ring import NativeRing, whole
from ringfence_service.native.window import whole as whole_window
from ringfence_state.cache import Cache
from ringfence_state.keys import prefix
from ringfence_state.memory_store import MemoryStore
from ringfence_state.model import Claim, Origin, PackedPositions, PartitionId
from ringfence_state.segment import Segment, encode, numbered, put
from ringfence_state.strategies.ring_admin import forget_all
from ringfence_state.strategies.ring_memory import RingStrategy
from ringfence_state.strategies.window import WINDOW
from tests.fakes.native import as_produced, piece_of
from tests.support.deciding import NOW_MS, SOURCE, record
from tests.support.native import native_rings, needs_native
from tests.unit.state.strategies.test_ring import POSITION

pytestmark = needs_native

ORIGIN = "ringfence.origin"
VALUES = st.one_of(
    st.none(),
    st.binary(max_size=40),
    st.sampled_from([b"in-0@5", b"in-1@7", b"@5", b"in-0@", b"in-0@" + b"9" * 19, b"in-0@x", b"5"]),
)
NAMES = st.sampled_from([ORIGIN, "_DUPL_ID", "a", "é", "ringfence.origin2", ""])
HEADERS = st.lists(st.tuples(NAMES, VALUES), max_size=4)


def records_of(columns: list[Headers]) -> Records:
    messages = [record(at, *headers) for at, headers in enumerate(columns)]
    return Records.of(piece_of(messages, columns, [SOURCE] * len(columns)))


@settings(max_examples=200, deadline=None)
@given(columns=st.lists(HEADERS, max_size=6))
def test_origins_are_split_off_as_in_python_once_or_twice(columns: list[Headers]) -> None:
    expected = strip_origins(columns)
    records = records_of(columns)
    for _ in range(2):
        runs = list(records.by_input())
        inputs = [name for name, part, _ in runs for _ in part]
        own = [offset if name else 0 for name, _, offsets in runs for offset in offsets]
        assert (inputs, own) == (expected.input_partitions, expected.own_offsets)
        assert list(records.headers) == expected.headers


@settings(max_examples=200, deadline=None)
@given(columns=st.lists(HEADERS, min_size=1, max_size=6), limit=st.integers(1, 3_000))
def test_as_many_records_fit_as_of_messages(columns: list[Headers], limit: int) -> None:
    # The memory of a name is counted in bytes, or in characters.
    columns = [[(name.replace("é", "e"), value) for name, value in each] for each in columns]

    messages = [record(at, *headers) for at, headers in enumerate(columns)]
    records = records_of(columns)
    found = read(records, limit)
    all_memory_bytes = [read(messages[: at + 1]).memory_bytes for at in range(len(messages))]
    count = len(found.messages)
    assert found.memory_bytes == all_memory_bytes[count - 1]
    each_bytes = [read([message]).memory_bytes for message in messages[:count]]
    assert found.largest_bytes == max(each_bytes) <= read(messages, limit).largest_bytes
    assert records.part(0, count).beyond(needs_key=False, bytes_max=each_bytes[0]) == [
        row for row, memory_bytes in enumerate(each_bytes) if memory_bytes > each_bytes[0]
    ]
    # Python parses several at a time.
    assert 1 <= count <= len(read(messages, limit).messages)
    assert all(memory_bytes < limit for memory_bytes in all_memory_bytes[: count - 1])
    if count < len(messages):
        assert found.memory_bytes >= limit or count + 1 > limit


def test_records_are_grouped_by_partition_in_order() -> None:
    messages = [record(at, value=b"v%d" % at) for at in range(6)]
    sources = [PartitionId("in", at % 2) for at in range(6)]
    records = Records.of(piece_of(messages, [[]] * 6, sources))
    assert [(source, [each.offset() for each in part]) for source, part in records.by_source()] == [
        (PartitionId("in", 0), [0, 2, 4]),
        (PartitionId("in", 1), [1, 3, 5]),
    ]
    assert [each.value() for each in records] == [b"v0", b"v2", b"v4", b"v1", b"v3", b"v5"]
    assert records[-1].timestamp() == (0, NOW_MS - 1000)


def test_headers_that_are_no_text_are_unreadable() -> None:
    records = records_of([UNREADABLE, [("a", b"")]])
    assert [each is UNREADABLE for each in records.headers] == [True, False]
    assert [name for name, _, _ in records.by_input()] == [b""]
    assert records.forward(0, {None: 0}, None, "out", b"in-0", ((), 0), 12) == 0


def test_a_record_that_python_decides_is_never_sent() -> None:
    records = records_of([[("a", b"")], [("a", b"")]])
    assert records.part(0, 1).forward(0, {None: 3}, None, "out", b"in-0", ((), 0), 12) == 1
    (output,) = as_produced([(records.part(0, 1),)])
    assert output == (
        "out",
        b"v",
        b"k",
        3,
        None,
        None,
        NOW_MS - 1000,
        [("a", b""), (ORIGIN, b"in-0@0")],
    )
    with pytest.raises(ValueError, match="Python decides"):
        records.part(1, 2).send(1)
    for start, end in ((-1, 1), (0, 3), (2, 1)):
        with pytest.raises(IndexError):
            records.piece.send(1, start, end)


@pytest.mark.parametrize("whole_ids_max", [0, 100])
def test_an_id_that_was_forgotten_in_the_store_is_not_found_in_a_copy(
    whole_ids_max: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ringfence_state.cache.WHOLE_IDS_MAX", whole_ids_max)
    cache, store = Cache(1 << 30), MemoryStore()
    segment = Segment(0, 0, 9, (SOURCE,), (b"1", b"2"), [0, 0], [5, 6], [7, 7])
    store.apply([put("a", segment)], POSITION)

    def is_known(identifier: bytes) -> bool:
        memory = cache.memory(SOURCE, store, "a", RingStrategy("id_cache_size"))
        draft = cast("NativeRing", memory).draft(9, PackedPositions(SOURCE))
        lane = draft.lane(("out", 0, 0), None, drops=True)
        records = records_of([[("_DUPL_ID", identifier)]])
        rules = {None: lane}, None, (("_DUPL_ID",), 1), 0, NOW_MS, list[int](), list[object](), 0
        doubtful = records.admit(0, *rules).doubtful
        return bool(lane.take()[0]) if doubtful is None else draft.judge(doubtful) is not None

    with native_rings():
        assert is_known(b"1")
        assert is_known(b"2")
        store.apply(forget_all(store, "a", [1]), POSITION)
        cache.reread(SOURCE, "a")
        assert is_known(b"1")
        assert not is_known(b"2")


def test_the_original_of_another_partition_has_its_origin_after_it_was_seen_again() -> None:
    other = PartitionId("payments", 7)
    value = encode(Segment(0, 0, 9, (other,), (b"\0\x001",), [0], [5], [NOW_MS - 1], held=1))
    window = whole_window([(numbered(prefix(WINDOW, "a"), 0), value)])
    settings = AddressSettings(strategy="window", window_size=9)
    draft = window.begin(settings, PackedPositions(SOURCE))
    lane = draft.lane(("out", 0, 0), None, drops=True)
    rules: tuple[object, ...] = {None: lane}, None, (("_DUPL_ID",), 1), 0, NOW_MS, [], [], NOW_MS
    assert records_of([[("_DUPL_ID", b"1")]]).admit(0, *rules)[:3] == (1, NOW_MS, None)
    known = draft.verdict(Claim(b"1"), Origin(*SOURCE, 9, NOW_MS))
    assert known is not None
    assert known.origin == Origin(*other, 5, NOW_MS)
    assert draft.accepted() == {}


def test_an_id_that_was_made_new_is_left_to_python_until_it_is_added_again() -> None:
    value = encode(Segment(0, 0, 9, (SOURCE,), (b"1",), [0], [5], [6]))
    ring = whole([(b"", value)])
    records = records_of([[("_DUPL_ID", b"1")]] * 6)
    draft = ring.draft(9, PackedPositions(SOURCE))
    lane = draft.lane(("out", 0, 0), None, drops=True)
    repeated: list[object] = []
    rules: tuple[object, ...] = {None: lane}, None, (("_DUPL_ID",), 1), 0, NOW_MS, [], repeated, 0
    assert records.part(0, 1).admit(0, *rules)[:3] == (1, NOW_MS - 1000, None)
    draft.renew(Claim(b"1"))
    assert records.part(1, 2).admit(0, *rules)[:3] == (0, NOW_MS - 1000, b"1")
    assert draft.admit(b"1", 7, 8) is None
    assert records.part(2, 4).admit(0, *rules)[:3] == (2, NOW_MS - 1000, None)
    assert lane.take() == (3, 0, NOW_MS - 1000)
    assert repeated == [(0, SOURCE.topic, SOURCE.partition, 5, 6)], "the first one of the list"
    repeated.clear()
    assert records.part(4, 6).admit(0, *rules)[:3] == (2, NOW_MS - 1000, None)
    assert repeated == [(4, SOURCE.topic, SOURCE.partition, 7, 8)], "the row in the piece"
    assert lane.take()[0] == 2
    assert lane.take()[0] == 0
