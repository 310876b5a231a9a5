"""For how long the next record may have waited: a bound that is never too small."""

from ringfence_service.processor.lag_estimator import LagEstimator
from ringfence_state.model import PartitionId

SOURCE = PartitionId("orders", 0)


def test_at_the_end_nothing_waits() -> None:
    assert LagEstimator().of(SOURCE, 0, now_s=5, age_ms=10**9) == 0


def test_what_is_not_known_is_not_reported() -> None:
    waits = LagEstimator()
    assert waits.of(SOURCE, None, now_s=5, age_ms=7) is None
    assert waits.of(SOURCE, 3, now_s=5, age_ms=None) is None


def test_a_reader_that_never_falls_behind_goes_by_the_last_record() -> None:
    waits = LagEstimator()
    waits.of(SOURCE, 0, now_s=0, age_ms=None)
    assert waits.of(SOURCE, 3, now_s=100, age_ms=20) == 20


def test_after_a_pause_of_the_publisher_the_age_of_the_last_record_says_nothing() -> None:
    waits = LagEstimator()
    waits.of(SOURCE, 0, now_s=100, age_ms=None)
    assert waits.of(SOURCE, 3, now_s=100.25, age_ms=3_600_000) == 250


def test_a_clock_that_is_behind_the_records_makes_no_negative_time() -> None:
    assert LagEstimator().of(SOURCE, 3, now_s=0, age_ms=-5) == 0


def test_a_partition_that_leaves_and_comes_back_starts_over() -> None:
    waits = LagEstimator()
    waits.of(SOURCE, 0, now_s=0, age_ms=None)
    waits.keep(())
    assert waits.of(SOURCE, 3, now_s=1, age_ms=None) is None
