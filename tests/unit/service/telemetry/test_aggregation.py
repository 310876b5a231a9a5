"""Families: what several processes tell, as one would."""

from ringfence_service.telemetry.aggregation import (
    MetricFamily,
    MetricPoint,
    joined,
    without_addresses,
)


def gauge(name: str, value: float, address: str = "a") -> MetricFamily:
    return MetricFamily(name, "", "gauge", (MetricPoint(name, (("address", address),), value),))


def values(name: str, *told: MetricFamily) -> dict[str, float]:
    found = {family.name: family for family in joined((), [[each] for each in told])}
    return {point.labels[0][1]: point.value for point in found[name].points} if found else {}


def test_what_each_process_holds_is_added() -> None:
    name = "ringfence_ring_used_ids"
    assert values(name, gauge(name, 3), gauge(name, 4), gauge(name, 1, "b")) == {"a": 7, "b": 1}


def test_processes_are_counted_by_the_fast_path_that_they_run() -> None:
    name = "ringfence_fast_path_info"
    native, python = (
        MetricFamily(name, "", "gauge", (MetricPoint(name, (("path", path),), 1),))
        for path in ("native", "python")
    )
    assert values(name, native, python, native) == {"native": 2, "python": 1}


def test_the_shortest_horizon_counts_whichever_process_reports_it_first() -> None:
    name = "ringfence_ring_horizon_seconds"
    assert values(name, gauge(name, 30), gauge(name, 7), gauge(name, 9)) == {"a": 7}


def test_without_addresses_all_are_one_as_processes_are() -> None:
    for name, value in (("ringfence_ring_used_ids", 37), ("ringfence_ring_horizon_seconds", 7)):
        one, other = gauge(name, 30), gauge(name, 7, "b")
        (told,) = without_addresses([one._replace(points=one.points + other.points)])
        assert told.points == (MetricPoint(name, (("address", "_other"),), value),)


def test_other_gauges_of_a_process_are_left_out() -> None:
    name = "ringfence_assigned_partitions"
    assert values(name, gauge(name, 3)) == {}
