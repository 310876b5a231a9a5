"""A spot is a place, and of the first partition it is the offset itself."""

from hypothesis import given
from hypothesis import strategies as st

from state.model import IMPORTED, Source, Spots

FIRST = Source("in", 0)
SOURCES = st.builds(Source, st.sampled_from(["in", "other"]), st.integers(0, 3))
OFFSETS = st.one_of(st.just(IMPORTED), st.integers(0, 2**62 - 1))
PLACES = st.lists(st.tuples(SOURCES, OFFSETS), max_size=20)


@given(PLACES)
def test_a_spot_tells_its_partition_and_its_offset(places: list[tuple[Source, int]]) -> None:
    spots = Spots(FIRST)
    taken = [spots.base(source) + offset for source, offset in places]
    assert [spots.place(spot) for spot in taken] == places


@given(PLACES)
def test_a_column_of_spots_is_three_columns(places: list[tuple[Source, int]]) -> None:
    spots = Spots(FIRST)
    taken = [spots.base(source) + offset for source, offset in places]
    sources, indexes, offsets = spots.columns(taken)
    found = [(sources[i], offset) for i, offset in zip(indexes, offsets, strict=True)]
    assert found == places
    assert len(set(sources)) == len(sources)


@given(PLACES)
def test_spots_are_counted_by_partition(places: list[tuple[Source, int]]) -> None:
    spots = Spots(FIRST)
    counts = spots.count([spots.base(source) + offset for source, offset in places])
    named = [source for source, _ in places]
    assert counts == {source: named.count(source) for source in named}


def test_of_the_first_partition_a_spot_is_the_offset() -> None:
    assert Spots(FIRST).base(FIRST) == 0
