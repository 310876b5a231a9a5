import math
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringfence_api.console.history import ADDRESS_POINTS, History, HistorySample, quantile
from tests.support.helpers import some


def sample(
    time_s: float, accepted: float = 0.0, by_address: Mapping[str, float] | None = None
) -> HistorySample:
    return HistorySample(time_s, accepted, accepted, 0.0, 0.0, None, (), by_address or {})


def history_of(*samples: HistorySample) -> History:
    history = History()
    for each in samples:
        history.add(each)
    return history


def test_a_rate_is_what_came_between_two_samples() -> None:
    history = history_of(sample(0.0, 100.0), sample(5.0, 150.0))
    last = some(history.last())
    assert last.accepted == 10.0


def test_repeated_dead_letters_are_counted_apart_from_faults() -> None:
    history = history_of(
        sample(0.0)._replace(dead_letters=10.0, repeats=8.0),
        sample(5.0)._replace(dead_letters=40.0, repeats=28.0),
    )
    last = some(history.last())
    assert (last.dead_letters, last.repeats, last.faults) == (6.0, 4.0, 2.0)
    history.add(sample(10.0)._replace(dead_letters=45.0, repeats=35.0))  # read a moment later
    last = some(history.last())
    assert (last.repeats, last.faults) == (1.0, 0.0)


def test_one_sample_tells_no_rate() -> None:
    history = History()
    history.add(sample(0.0))
    assert history.last() is None
    assert all(point.accepted is None for point in history.points(1.0, 300.0))


def test_a_counter_that_restarted_gives_no_negative_rate() -> None:
    history = history_of(sample(0.0, 100.0), sample(5.0, 3.0))
    last = some(history.last())
    assert last.accepted == 0.0


def test_all_that_was_counted_stands_in_the_points_once() -> None:
    history = history_of(*(sample(n * 5.0, n * 7.0) for n in range(721)))
    points = history.points(3600.0, 3600.0)
    assert sum((point.accepted or 0.0) * 30.0 for point in points) == pytest.approx(720 * 7.0)


def test_where_no_sample_was_taken_nothing_is_known() -> None:
    history = history_of(*(sample(at_s, at_s) for at_s in (0.0, 5.0, 10.0, 290.0, 295.0)))
    known = [point.accepted is not None for point in history.points(300.0, 300.0)]
    assert known[0]
    assert not any(known[1:28])


def test_a_sample_that_is_late_leaves_no_gap() -> None:
    history = history_of(*(sample(n * 6.9, n * 6.9) for n in range(45)))
    points = history.points(300.0, 300.0)
    assert all(point.accepted == pytest.approx(1.0) for point in points)


def test_no_more_is_kept_than_an_hour_has() -> None:
    history = history_of(*(sample(n * 5.0, by_address={"a": float(n)}) for n in range(5_000)))
    assert len(history._samples) == 721
    assert len(history.of_address("a")) == ADDRESS_POINTS


def test_a_young_history_is_shown_on_a_short_scale() -> None:
    history = History()
    assert history.span_s(0.0) == 300.0
    history.add(sample(0.0))
    assert [history.span_s(at_s) for at_s in (60.0, 301.0, 9_000.0)] == [300.0, 900.0, 3600.0]


def test_an_address_that_comes_later_has_nothing_before() -> None:
    history = history_of(
        sample(0.0, by_address={"old": 5.0}), sample(60.0, by_address={"old": 8.0, "new": 4.0})
    )
    assert history.of_address("old") == ((0.0, 60.0, 3.0),)
    assert history.of_address("new") == ((0.0, 60.0, 4.0),)


def test_the_rate_of_an_address_is_per_minute_though_a_sample_is_late() -> None:
    history = history_of(sample(0.0, by_address={"a": 0.0}), sample(90.0, by_address={"a": 6.0}))
    (point,) = history.of_address("a")
    assert point == (0.0, 90.0, 4.0)
    assert point.middle_s == 45.0


@given(st.lists(st.floats(0.001, 100.0), min_size=1, max_size=50), st.floats(0.01, 1.0))
def test_a_quantile_lies_in_the_bucket_of_the_value_that_has_that_rank(
    values: list[float], share: float
) -> None:
    bounds = [0.01, 0.1, 1.0, 10.0, math.inf]
    buckets = [(bound, float(sum(value <= bound for value in values))) for bound in bounds]
    rank = max(1, math.ceil(share * len(values) - 1e-9))
    exact = sorted(values)[rank - 1]
    lower = max((bound for bound in [0.0, *bounds] if bound < exact), default=0.0)
    upper = min(bound for bound in bounds if bound >= exact)
    found = some(quantile(buckets, share))
    assert lower - 1e-9 <= found <= (10.0 if math.isinf(upper) else upper) + 1e-9


def test_without_observations_there_is_no_quantile() -> None:
    assert quantile([], 0.5) is None
    assert quantile([(1.0, 0.0), (math.inf, 0.0)], 0.5) is None
