"""Strategies that count: as the specifications say, as the slowest rule says, and over restarts."""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringfence_client.headers import Reason
from ringfence_state.keys import UnknownFormatError, address_of, prefix
from ringfence_state.model import Claim, Origin, PackedPositions, PartitionId
from ringfence_state.strategies.base import HeldNumber, PublisherPosition
from ringfence_state.strategies.registry import STRATEGIES, check
from tests.support.helpers import some
from tests.unit.state.strategies.kept import ADDRESS, SOURCE, Kept

OTHER = PartitionId("orders", 2)
NEW, DUPLICATE, OUT_OF_ORDER, INVALID = (
    None,
    Reason.DUPLICATE,
    Reason.OUT_OF_ORDER,
    Reason.INVALID_CLAIM,
)


def said(publisher: str, number: int, previous: int = 0, stream: int = 0) -> Claim:
    return Claim(publisher=publisher, number=number, previous=previous, stream=stream)


def test_a_stream_whose_beginning_is_missing_is_out_of_order() -> None:
    assert Kept("ordered").decide([said("P", 2, 1), said("P", 1, 0), said("P", 2, 1)]) == [
        OUT_OF_ORDER,
        NEW,
        NEW,
    ]


@pytest.mark.parametrize("strategy", ["sequence", "audit"])
def test_a_group_is_judged_as_if_each_of_it_were_accepted_before_the_next(strategy: str) -> None:
    held = Kept(strategy, audit_producers=2)
    held.decide([said("P", 4)])
    draft = held.memory.begin(held.settings, PackedPositions(SOURCE))
    group = [said("P", 4), said("P", 5), said("P", 5), said("Q", 1), said("Q", 1), said("P", 6)]
    verdicts = draft.verdicts(group, [Origin(*SOURCE, at, at) for at in range(6)])
    reasons = [DUPLICATE, NEW, DUPLICATE, NEW, DUPLICATE, NEW]
    assert [why and why.reason for why in verdicts] == reasons
    causes = [
        why.cause.startswith("an earlier record of its group")
        for why in verdicts
        if why is not None
    ]
    assert causes == [False, True, True]
    assert [why.original for why in verdicts if why is not None][1:] == [None, None]
    assert draft.sightings([b"P"], 0) == [[]]


@pytest.mark.parametrize("strategy", ["sequence", "ordered"])
def test_a_publisher_that_writes_a_second_partition_is_refused_and_never_judged(
    strategy: str,
) -> None:
    held = Kept(strategy)
    assert held.decide([said("P", 1)]) == [NEW]
    held.restart()
    assert held.decide([said("P", 1), said("P", 2, 1)], source=OTHER) == [INVALID] * 2
    assert held.decide([said("P", 2, 1)]) == [NEW]


@pytest.mark.parametrize("strategy", ["sequence", "ordered"])
def test_a_publisher_too_many_is_refused_and_none_forgotten(strategy: str) -> None:
    held = Kept(strategy, publishers_max=2)
    claims = [said(name, 1) for name in ("P", "Q", "R", "P")]
    assert held.decide(claims) == [NEW, NEW, INVALID, DUPLICATE]
    assert held.decide([said("R", 1)]) == [INVALID]
    assert len(held.memory) == 2
    held.restart(publishers_max=3)
    draft = held.memory.begin(held.settings, PackedPositions(SOURCE))
    group = [said("R", 1), said("S", 1)]
    verdicts = draft.verdicts(group, [Origin(*SOURCE, at, at) for at in (5, 6)])
    assert [why and why.reason for why in verdicts] == [NEW, INVALID]


@pytest.mark.parametrize("again", [1, 2], ids=["repeats", "goes on"])
@pytest.mark.parametrize("restarts", ["", "PQPR", "..P."], ids=["none", "each", "before it"])
def test_the_producer_that_was_idle_longest_is_forgotten_in_whatever_life(
    again: int, restarts: str
) -> None:
    held = Kept("audit", audit_producers=2)
    for row, claim in enumerate((said("P", 1), said("Q", 1), said("P", again), said("R", 1))):
        held.decide([claim])
        if restarts[row : row + 1].isalpha():
            held.restart()
    held.restart()
    assert held.decide([said("P", 1), said("R", 1), said("Q", 1)]) == [DUPLICATE, DUPLICATE, NEW]


def test_producers_that_a_smaller_number_has_forgotten_stay_forgotten() -> None:
    held = Kept("audit", audit_producers=2)
    held.decide([said("P", 1), said("Q", 1)])
    held.restart(audit_producers=1)
    assert held.decide([said("P", 1)], committed=False) == [NEW]
    held.decide([])
    held.restart(audit_producers=2)
    assert held.decide([said("Q", 1), said("P", 1)]) == [DUPLICATE, NEW]


def test_a_repeated_number_writes_nothing_where_no_publisher_is_forgotten() -> None:
    held = Kept("sequence")
    held.decide([said("P", 1)])
    held.entries.clear()
    assert held.decide([said("P", 1)]) == [DUPLICATE]
    assert held.entries == {}


def test_a_number_below_the_window_is_a_duplicate_or_new_every_time_as_activemq_has_it() -> None:
    far = [said("P", 100), said("P", 1), said("P", 1)]
    assert Kept("audit", audit_depth=64).decide(far) == [NEW, DUPLICATE, DUPLICATE]
    accepting = Kept("audit", audit_depth=64, below_window="accept")
    assert accepting.decide(far) == [NEW, NEW, NEW]


def test_a_far_jump_is_refused_and_wipes_nothing() -> None:
    held = Kept("audit", audit_jump_max=1000)
    claims = [said("P", 1), said("P", 1002), said("P", 1), said("P", 1001)]
    assert held.decide(claims) == [NEW, INVALID, DUPLICATE, NEW]


@pytest.mark.parametrize(
    ("below_window", "numbers", "missing", "missing_deeper"),
    [
        ("duplicate", (2, 4), [1, 3], [1, 3]),
        ("duplicate", (1, 2, 5, 8), [4, 6, 7], [4, 6, 7]),
        ("accept", (1, 2, 5, 8), [4, 6, 7], [1, 2, 3, 4, 6, 7]),
    ],
)
def test_a_producer_that_is_placed_with_what_it_left_out_is_judged_as_before(
    below_window: str, numbers: Sequence[int], missing: list[int], missing_deeper: list[int]
) -> None:
    held, placed = (Kept("audit", audit_depth=5, below_window=below_window) for _ in range(2))
    held.decide([said("P", number) for number in numbers])
    kept, draft = some(STRATEGIES["audit"].numbers), placed.begun()
    at, last = Origin(*SOURCE, 0, 0), numbers[-1]
    assert list(kept.held(held.memory, held.settings)) == [
        HeldNumber("P", PublisherPosition(last), missing)
    ]
    kept.set_position(draft, said("P", last), at, [*missing, last + 1])
    kept.set_position(draft, said("Q", last), at, [last])
    assert draft.extent().held == 2
    placed.write(draft)
    for each in (held, placed):
        each.restart(audit_depth=8)
    assert kept.standing(held.memory, "P") == PublisherPosition(last)
    assert [each.missing for each in kept.held(held.memory, held.settings)] == [missing_deeper]
    every = [said("P", number) for number in range(1, last + 3)]
    assert placed.decide(every) == held.decide(every)
    assert placed.decide([said("Q", last), said("Q", last)]) == [NEW, DUPLICATE]


def test_what_an_audit_keeps_of_a_producer_is_a_bit_for_each_number_of_its_depth() -> None:
    held = Kept("audit", audit_depth=8)
    held.decide([said("P", number) for number in range(1, 100)])
    ((key, value),) = held.entries.items()
    floor_at = len(value) - 1 - 8
    assert value[floor_at:] == (99 - 7).to_bytes(8, "little") + b"\xff"
    with pytest.raises(UnknownFormatError):
        check(key, value[:floor_at] + (100).to_bytes(8, "little") + b"\xff")


def test_of_the_numbers_of_a_stream_the_last_alone_names_where_it_was_accepted() -> None:
    held = Kept("ordered")
    held.decide([said("P", 1), said("P", 2, 1)])
    claims = [said("P", 2, 1), said("P", 1)]
    whys = [some(held.begun().verdict(claim, Origin(*SOURCE, 9, 9))) for claim in claims]
    assert [why.original for why in whys] == ["orders-1@1", None]


def test_what_wants_a_part_of_its_claim_has_no_place_in_a_stream() -> None:
    claim, strategy = said("P", 2, 1, 3), STRATEGIES["ordered"]
    assert strategy.claims(claim)
    for part in ("publisher", "number", "previous", "stream"):
        without: dict[str, Any] = {part: None}
        assert not strategy.claims(claim._replace(**without)), part
    assert not strategy.claims(claim._replace(number=0))


# By the slowest rules.


class Step(NamedTuple):
    """One batch, dropped or committed, perhaps in another life."""

    claims: list[Claim]
    committed: bool
    restart: bool


Judge = Callable[[Any, Claim], Reason | None]


def sequence_model(state: dict[str, int], claim: Claim) -> Reason | None:
    name, number = claim.publisher or "", claim.number or 0
    if number <= state.get(name, 0):
        return DUPLICATE
    state[name] = number
    return NEW


def ordered_model(state: dict[str, tuple[int, int]], claim: Claim) -> Reason | None:
    name, number = claim.publisher or "", claim.number or 0
    stream, previous = claim.stream or 0, claim.previous or 0
    last_stream, last = state.get(name, (-1, 0))
    goes_on = stream == last_stream and number > last and previous <= last
    if goes_on or (stream > last_stream and previous == 0):
        state[name] = (stream, number)
        return NEW
    return DUPLICATE if stream == last_stream and number <= last else OUT_OF_ORDER


def audit_model(state: OrderedDict[str, list[int]], claim: Claim) -> Reason | None:
    name, number = claim.publisher or "", claim.number or 0
    seen = state.get(name, [])
    if seen and (number in seen or number <= max(seen) - 5):
        state.move_to_end(name)
        return DUPLICATE
    state[name] = [*seen, number]
    state.move_to_end(name)
    while len(state) > 2:
        state.popitem(last=False)
    return NEW


CLAIMS = st.builds(
    said, st.sampled_from("PQR"), st.integers(1, 12), st.integers(0, 6), st.integers(0, 2)
)
STEPS = st.lists(st.builds(Step, st.lists(CLAIMS, max_size=8), st.booleans(), st.booleans()))


@pytest.mark.parametrize(
    ("strategy", "judge"),
    [("sequence", sequence_model), ("ordered", ordered_model), ("audit", audit_model)],
)
@given(steps=STEPS)
def test_verdicts_are_those_of_the_slowest_rule(
    strategy: str, judge: Judge, steps: Sequence[Step]
) -> None:
    held = Kept(strategy, audit_depth=5, audit_producers=2)
    state: OrderedDict[str, Any] = OrderedDict()
    for claims, committed, restart in steps:
        draft = OrderedDict(state)
        assert held.decide(claims, committed=committed) == [judge(draft, c) for c in claims]
        state = draft if committed else state
        if restart:
            held.restart()
        assert len(held.memory) == len(state)


# As entries.


@pytest.mark.parametrize("strategy", ["sequence", "ordered", "audit"])
def test_entries_stand_under_their_address_one_for_each_publisher(strategy: str) -> None:
    held = Kept(strategy)
    held.decide([said("P", 1), said("Ä/\x00", 1), said("P", 2, 1)])
    assert {address_of(key) for key in held.entries} == {ADDRESS}
    begin = prefix(STRATEGIES[strategy].kind, ADDRESS)
    assert {key.removeprefix(begin).decode() for key in held.entries} == {"P", "Ä/\x00"}


@pytest.mark.parametrize("strategy", ["sequence", "ordered", "audit"])
def test_an_entry_that_this_version_did_not_write_is_refused(strategy: str) -> None:
    held = Kept(strategy)
    held.decide([said("P", 1)])
    ((key, value),) = held.entries.items()
    for bad in (b"", b"\x02" + value[1:], value[:9]):
        with pytest.raises(UnknownFormatError):
            check(key, bad)
    with pytest.raises(UnknownFormatError):
        check(b"z" + key[1:], value)
