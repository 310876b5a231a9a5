"""Charts put values where they belong."""

import xml.etree.ElementTree as ET

import pytest

from ringfence_pipeline.charts import ChartSeries, ReferenceLine, by_distance, over_time, share

HEIGHT, TOP, BOTTOM = 236, 42, 34


def bars(svg: str, colour: str) -> list[dict[str, str]]:
    return [each.attrib for each in ET.fromstring(svg).iter("rect") if each.get("class") == colour]  # noqa: S314 - our own text


def percent(value: float) -> str:
    return f"{value:g} %"


def test_the_largest_value_reaches_a_round_top_and_none_is_left_out() -> None:
    svg = over_time(["a", "b", "c"], [ChartSeries("dups", "dup", [0, 5, None])], percent, "t")
    drawn = bars(svg, "dup")
    assert [float(bar["height"]) for bar in drawn] == [0, HEIGHT - TOP - BOTTOM]
    assert "b: dups 5 %" in svg


def test_a_further_series_is_drawn_as_points() -> None:
    svg = over_time(
        ["a"], [ChartSeries("p50", "acc", [1]), ChartSeries("p99", "miss", [2])], percent, "t"
    )
    (point,) = ET.fromstring(svg).iter("circle")  # noqa: S314
    assert point.get("class") == "miss"
    assert float(point.attrib["cy"]) == TOP


def test_bars_left_of_the_ring_are_within_it() -> None:
    series = [ChartSeries("caught", "acc", [1, 10, 0]), ChartSeries("missed", "miss", [0, 0, 100])]
    svg = by_distance([3, 4, 5], series, [ReferenceLine(4.0, "ring: 16", "ring")], "t")
    (line,) = [e for e in ET.fromstring(svg).iter("line") if "ring" in e.get("class", "")]  # noqa: S314
    ring = float(line.attrib["x1"])
    assert all(float(b["x"]) + float(b["width"]) <= ring for b in bars(svg, "acc"))
    assert all(float(b["x"]) >= ring for b in bars(svg, "miss"))


def test_ten_times_as_many_are_one_step_higher() -> None:
    svg = by_distance([1, 2, 3], [ChartSeries("caught", "acc", [1, 10, 100])], [], "t")
    one, ten, hundred = (float(bar["height"]) for bar in bars(svg, "acc"))
    assert hundred - ten == pytest.approx(ten - one, abs=0.2)


def test_names_are_text() -> None:
    svg = over_time(["<b>"], [ChartSeries("&", "dup", [1])], percent, '"x"')
    assert "<b>" not in svg
    ET.fromstring(svg)  # noqa: S314


@pytest.mark.parametrize(("value", "width"), [(0, "0"), (1, "1"), (1000, "100")])
def test_a_share_is_seen_where_there_is_one(value: float, width: str) -> None:
    (bar,) = bars(share(value, 1000, "dup"), "dup")
    assert bar["width"] == width
