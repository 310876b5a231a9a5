"""The ring in memory: what it holds, what it takes, and what its segments are."""

from collections.abc import Iterator, Sequence

import pytest

from ringfence_state.keys import UnknownFormatError
from ringfence_state.model import Claim, Origin, PackedPositions
from ringfence_state.segment import (
    SEGMENT_IDS_MAX,
    SegmentSummary,
    decode,
    encode,
    row_of,
    summary,
)
from ringfence_state.strategies.base import HeldId
from ringfence_state.strategies.registry import STRATEGIES
from ringfence_state.strategies.ring_memory import InMemoryRing
from tests.oracle.ours import SOURCE
from tests.support.helpers import some
from tests.unit.state.strategies.kept import SOURCE as KEPT_SOURCE
from tests.unit.state.strategies.kept import Kept

ANYWHERE = Origin(*KEPT_SOURCE, 99, 99)


class Lived:
    """A ring that takes over what it has written."""

    def __init__(self) -> None:
        self.ring = InMemoryRing()
        self.offset = 0

    def decide(self, *ids: bytes, capacity: int = 8) -> None:
        """Have a batch decided and committed."""
        draft = self.ring.draft(capacity, PackedPositions(SOURCE))
        for identifier in ids:
            draft.admit(identifier, self.offset, self.offset)
            self.offset += 1
        self.ring.apply(some(draft.change("a")).content)


def test_an_id_that_was_accepted_again_outlasts_the_segment_that_had_it_first() -> None:
    lived = Lived()
    for identifier in (b"a", b"b", b"a", b"a"):
        lived.decide(identifier, capacity=1)
    assert lived.ring.draft(1, PackedPositions(SOURCE)).judge(b"a") == 2
    assert lived.ring.committed(b"b") is None


def test_a_full_ring_takes_no_more_memory_however_many_ids_come() -> None:
    lived, sizes_bytes = Lived(), list[int]()
    for number in range(8):
        lived.decide(b"%d" % number, capacity=2)
        sizes_bytes.append(lived.ring.memory_bytes)
    assert sizes_bytes[0] < sizes_bytes[1]
    assert len(set(sizes_bytes[3:])) == 1


def test_what_a_dropped_draft_has_let_go_is_known_and_what_it_added_is_not() -> None:
    lived, a = Lived(), b"a" * 99
    lived.decide(a, b"b")
    dropped = lived.ring.draft(8, PackedPositions(SOURCE))
    assert dropped.admit(b"c", 8, 8) is None
    for each in (a, b"c", b"d"):
        assert dropped.renew(Claim(each)) == Claim(each)
        assert dropped.admit(each, 9, 9) is None
    assert dropped.renew(Claim()) == Claim(), "without an id there is nothing to let go"
    assert dropped.renewed == [0], "the number of the one that is committed"
    draft = lived.ring.draft(8, PackedPositions(SOURCE))
    assert [draft.judge(each) for each in (a, b"b", b"c", b"d")] == [0, 1, None, None]


@pytest.mark.parametrize(
    ("size_now", "offsets"), [(5, range(3, 8)), (100, range(3, 8)), (2, [6, 7]), (0, [])]
)
def test_what_a_changelog_says_that_a_ring_holds_is_what_the_ring_knows(
    size_now: int, offsets: Sequence[int]
) -> None:
    kept = Kept("ring", id_cache_size=5)
    for batch in (b"ab", b"cd", b"ef", b"gh"):
        kept.decide([Claim(b"%c" % letter) for letter in batch])
    assert len(kept.entries) == 4, "more than the ring holds is still stored"
    kept.restart(id_cache_size=size_now)
    wanted = [HeldId(b"%c" % b"abcdefgh"[at], Origin(*KEPT_SOURCE, at, at)) for at in offsets]
    assert held_by(kept) == wanted
    draft = kept.begun()
    known = [n for n in range(8) if draft.verdict(Claim(b"%c" % b"abcdefgh"[n]), ANYWHERE)]
    assert known == list(offsets)


def test_what_was_let_go_is_not_held() -> None:
    kept = Kept("ring", id_cache_size=5)
    draft = kept.begun()
    for offset, identifier in enumerate((b"a", b"b", b"a")):
        draft.remember(draft.renew(Claim(identifier)), Origin(*KEPT_SOURCE, offset, offset))
    kept.write(draft)
    found = [(held.identifier, held.origin.offset) for held in held_by(kept)]
    assert found == [(b"b", 1), (b"a", 2)]
    assert held_by(Kept("ring")) == []


def held_by(kept: Kept) -> list[HeldId]:
    return list(STRATEGIES["ring"].held_ids(sorted(kept.entries.items()), kept.settings))


def some_values() -> Iterator[bytes]:
    ring = InMemoryRing()
    for length in (0, 1, 2, SEGMENT_IDS_MAX):
        draft = ring.draft(length or 7, PackedPositions(SOURCE))
        for number in range(length):
            draft.admit(b"%d" % number * (1 + number % 3), 1000 * number, 5 + number)
        runs = draft.seal()
        ring.absorb(runs)
        yield from map(encode, runs)


def test_an_outline_and_a_row_say_what_the_run_says() -> None:
    for value in some_values():
        run = decode(value)
        outline = summary(value)
        assert outline._replace(ids=tuple(outline.ids)) == SegmentSummary(
            run.first, run.floor, run.capacity, run.ids
        )
        for row, identifier in enumerate(run.ids):
            assert row_of(value, run.first + row) == (identifier, run.origin(run.first + row))


def test_a_row_that_a_run_does_not_have_is_an_error() -> None:
    for value in some_values():
        for number in (-1, decode(value).end, 1 << 40):
            with pytest.raises(UnknownFormatError):
                row_of(value, number)
