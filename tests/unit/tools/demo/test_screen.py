"""What the demo prints."""

import pytest

from tools.demo.screen import Progress, Rate, Screen, progress_text

HALF_WAY = Progress(336_776, 207_500, 175_983, 14_801, "running")


def test_progress_fits_eighty_columns() -> None:
    full = HALF_WAY._replace(sent=374_000, accepted=336_776, duplicates=37_000)
    assert len(progress_text(full._replace(service="restarting"), 50_000)) <= 80


def test_the_rate_is_that_of_the_last_seconds() -> None:
    rate = Rate()
    assert rate.update(100.0, 0) == 0.0
    assert rate.update(101.0, 500) == 500.0
    rate.update(110.0, 1_000)
    assert rate.update(111.0, 1_100) == 100.0


def test_without_a_terminal_lines_are_plain_and_few(capsys: pytest.CaptureFixture[str]) -> None:
    screen = Screen()
    with screen.follow() as follower:
        for _ in range(10):
            follower.show(HALF_WAY)
    screen.close_with([("sent", "1"), ("logs", "x" * 200)])
    lines = [line for line in capsys.readouterr().out.splitlines() if line]
    assert len(lines) == 3
    assert lines[0].endswith("accepted 175,983  duplicates 14,801  0/s  service running")
    assert lines[2] == "logs  " + "x" * 200
    assert all("\x1b" not in line for line in lines)
