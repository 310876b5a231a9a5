"""The rate of a redrive."""

import random

import pytest

from ringfence_service.dead_letters.token_bucket import TokenBucket


@pytest.mark.parametrize("per_second", [0.5, 7, 100, 12_345])
@pytest.mark.parametrize("seed", range(5))
def test_over_any_time_the_rate_is_kept_within_a_twentieth(per_second: float, seed: int) -> None:
    chance, now_s = random.Random(seed), 1000.0
    bucket, sent = TokenBucket(per_second, now_s), 0
    until_s = now_s + max(20.0, 200 / per_second)
    while now_s < until_s:
        count = max(1, int(bucket.at_once(now_s) * chance.random()))
        now_s += bucket.take(count, now_s)  # then they go out,
        sent += count
        now_s += chance.random() * 0.02  # and the owner takes its time
    rate = sent / (now_s - 1000.0)
    assert per_second * 0.95 <= rate <= per_second * 1.05


@pytest.mark.parametrize("per_second", [7, 100, 12_345])
@pytest.mark.parametrize("owner_s", [0.02, 0.15, 0.3, 0.45])
def test_an_owner_who_takes_his_time_slows_nothing_down(per_second: float, owner_s: float) -> None:
    now_s, sent = 1000.0, 0
    bucket = TokenBucket(per_second, now_s)
    while now_s < 1060.0:
        count = int(bucket.at_once(now_s))
        now_s += bucket.take(count, now_s) + owner_s
        sent += count
    assert per_second * 0.95 <= sent / (now_s - 1000.0) <= per_second * 1.05


def test_a_standstill_leaves_little_in_reserve() -> None:
    bucket = TokenBucket(100, 0.0)
    assert bucket.take(100, 60.0) == 0.0
    assert bucket.take(10, 60.0) == pytest.approx(0.1)


def test_it_begins_empty() -> None:
    assert TokenBucket(10, 5.0).take(1, 5.0) == pytest.approx(0.1)


def test_without_a_rate_nothing_waits() -> None:
    bucket = TokenBucket(None, 0.0)
    assert bucket.at_once(0.0) == float("inf")
    assert bucket.take(10**6, 0.0) == 0.0
