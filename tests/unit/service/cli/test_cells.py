"""Cells: what people read, and what programs read."""

from datetime import UTC, datetime

import pytest

from ringfence_service.cli import cells


@pytest.mark.parametrize(
    ("span_ms", "text"),
    [
        (0, "0 ms"),
        (999, "999 ms"),
        (1_500, "1.5 s"),
        (59_400, "59 s"),
        (60_000, "1 min"),
        (7_500_000, "2 h 5 min"),
        (90_000_000, "1 d 1 h"),
        (86_400_000, "1 d"),
    ],
)
def test_a_duration_is_shown_in_its_two_largest_units(span_ms: int, text: str) -> None:
    assert cells.span(span_ms)[:2] == (str(span_ms), text)


def test_numbers_are_exact_for_programs_and_grouped_for_people() -> None:
    assert cells.count(1_234_567)[:2] == ("1234567", "1,234,567")
    assert cells.size(1_536)[:2] == ("1536", "1.5 KiB")
    assert cells.size(10 * 1024**4)[:2] == ("10995116277760", "10.0 TiB")
    assert cells.count(None).plain == ""


def test_a_time_tells_its_zone_and_programs_read_utc() -> None:
    cell = cells.when("2026-01-02T03:04:05+01:00", utc=True)
    assert cell[:2] == ("2026-01-02T02:04:05Z", "2026-01-02 02:04:05Z")
    now = datetime(2026, 1, 2, 2, 5, 5, tzinfo=UTC)
    assert cells.when("2026-01-02T02:04:05Z", utc=True, now=now).shown.endswith("(1 min ago)")
    assert cells.when("2026-01-02T02:06:05Z", utc=True, now=now).shown.endswith("(in 1 min)")


def test_a_share_is_a_bar_for_people_and_a_number_for_programs() -> None:
    assert cells.share(1, 3)[:2] == ("33.3%", " 33 %")
    assert cells.share(5, 3).ratio == 1
    assert cells.share(1, 0).plain == ""
