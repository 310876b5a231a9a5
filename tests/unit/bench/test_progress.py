"""Rates of an arm, from the moments at which its offsets were committed."""

import pytest

from bench.progress import CpuTime, Pace, Point, pace


@pytest.mark.parametrize(
    ("commits", "second_half", "cpu_us"),
    [
        pytest.param(
            [(0, 0), (1, 10), (2, 60), (3, 80), (9, 100)], 20, 0.5e5, id="without its last interval"
        ),
        pytest.param(
            [(0, 0), (1, 60), (2, 100)], 40, 0.25e5, id="the last interval is its only one"
        ),
        pytest.param([(0, 0), (1, 100)], 0, 0, id="one commit"),
    ],
)
def test_the_second_half_ends_before_the_last_commit(
    commits: list[tuple[float, int]], second_half: float, cpu_us: float
) -> None:
    points = [Point(*each) for each in commits]
    whole = points[-1].records / points[-1].at_s
    used = [CpuTime(number, 3 * number) for number in range(len(points))]
    assert pace(points, used) == Pace(whole, second_half, cpu_us, 2 * cpu_us)
