"""A spot is a place, and of the first partition it is the offset itself."""

from hypothesis import given
from hypothesis import strategies as st

from ringfence_state.model import IMPORTED, PackedPositions, PartitionId

FIRST = PartitionId("in", 0)
SOURCES = st.builds(PartitionId, st.sampled_from(["in", "other"]), st.integers(0, 3))
OFFSETS = st.one_of(st.just(IMPORTED), st.integers(0, 2**62 - 1))
PLACES = st.lists(st.tuples(SOURCES, OFFSETS), max_size=20)


@given(PLACES)
def test_a_spot_tells_its_partition_and_its_offset(places: list[tuple[PartitionId, int]]) -> None:
    packed_positions = PackedPositions(FIRST)
    taken = [packed_positions.base(source) + offset for source, offset in places]
    assert [packed_positions.unpack(packed_position) for packed_position in taken] == places


@given(PLACES)
def test_a_column_of_spots_is_three_columns(places: list[tuple[PartitionId, int]]) -> None:
    packed_positions = PackedPositions(FIRST)
    taken = [packed_positions.base(source) + offset for source, offset in places]
    sources, indexes, offsets = packed_positions.columns(taken)
    found = [(sources[i], offset) for i, offset in zip(indexes, offsets, strict=True)]
    assert found == places
    assert len(set(sources)) == len(sources)


@given(PLACES)
def test_spots_are_counted_by_partition(places: list[tuple[PartitionId, int]]) -> None:
    packed_positions = PackedPositions(FIRST)
    counts = packed_positions.count(
        [packed_positions.base(source) + offset for source, offset in places]
    )
    named = [source for source, _ in places]
    assert counts == {source: named.count(source) for source in named}


def test_of_the_first_partition_a_spot_is_the_offset() -> None:
    assert PackedPositions(FIRST).base(FIRST) == 0
