"""A record that waits in the state comes back as it was, and nothing else is taken for one."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringfence_state.keys import UnknownFormatError
from ringfence_state.memory_store import MemoryStore
from ringfence_state.model import Edit
from ringfence_state.pending_group import (
    HEADERS_MAX,
    GroupPosition,
    PendingRecord,
    decode,
    encode,
    group_position_of,
    parked_in,
)
from ringfence_state.strategies.registry import check

maybe = st.none() | st.binary(max_size=40)
numbers = st.integers(0, 2**63 - 1)
records = st.builds(
    PendingRecord,
    size=st.integers(1, 2**32 - 1),
    begun=numbers,
    own_offset=numbers,
    timestamp_ms=st.integers(-1, 2**63 - 1),
    own_key=maybe,
    own_value=maybe,
    headers=st.lists(st.tuples(st.text(max_size=10), maybe), max_size=4),
)
seats = st.builds(
    GroupPosition,
    st.text(min_size=1, max_size=10),
    st.binary(max_size=20),
    st.integers(1, 2**32 - 1),
)


@given(records)
def test_it_comes_back_as_it_was(record: PendingRecord) -> None:
    assert decode(encode(record)) == record


def test_as_many_headers_wait_as_can_be_counted() -> None:
    record = PendingRecord(2, 0, 0, 0, None, None, [("", None)] * HEADERS_MAX)
    assert decode(encode(record)) == record
    with pytest.raises(struct.error):
        encode(record._replace(headers=[*record.headers, ("", None)]))


@given(seats)
def test_its_key_tells_where_it_belongs(group_position: GroupPosition) -> None:
    assert group_position_of(group_position.key) == group_position


@given(st.dictionaries(seats, records, max_size=5))
def test_a_store_tells_all_that_waits(waiting: dict[GroupPosition, PendingRecord]) -> None:
    store = MemoryStore()
    store.keep(
        [Edit(group_position.key, encode(record)) for group_position, record in waiting.items()]
    )
    assert dict(parked_in(store)) == waiting


@given(records, st.data())
def test_damage_is_found_or_harmless(record: PendingRecord, data: st.DataObject) -> None:
    value = bytearray(encode(record))
    at = data.draw(st.integers(0, len(value) - 1))
    value[at] ^= data.draw(st.integers(1, 255))
    try:
        decode(bytes(value))
    except UnknownFormatError:
        return


def test_what_is_cut_off_or_goes_on_is_refused() -> None:
    value = encode(PendingRecord(2, 0, 0, 0, b"key", b"value", [("a", b"b")]))
    for other in (*(value[:length] for length in range(len(value))), value + b"\0\0\0\0"):
        with pytest.raises(UnknownFormatError):
            decode(other)


def test_a_changelog_is_checked_for_what_waits_too() -> None:
    entry = encode(PendingRecord(2, 0, 0, 0, None, None, []))
    check(GroupPosition("orders", b"t", 1).key, entry)
    with pytest.raises(UnknownFormatError):
        check(GroupPosition("orders", b"t", 1).key, entry[:-1])
    with pytest.raises(UnknownFormatError):
        check(GroupPosition("orders", b"t", 1).key[:-1], entry)
