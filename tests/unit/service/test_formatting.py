from datetime import UTC, datetime, timedelta

import pytest

from ringfence_service import formatting as words

NOW = datetime(2026, 3, 4, 12, 0, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("ms", "told"),
    [
        (None, words.NONE),
        (0, "0 ms"),
        (0.4, "0.4 ms"),
        (999, "999 ms"),
        (1_500, "1.5 s"),
        (61_000, "1 min 1 s"),
        (60_000, "1 min"),
        (3_599_999, "1 h"),
        (90_061_000, "1 d 1 h"),
        (86_400_000 + 60_000, "1 d"),
    ],
)
def test_a_duration_is_shown_in_its_two_largest_units(ms: float | None, told: str) -> None:
    assert words.duration(ms) == told


@pytest.mark.parametrize(
    ("count", "told"),
    [(None, words.NONE), (0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (1 << 30, "1.0 GiB")],
)
def test_a_size_is_shown_in_the_unit_that_fits(count: int | None, told: str) -> None:
    assert words.size(count) == told


def test_small_rates_have_a_decimal() -> None:
    assert [words.rate(each) for each in (None, 0.0, 0.25, 12.6, 4_321.0)] == [
        words.NONE,
        "0",
        "0.2",
        "13",
        "4,321",
    ]


def test_a_tiny_share_is_not_shown_as_zero() -> None:
    assert [words.percent(each) for each in (None, 0.0, 0.0004, 0.034, 0.5)] == [
        words.NONE,
        "0.0 %",
        "< 0.1 %",
        "3.4 %",
        "50 %",
    ]


def test_another_day_is_named() -> None:
    assert words.clock(NOW - timedelta(hours=1), NOW) == "11:00:00"
    assert words.clock(NOW - timedelta(days=1), NOW) == "2026-03-03 12:00:00"


def test_how_long_ago_something_was() -> None:
    assert words.ago(NOW - timedelta(seconds=0.2), NOW) == "now"
    assert words.ago(NOW - timedelta(seconds=75.9), NOW) == "1 min 15 s ago"


def test_one_is_shown_without_an_s() -> None:
    assert words.plural(1, "id") == "1 id"
    assert words.plural(2_000, "id") == "2,000 ids"


@pytest.mark.parametrize(
    ("text", "expected_ms"),
    [
        ("1800", 1_800_000),
        ("0.5", 500),
        ("PT30M", 1_800_000),
        ("P1DT2H3M4.5S", 93_784_500),
        ("30m", 1_800_000),
        ("250ms", 250),
        ("7d", 604_800_000),
        ("P", None),
        ("PT", None),
        ("30 m", None),
        ("-1", None),
        ("1e3", None),
        ("", None),
    ],
)
def test_times_as_people_and_programs_write_them(text: str, expected_ms: int | None) -> None:
    assert words.duration_ms(text) == expected_ms
