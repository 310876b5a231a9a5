"""Indexes of ids: what they find, and what they take."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ringfence_pipeline.backfill.sorted_index import SortedIndex
from ringfence_state.id_index import HashIndex, IdIndex, MakeIndex
from ringfence_state.segment import Segment, encode, summary
from tests.oracle.ours import SOURCE
from tests.unit.state.indexes import INDEXES

IDS = st.binary(max_size=64) | st.sampled_from([b"a", b"a\0", b"b\0\0", b"", b"\0"])


@pytest.fixture(params=INDEXES, ids=lambda index: index.name)
def make_index(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> MakeIndex:
    made: MakeIndex = request.param.made(monkeypatch)
    return made


def filled(ids: int, capacity: int, index: IdIndex) -> int:
    """Add ids in batches, as a ring of this capacity does; return its floor."""
    for first in range(0, ids, 100):
        index.add(names(first, first + 100), first, max(0, first + 100 - capacity))
        index.may_hold([b"x"])
    return max(0, ids - capacity)


def names(start: int, end: int) -> list[bytes]:
    return [b"id-%d" % number for number in range(start, end)]


@pytest.mark.parametrize("expected", [1, 500, 100_000])
@pytest.mark.parametrize("kind", [HashIndex, SortedIndex])
def test_an_index_of_any_size_finds_what_is_held_and_little_else(
    kind: MakeIndex, expected: int
) -> None:
    index = kind(expected)
    floor = filled(20_000, 500, index)
    assert {*index.may_hold(names(floor, 20_000))} == {*names(floor, 20_000)}
    for number, identifier in enumerate(names(floor, 20_000), floor):
        assert number in index.numbers(identifier, floor, 20_000)
    strangers = sum(len(list(index.numbers(b"x-%d" % n, floor, 20_000))) for n in range(1_000))
    assert strangers < 50


@pytest.mark.parametrize("kind", [HashIndex, SortedIndex])
def test_an_index_says_at_once_of_what_is_held_that_it_may_be_and_of_little_else(
    kind: MakeIndex,
) -> None:
    index = kind(500)
    index.add(names(0, 500), 0x01010101, 0)  # no byte of a number is that of an empty tag
    may_hold = index.membership_test()
    assert all(map(may_hold, names(0, 500)))
    assert sum(may_hold(b"x-%d" % number) for number in range(1_000)) < 50


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.booleans(), st.lists(IDS, min_size=1, max_size=6)), max_size=8))
def test_ids_of_any_length_are_found_stored_or_new(
    make_index: MakeIndex, batches: list[tuple[bool, list[bytes]]]
) -> None:
    index, given_ids = make_index(8), list[bytes]()
    for is_stored, ids in batches:
        first, columns = len(given_ids), [0] * len(ids)
        segment = Segment(first, 0, 99, (SOURCE,), tuple(ids), columns, columns, columns)
        index.add(summary(encode(segment)).ids if is_stored else ids, first, 0)
        given_ids += ids
    may_hold, known = index.membership_test(), {*index.may_hold(list({*given_ids}))}
    for number, identifier in enumerate(given_ids):
        assert identifier in known
        assert may_hold(identifier)
        numbers = list(index.numbers(identifier, 0, len(given_ids)))
        assert number in numbers
        assert numbers == sorted(numbers, reverse=True), "newest first"
        assert number not in index.numbers(identifier, number + 1, len(given_ids))
        assert number not in index.numbers(identifier, 0, number)


def test_what_an_index_takes_is_bounded_by_what_is_held() -> None:
    small = HashIndex(500)
    filled(2_000, 500, small)
    assert small.memory_bytes > HashIndex(500).memory_bytes + 500 * 6
    for expected in (1, 500):
        index = HashIndex(expected)
        filled(50_000, 500, index)
        assert index.memory_bytes < 2 * small.memory_bytes
    index = HashIndex(1)
    filled(1_000, 1_000, index)
    index.add([b"x"], 1_000, 1_000)
    assert index.memory_bytes < small.memory_bytes / 10, "all of it was dead"
    assert HashIndex(100_000).memory_bytes > 100 * index.memory_bytes


def test_what_a_sorted_index_takes_is_bounded_by_what_is_held() -> None:
    index = SortedIndex()
    filled(500, 500, index)
    full_bytes = index.memory_bytes
    filled(50_000, 500, index)
    assert index.memory_bytes < 4 * full_bytes


def test_numbers_beyond_the_half_that_is_kept_are_returned_in_full(make_index: MakeIndex) -> None:
    index, start = make_index(10), (1 << 32) - 2
    index.add(names(0, 4), start, 0)
    assert start + 3 in index.numbers(b"id-3", start - 5, start + 4)


def test_a_number_is_found_though_its_bytes_look_like_a_tag(make_index: MakeIndex) -> None:
    index = make_index(10)
    index.add([b"a"], 256, 0)
    assert list(index.numbers(b"a", 0, 257)) == [256]
