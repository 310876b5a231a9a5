"""Windows: bounded by time and by number, refreshed by hits, as MSMQ's specification says."""

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringfence.headers import Reason
from service.addresses import AddressSettings
from state.claim import Claim
from state.edit import Origin, Source
from state.keys import UnknownFormatError
from state.run import RUN_IDS_MAX
from state.spots import Spots
from state.strategies.strategy import Memory
from state.strategies.table import STRATEGIES, check

SOURCE = Source("orders", 1)
NEW, DUPLICATE = None, Reason.DUPLICATE

Sight = tuple[int, bytes, str | None]
"""When, which id, whose."""


class Kept:
    """One address; `entries`, as a changelog holds them, survive a restart."""

    def __init__(self, **settings: Any) -> None:
        self.settings = AddressSettings(strategy="window", **settings)
        self.entries: dict[bytes, bytes] = {}
        self.offset = 0
        self.memory: Memory
        self.restart()

    def restart(self) -> None:
        self.memory = STRATEGIES["window"].load(sorted(self.entries.items()))

    def decide(self, sights: Sequence[Sight], *, committed: bool = True) -> list[Reason | None]:
        draft, verdicts = self.memory.begin(self.settings, Spots(SOURCE)), []
        for offset, (time_ms, identifier, publisher) in enumerate(sights, self.offset):
            claim = Claim(identifier=identifier, publisher=publisher)
            place = Origin(*SOURCE, offset, time_ms)
            why = draft.verdict(claim, place)
            if why is None:
                draft.remember(claim, place)
            else:
                draft.repeated(claim, place)
            verdicts.append(None if why is None else why.reason)
        self.offset += len(sights)
        change = draft.change("a")
        if committed and change is not None:
            for key, value in change.edits:
                if value is None:
                    del self.entries[key]
                else:
                    check(key, value)
                    self.entries[key] = value
            self.memory.apply(change.content)
        return verdicts


def at(times: Sequence[int], identifier: bytes = b"1") -> list[Sight]:
    return [(time, identifier, None) for time in times]


@pytest.mark.parametrize("restarts", [False, True])
def test_a_hit_refreshes_case_53(*, restarts: bool) -> None:
    held = Kept(window_ms=30)
    for time, verdict in ((0, NEW), (29, DUPLICATE), (58, DUPLICATE), (119, NEW)):
        assert held.decide(at([time])) == [verdict]
        if restarts:
            held.restart()


def test_a_hit_refreshes_nothing_where_it_shall_not() -> None:
    held = Kept(window_ms=30, refresh_on_hit=False)
    assert held.decide(at([0, 29, 30, 31])) == [NEW, DUPLICATE, DUPLICATE, NEW]


def test_the_oldest_goes_when_there_are_too_many_case_54() -> None:
    held = Kept(window_size=3)
    ids = [b"1", b"2", b"3", b"4", b"1"]
    assert held.decide([(0, each, "P") for each in ids]) == [NEW] * 5
    assert held.decide([(0, b"4", "Q"), (0, b"4", "P"), (0, b"4", None)]) == [NEW, DUPLICATE, NEW]


def test_ids_of_publishers_are_not_mixed_up() -> None:
    held = Kept()
    sights = [(0, b"bc", "a"), (0, b"c", "ab"), (0, b"abc", None), (0, b"bc", "a")]
    assert held.decide(sights) == [NEW, NEW, NEW, DUPLICATE]


def test_a_duplicate_names_the_one_accepted_however_often_it_was_refreshed() -> None:
    held = Kept()
    for time in range(5):
        held.decide(at([time]))
    draft = held.memory.begin(held.settings, Spots(SOURCE))
    why = draft.verdict(Claim(b"1"), Origin(*SOURCE, 9, 5))
    assert why is not None
    assert why.original == "orders-1@0"


def test_what_is_kept_is_bounded_though_one_id_comes_for_ever() -> None:
    held = Kept(window_size=RUN_IDS_MAX)
    for time in range(200):
        held.decide(at([time], b"%d" % (time % 3)))
    assert len(held.entries) <= 4
    assert len(held.memory) == 3


def test_a_long_batch_is_kept_in_runs_that_fit() -> None:
    held = Kept()
    many = [(0, b"%d" % number, None) for number in range(3 * RUN_IDS_MAX)]
    held.decide(many)
    assert len(held.entries) == 3
    held.restart()
    assert held.decide(many) == [DUPLICATE] * len(many)


def test_an_entry_that_this_version_did_not_write_is_refused() -> None:
    held = Kept()
    held.decide(at([0]))
    ((key, value),) = held.entries.items()
    with pytest.raises(UnknownFormatError):
        check(key, b"\x09" + value[1:])


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
    held = Kept(window_ms=20, window_size=3, refresh_on_hit=refresh)
    state: OrderedDict[bytes, int] = OrderedDict()
    time = 0
    for given_sights, committed, restart in steps:
        draft, sights = OrderedDict(state), []
        for later, identifier in given_sights:
            time += later
            sights.append((time, identifier, None))
        wanted = [judged(draft, when, name, refresh=refresh) for when, name, _ in sights]
        assert held.decide(sights, committed=committed) == wanted
        state = draft if committed else state
        if restart:
            held.restart()
