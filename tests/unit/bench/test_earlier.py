"""The service of another commit beside the present one: its files, and the ratios."""

from pathlib import Path

import pytest

from bench.earlier import Turn, checked_out, compared
from bench.results import Spread
from tools.errors import ToolError


def test_a_ratio_is_taken_within_a_round() -> None:
    before = [Turn(4.0, 8.0, 100.0), Turn(2.0, 4.0, 200.0)]
    after = [Turn(4.0, 4.0, 100.0), Turn(3.0, 4.0, 100.0)]
    loop, everything, rate = compared("a title", {}, before, after).rows
    assert loop["now / earlier"] == Spread(1.0, 1.25, 1.5)
    assert everything["now / earlier"] == Spread(0.5, 0.75, 1.0)
    assert rate["now / earlier"] == Spread(0.5, 0.75, 1.0)


def test_what_is_not_a_commit_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(ToolError, match="no-such-commit"):
        checked_out("no-such-commit", tmp_path / "earlier")
