"""The page of quality shows what it is given, in short numbers with units, and asks nobody else."""

import json
import re

import pytest

from ringfence_pipeline.quality.report import percent, seconds_text, short, tiles, to_html
from ringfence_pipeline.quality.views import RecordCounts, to_json
from tests.unit.pipeline.quality.found import found
from tests.unit.pipeline.reconcile.test_report import Elements


def test_a_page_is_whole_and_loads_nothing() -> None:
    elements = Elements(to_html(found("checkout", None)))
    assert elements.open == []
    tags = {tag for tag, _ in elements.found}
    assert not tags & {"script", "link", "img", "iframe", "object", "use", "image"}
    assert not [
        each for _, each in elements.found if {"src", "style", "srcset", "href"} & set(each)
    ]


def test_what_publishers_write_is_text_in_the_page() -> None:
    page = to_html(found("<script>alert(1)</script>"))
    assert "<script" not in page
    assert page.count("&lt;script&gt;") == 2


def test_an_hour_without_records_has_a_place_on_the_axis_and_no_bar() -> None:
    page = to_html(found("checkout"))
    chart = re.search(r'aria-label="Records over time">(.*?)</svg>', page, re.DOTALL)
    assert chart is not None
    assert chart[1].count("<rect") == 47
    # 48 hours, and a label for every one that has room.
    begins = re.findall(r'text-anchor="middle">([^<]+)', chart[1])
    assert begins[:2] == ["11-14 22:00", "11-15 04:00"]


def test_without_records_there_are_no_charts_and_no_division_by_zero() -> None:
    nothing = RecordCounts(0, 0, 0, 0, 0)
    empty = found()._replace(
        total=nothing, slots=(), addresses=(), reasons=(), ids=(), seconds=None, offsets=None
    )
    page = to_html(empty)
    assert "<svg" not in page
    assert ("share of duplicates", "0 %") in tiles(empty)


@pytest.mark.parametrize(
    ("part", "whole", "text"),
    [(0, 9, "0 %"), (1, 10**9, "< 0.001 %"), (1, 8, "12.5 %"), (5, 5, "100 %")],
)
def test_a_share_has_three_digits_and_is_zero_only_if_there_is_none(
    part: int, whole: int, text: str
) -> None:
    assert percent(part, whole) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 ms"),
        (0.0042, "4.2 ms"),
        (1, "1 s"),
        (90, "1.5 min"),
        (7200, "2 h"),
        (864_000, "10 d"),
    ],
)
def test_a_time_is_in_the_largest_unit_that_fits(seconds: float, text: str) -> None:
    assert seconds_text(seconds) == text


def test_large_numbers_are_short() -> None:
    assert [short(n) for n in (0, 123_456, 12_340_000, 2e9)] == ["0", "123,456", "12.3 M", "2 G"]


def test_json_has_every_value_by_its_name() -> None:
    document = json.loads(to_json(found("checkout", None)))
    assert document["format"] == 1
    assert [each["name"] for each in document["publishers"]] == ["checkout", None]
    assert document["total"]["duplicates"] == 11_000
    assert document["seconds"]["p99"] == 700
    assert len(document["seconds"]["counts"]) == 12
