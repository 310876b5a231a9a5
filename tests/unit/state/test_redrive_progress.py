"""How far a redrive has come, as changelog and store hold it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringfence_service.dedup.partition import addresses_of
from ringfence_state.keys import UnknownFormatError
from ringfence_state.memory_store import MemoryStore
from ringfence_state.model import Edit, PartitionId
from ringfence_state.redrive_progress import (
    KIND,
    RedriveCheckpoint,
    decode,
    encode,
    mark_of,
    marks_in,
    put,
    removal,
)
from ringfence_state.strategies.registry import STRATEGIES, check

LETTERS = PartitionId("orders.dlq", 3)
MARK = RedriveCheckpoint(2**40, 1, 2, 3, 4)
WRITTEN = Edit(
    bytes.fromhex("6a0003312d78000000036f72646572732e646c71"),
    bytes.fromhex(
        "0100000000000100000100000000000000020000000000000003000000000000000400000000000000"
    ),
)
"""As it was first written: a change to it requires a new state format."""


def store_of(*edits: Edit) -> MemoryStore:
    store = MemoryStore()
    store.keep(edits)
    return store


def test_a_mark_stands_as_it_always_did() -> None:
    assert put("1-x", LETTERS, MARK) == WRITTEN
    assert mark_of(store_of(WRITTEN), "1-x", LETTERS) == MARK


def test_without_a_mark_nothing_is_done() -> None:
    assert mark_of(store_of(WRITTEN), "1-y", LETTERS) == RedriveCheckpoint(-1, 0, 0, 0, 0)
    assert mark_of(store_of(WRITTEN), "1-x", PartitionId("orders.dlq", 2)).done == -1


def test_only_the_marks_of_one_redrive_are_listed_and_removed() -> None:
    edits = [put(name, PartitionId("t", number), MARK) for name in ("a", "ab") for number in (0, 1)]
    store = store_of(*edits)
    assert [place for place, _ in marks_in(store, "a")] == [("t", 0), ("t", 1)]
    store.keep(removal(store, "a"))
    assert list(marks_in(store, "a")) == []
    assert len(list(marks_in(store, "ab"))) == 2


def test_a_mark_is_no_address() -> None:
    assert addresses_of(store_of(WRITTEN)) == set()
    assert KIND not in {strategy.kind for strategy in STRATEGIES.values()}


@given(
    st.builds(RedriveCheckpoint, *[st.integers(-1, 2**63 - 1)], *[st.integers(0, 2**64 - 1)] * 4)
)
def test_what_is_encoded_is_decoded(mark: RedriveCheckpoint) -> None:
    assert decode(encode(mark)) == mark


@pytest.mark.parametrize(
    "entry",
    [
        WRITTEN._replace(value=b""),
        WRITTEN._replace(value=(WRITTEN.value or b"")[:-1]),
        WRITTEN._replace(key=WRITTEN.key[:6]),
        WRITTEN._replace(key=b"j\x00\x03a"),
        WRITTEN._replace(value=b"\x02" + (WRITTEN.value or b"")[1:]),
    ],
)
def test_what_we_have_not_written_is_refused(entry: Edit) -> None:
    check(*WRITTEN)  # type: ignore[arg-type]  # it has a value
    with pytest.raises(UnknownFormatError):
        check(entry.key, entry.value or b"")
