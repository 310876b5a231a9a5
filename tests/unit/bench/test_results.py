"""Ratios are taken within a round, and what is written can be read."""

import json
from pathlib import Path

import pytest

from bench.latency import Latency
from bench.progress import CpuTime, Pace, Point, pace
from bench.results import Comparison, Results, Spread

ROUNDS = {
    "ringfence": [Pace(0, 100), Pace(0, 60), Pace(0, 90)],
    "floor": [Pace(0, 200), Pace(0, 100), Pace(0, 100)],
}


def test_a_ratio_is_that_of_neighbours_and_not_of_the_medians() -> None:
    comparison = Comparison("it", {}, ROUNDS)
    assert comparison.ratio("ringfence", "floor") == Spread(0.5, 0.6, 0.9)


def test_the_second_half_is_counted_from_the_first_point_past_the_middle() -> None:
    points = [Point(0, 10), Point(1, 40), Point(3, 60), Point(4, 100)]
    found = pace(points, [CpuTime(at, 10 * at) for at in (0.5, 0.6, 0.7, 0.9)])
    assert (found.whole, found.second_half) == (90 / 4, 40 / 1)
    assert found.cpu_us == pytest.approx(200_000 / 40)
    assert found.others_us == pytest.approx(1_800_000 / 40)


def test_the_headline_ratios_stand_in_the_file(tmp_path: Path) -> None:
    results = Results([Comparison("it", {"batch": 1}, ROUNDS)])
    results.latencies["1,000"] = {"floor": [Latency(1, 2, 3, 10), Latency(3, 4, 5, 10)]}
    results.write(tmp_path / "latest.json")
    written = json.loads((tmp_path / "latest.json").read_text(encoding="utf-8"))
    assert written["ratios"]["ringfence/floor"] == {"min": 0.5, "median": 0.6, "max": 0.9}
    assert written["latency_ms"]["1,000"]["floor"]["p99"]["median"] == 3
    assert "librdkafka" in written["versions"]
