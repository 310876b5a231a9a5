"""Drawing: whatever the width of a terminal, nothing is cut."""

import io

import pytest
from rich.cells import cell_len

from ringfence_service.cli.cells import Cell, count, share, word
from ringfence_service.cli.page import Facts, Page, Table, Title
from ringfence_service.cli.render import draw

LONG = "a-topic-with-a-name-of-some-length"
TABLE = Table(
    ("address", "full", "ids", "horizon", "spared", "nothing"),
    [
        [word(LONG), share(1, 3), count(20_000), Cell("", "all so far"), word("x"), word(None)],
        [word("漢字"), share(0, 3), count(7), Cell("60000", "1 min"), word("y"), word(None)],
    ],
    "none",
    ("spared",),
)


def drawn(page: Page, width: int, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("NO_COLOR", "1")
    out = io.StringIO()
    draw(page, out)
    return [line.rstrip() for line in out.getvalue().splitlines()]


@pytest.mark.parametrize("width", range(48, 140, 4))
def test_no_line_is_longer_than_the_terminal_and_no_value_is_cut(
    width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = drawn([TABLE], width, monkeypatch)
    assert max(map(cell_len, lines)) <= width
    for value in ("a-topic-with-a-name-of-some", "漢字", "33 %", "20,000", "all so far", "1 min"):
        assert any(value in line for line in lines), f"{value} is cut at {width}"


def test_a_wide_terminal_shows_all_but_columns_in_which_nothing_stands(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    head = drawn([TABLE], 120, monkeypatch)[0]
    assert head.split() == ["address", "full", "ids", "horizon", "spared"]


def test_a_narrower_one_leaves_out_what_can_be_spared_then_the_bars(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert "spared" not in drawn([TABLE], 82, monkeypatch)[0]
    assert any("█" in line for line in drawn([TABLE], 82, monkeypatch))
    assert not any("█" in line for line in drawn([TABLE], 64, monkeypatch))
    assert drawn([TABLE], 64, monkeypatch)[0].split() == ["address", "full", "ids", "horizon"]


def test_one_that_is_narrower_still_shows_each_row_as_names_and_values(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert drawn([TABLE], 48, monkeypatch)[0].split() == ["address", LONG]


def test_parts_are_set_apart_and_a_title_stands_above_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    page: Page = [
        Title("T"),
        Facts([("a", word("1"))]),
        TABLE._replace(rows=[]),
        Facts([("b", word(2))]),
    ]
    assert drawn(page, 80, monkeypatch) == ["T", "a  1", "", "b  2"]
