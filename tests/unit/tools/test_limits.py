"""A limit of the product has its reason beside it."""

from tests.support.helpers import rows
from tools.limits import unexplained


@rows(
    ("name", "rest"),
    {
        "seconds": ("_PAUSE_S", ": Final = 0.5"),
        "several steps": ("_PAUSES_S", ": Final = (0.5, 1)"),
        "a bound": ("RECORDS_MAX", " = 5_000"),
        "computed": ("_BYTES_MAX", ": Final = 4 * MIB"),
        "below zero": ("FLOOR_MIN", ": Final = -2"),
        "with a comment": ("_WAIT_S", ": Final = 1.0  # a second is long"),
    },
)
def test_a_limit_without_a_docstring_is_found(name: str, rest: str) -> None:
    assert list(unexplained(f"{name}{rest}\nA = 1\n")) == [(1, name)]


@rows(
    "text",
    {
        "explained": '_PAUSE_S: Final = 0.5\n"""A broker answers sooner."""',
        "no limit": "_WIDTH: Final = 760",
        "no number": '_NAMES_MAX: Final = "name"',
        "a switch": "_IS_MAX: Final = True",
        "of a function": "def f():\n    PAUSE_S = 1\n",
    },
)
def test_everything_else_passes(text: str) -> None:
    assert list(unexplained(text)) == []


def test_its_line_is_named() -> None:
    assert list(unexplained("A = 1\n\nPAUSE_S = 2\n")) == [(3, "PAUSE_S")]
