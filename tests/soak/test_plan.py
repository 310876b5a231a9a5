"""A seed stands for one plan, whatever the caller and the duration."""

from hypothesis import given
from hypothesis import strategies as st

from tests.soak.plan import GUESTS, OF_BROKER, OF_GUESTS, Kind, plan

seeds = st.integers(0, 2**32)


@given(seeds)
def test_a_seed_always_gives_the_same_plan_and_a_longer_one_goes_on_from_it(seed: int) -> None:
    shorter, longer = plan(seed, 60), plan(seed, 600)
    assert plan(seed, 60) == shorter == longer[: len(shorter)]


@given(seeds)
def test_the_survivor_is_never_ended(seed: int) -> None:
    for fault in plan(seed, 600):
        assert 0 <= fault.instance <= GUESTS
        assert fault.instance or fault.kind not in OF_GUESTS


@given(seeds, st.integers(10, 600))
def test_faults_come_one_after_the_other_within_the_time(seed: int, seconds: int) -> None:
    times = [fault.at_s for fault in plan(seed, seconds)]
    assert times == sorted(times)
    assert all(0 < at_s < seconds + 0.1 for at_s in times)


def test_ten_minutes_bring_every_kind_of_fault() -> None:
    assert {fault.kind for fault in plan(7, 600)} == set(Kind)


@given(seeds)
def test_of_three_brokers_any_may_be_struck(seed: int) -> None:
    brokers = {fault.broker for fault in plan(seed, 600, 3) if fault.kind in OF_BROKER}
    assert brokers <= {1, 2, 3}
    assert all(fault.broker == 1 for fault in plan(seed, 600))
