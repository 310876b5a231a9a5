"""A histogram filled a batch at a time is the one that is filled value by value."""

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Histogram

from ringfence_service.telemetry.metrics import BatchHistogram

BOUNDS_S = (0.1, 1.0, 60.0)
values = st.lists(st.sampled_from([0, 99, 100, 101, 1000, 59_999, 60_000, 60_001, 10**12]))


@given(st.lists(values))
def test_it_tells_what_a_histogram_of_the_library_tells(batches: list[list[int]]) -> None:
    bulk = BatchHistogram("seconds", "Help.", BOUNDS_S)
    registry = CollectorRegistry()
    plain = Histogram("seconds", "Help.", registry=registry, buckets=BOUNDS_S)
    for batch in batches:
        bulk.observe(batch)
        for value_ms in batch:
            plain.observe(value_ms / 1000)
    (ours,), (theirs,) = bulk.collect(), registry.collect()
    expected = [s for s in theirs.samples if not s.name.endswith("_created")]
    assert [(s.name, s.labels) for s in ours.samples] == [(s.name, s.labels) for s in expected]
    for own, other in zip(ours.samples, expected, strict=True):
        assert abs(own.value - other.value) <= 1e-6 * max(1, other.value)
