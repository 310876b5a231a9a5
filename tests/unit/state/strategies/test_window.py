"""Windows: bounded by time and by number, refreshed by hits, as MSMQ's specification says."""

import hashlib
from collections import OrderedDict
from collections.abc import Sequence
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringfence_client.headers import Reason
from ringfence_state.keys import UnknownFormatError
from ringfence_state.model import Claim, Origin, PackedPositions
from ringfence_state.segment import SEGMENT_IDS_MAX
from ringfence_state.strategies.registry import STRATEGIES, check
from tests.support.helpers import some
from tests.unit.state.strategies.kept import SOURCE, Kept

NEW, DUPLICATE = None, Reason.DUPLICATE

Sight = tuple[int, bytes, str | None]
"""When, which id, whose."""


def seen(held: Kept, sights: Sequence[Sight], *, committed: bool = True) -> list[Reason | None]:
    claims = [Claim(identifier=name, publisher=publisher) for _, name, publisher in sights]
    return held.decide(claims, [time_ms for time_ms, _, _ in sights], committed=committed)


def at(times: Sequence[int], identifier: bytes = b"1") -> list[Sight]:
    return [(time, identifier, None) for time in times]


def test_a_window_looks_back_as_far_as_its_number_forces_it_to() -> None:
    held = Kept("window", window_size=3)
    for time, horizon in ((5, None), (6, None), (8, 3), (9, 3)):
        seen(held, at([time], b"%d" % time))
        extent = held.memory.begin(held.settings, PackedPositions(SOURCE)).extent()
        assert (extent.newest_ms, extent.horizon_ms) == (time, horizon)
    assert (extent.held, extent.oldest_ms) == (3, 6)


def test_ids_of_publishers_are_not_mixed_up() -> None:
    held = Kept("window")
    sights = [(0, b"bc", "a"), (0, b"c", "ab"), (0, b"abc", None), (0, b"bc", "a")]
    assert seen(held, sights) == [NEW, NEW, NEW, DUPLICATE]


def test_a_duplicate_names_the_one_accepted_however_often_it_was_refreshed() -> None:
    held = Kept("window")
    for time in range(5):
        seen(held, at([time]))
    draft = held.memory.begin(held.settings, PackedPositions(SOURCE))
    why = some(draft.verdict(Claim(b"1"), Origin(*SOURCE, 9, 5)))
    assert why.original == "orders-1@0"


@pytest.mark.parametrize(("size", "verdicts"), [(0, [NEW, NEW]), (1, [DUPLICATE, NEW])])
def test_what_a_smaller_size_has_forgotten_stays_forgotten(
    size: int, verdicts: list[Reason | None]
) -> None:
    held = Kept("window")
    seen(held, [(0, b"1", None), (0, b"2", None)])
    held.restart(window_size=size)
    seen(held, [])
    assert held.memory.begin(held.settings, PackedPositions(SOURCE)).extent().held == size
    held.restart(window_size=2)
    assert seen(held, [(0, b"2", None), (0, b"1", None)]) == verdicts


def test_what_is_older_than_the_window_is_let_go() -> None:
    held = Kept("window", window_ms=9)
    for time in (0, 9, 10):
        seen(held, at([time], b"%d" % time))
    assert len(held.memory) == 2


def test_a_long_name_of_a_publisher_is_kept_by_its_digest() -> None:
    held = Kept("window")
    publishers = ["p" * 31, "p" * 32, "p" * 255]
    seen(held, [(0, b"1", publisher) for publisher in publishers])
    long = [hashlib.sha256(each.encode()).digest() for each in publishers[1:]]
    kept = STRATEGIES["window"].held_ids(sorted(held.entries.items()), held.settings)
    assert [each.publisher for each in kept] == [b"p" * 31, *long]


def test_what_is_kept_is_bounded_though_one_id_comes_for_ever() -> None:
    held = Kept("window", window_size=SEGMENT_IDS_MAX)
    for time in range(200):
        seen(held, at([time], b"%d" % (time % 3)))
    assert len(held.entries) <= 4
    assert len(held.memory) == 3


def test_a_long_batch_is_kept_in_runs_that_fit() -> None:
    held = Kept("window")
    many = [(0, b"%d" % number, None) for number in range(3 * SEGMENT_IDS_MAX)]
    seen(held, many)
    assert len(held.entries) == 3
    held.restart()
    assert seen(held, many) == [DUPLICATE] * len(many)


def test_an_entry_that_this_version_did_not_write_is_refused() -> None:
    held = Kept("window")
    seen(held, at([0]))
    ((key, value),) = held.entries.items()
    for bad in ((key, b"\x09" + value[1:]), (key[:4], value)):
        with pytest.raises(UnknownFormatError):
            check(*bad)


class Step(NamedTuple):
    """One batch, dropped or committed, perhaps in another life."""

    sights: list[tuple[int, bytes]]
    """Milliseconds since the one before, and an id."""
    committed: bool
    restart: bool


STEPS = st.lists(
    st.builds(
        Step,
        st.lists(st.tuples(st.integers(0, 9), st.sampled_from([b"1", b"2", b"3", b"4"]))),
        st.booleans(),
        st.booleans(),
    )
)


def judged(
    state: OrderedDict[bytes, int], time: int, identifier: bytes, *, refresh: bool
) -> Reason | None:
    """The slowest rule: all sights in order, at most three ids, none older than twenty."""
    known = identifier in state and time - state[identifier] <= 20
    if not known or refresh:
        state[identifier] = time
        state.move_to_end(identifier)
    while len(state) > 3:
        state.popitem(last=False)
    return DUPLICATE if known else NEW


@pytest.mark.parametrize("refresh", [True, False])
@given(steps=STEPS)
def test_verdicts_are_those_of_the_slowest_rule(steps: list[Step], *, refresh: bool) -> None:
    held = Kept("window", window_ms=20, window_size=3, refresh_on_hit=refresh)
    state: OrderedDict[bytes, int] = OrderedDict()
    time = 0
    for given_sights, committed, restart in steps:
        draft, sights = OrderedDict(state), []
        for later, identifier in given_sights:
            time += later
            sights.append((time, identifier, None))
        wanted = [judged(draft, when, name, refresh=refresh) for when, name, _ in sights]
        assert seen(held, sights, committed=committed) == wanted
        state = draft if committed else state
        if restart:
            held.restart()
