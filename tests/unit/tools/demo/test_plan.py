"""The plan of an at-least-once publisher."""

from collections import Counter

import pytest

from tools.demo.plan import DOUBTED_ANYWHERE, DOUBTED_NEWEST, LATER_SENDS, Plan, Send

FLIGHTS = 200_000
KILLED_AFTER = 120_000


def whole_plan(
    seed: int, *, flights: int = FLIGHTS, killed_after: int = KILLED_AFTER
) -> list[Send]:
    plan = Plan(flights, seed)
    sends = list(plan.sends(killed_after))
    plan.doubt()
    sends += plan.sends(10 * FLIGHTS)
    assert not list(plan.sends(1))
    return sends


@pytest.fixture(scope="module")
def sends() -> list[Send]:
    return whole_plan(seed=1)


def test_one_seed_and_one_kill_give_one_plan() -> None:
    one, same, other = (whole_plan(seed, flights=5_000, killed_after=3_000) for seed in (1, 1, 2))
    assert one == same != other


def test_how_the_plan_is_sliced_does_not_change_it() -> None:
    sliced = Plan(1_000, seed=3)
    in_slices = [send for _ in range(200) for send in sliced.sends(7)]
    assert in_slices == list(Plan(1_000, seed=3).sends(10_000))


def test_every_flight_is_sent_first_once_and_in_order(sends: list[Send]) -> None:
    assert [send.flight for send in sends if not send.is_copy] == list(range(FLIGHTS))


def test_a_copy_never_comes_before_its_original(sends: list[Send]) -> None:
    sent: set[int] = set()
    for send in sends:
        assert send.is_copy == (send.flight in sent)
        sent.add(send.flight)


def test_about_a_tenth_of_all_messages_are_copies(sends: list[Send]) -> None:
    copies = sum(send.is_copy for send in sends)
    assert 0.09 < copies / len(sends) < 0.12


def test_some_copies_come_at_once_and_some_thousands_of_messages_later(sends: list[Send]) -> None:
    last_at: dict[int, int] = {}
    waits = []
    for at, send in enumerate(sends[:KILLED_AFTER]):
        if send.is_copy:
            waits.append(at - last_at[send.flight])
        last_at[send.flight] = at
    assert sum(wait < 100 for wait in waits) > len(waits) / 4
    assert sum(wait >= LATER_SENDS[0] for wait in waits) > len(waits) / 4


def test_some_flights_are_copied_more_than_once(sends: list[Send]) -> None:
    copies = Counter(send.flight for send in sends if send.is_copy)
    assert max(copies.values()) >= 3


def test_after_the_kill_what_was_sent_before_it_is_sent_again(sends: list[Send]) -> None:
    before = [send.flight for send in sends[:KILLED_AFTER] if not send.is_copy]
    doubted = sends[KILLED_AFTER : KILLED_AFTER + DOUBTED_NEWEST + DOUBTED_ANYWHERE]
    assert all(send.is_copy for send in doubted)
    assert set(before[-DOUBTED_NEWEST:]) <= {send.flight for send in doubted}
    assert sum(send.flight < before[-DOUBTED_NEWEST] for send in doubted) > DOUBTED_ANYWHERE / 2


def test_a_kill_after_the_last_send_is_doubted_too() -> None:
    plan = Plan(100, seed=4)
    list(plan.sends(1_000))
    plan.doubt()
    assert sum(send.is_copy for send in plan.sends(10_000)) >= 100
