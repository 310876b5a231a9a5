"""What a setting may hold: one small rule per kind of value.

A setting is a dataclass field `name: Annotated[type, rule] = default`, so its type, bounds and
default stand on one line. `read` is strict: text is not a number; only `from_text`, for the
environment, converts. A rule that refuses says what is allowed, and never repeats the value.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, get_type_hints

from service.urls import without_user

_SHOWN_CHARS_MAX = 80


class RefusedError(ValueError):
    """A rule refused a value: why, and how to mend it where the default is not the answer."""

    def __init__(self, why: str, mend: str = "") -> None:
        super().__init__(why)
        self.why = why
        self.mend = mend


class Rule(Protocol):
    """What one setting may hold."""

    def read(self, value: object) -> object:
        """Return the value as the service uses it, or raise RefusedError."""

    def from_text(self, text: str) -> object:
        """Turn the text of an environment variable into what a TOML file would hold."""


def rules_of(section: type) -> dict[str, Rule]:
    """Return the rules of a section by the name of the setting."""
    hints = get_type_hints(section, include_extras=True)
    return {name: hint.__metadata__[0] for name, hint in hints.items()}


def shown(value: object) -> str:
    """Write a value as TOML would, cut to what fits a sentence."""
    match value:
        case bool():
            text = str(value).lower()
        case str() | Path():
            text = json.dumps(without_user(str(value)), ensure_ascii=False)
        case list() | tuple():
            text = f"[{', '.join(shown(item) for item in value)}]"
        case dict():
            text = "a table"
        case _:
            text = str(value)
    return text if len(text) <= _SHOWN_CHARS_MAX else f"{text[:_SHOWN_CHARS_MAX]}…"


@dataclass(frozen=True, slots=True)
class Whole:
    """A whole number from `low` to `high`, or one of a few others with a meaning of their own."""

    low: int
    high: int
    besides: tuple[int, ...] = ()

    def read(self, value: object) -> int:
        """Accept a number within the bounds; true and false are not numbers."""
        number = value if isinstance(value, int) and not isinstance(value, bool) else None
        if number is not None and (self.low <= number <= self.high or number in self.besides):
            return number
        others = "".join(f"{other} or " for other in self.besides)
        raise RefusedError(f"allowed is {others}a whole number from {self.low} to {self.high}")

    def from_text(self, text: str) -> object:
        """Read decimal digits; anything else stays text and is refused as such."""
        return int(text) if re.fullmatch(r"[+-]?[0-9]{1,18}", text.strip()) else text


@dataclass(frozen=True, slots=True)
class Share:
    """A part of the whole: from 0, none, to 1, all."""

    def read(self, value: object) -> float:
        """Accept a number within the bounds."""
        if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1:
            return float(value)
        raise RefusedError("allowed is a number from 0 to 1")

    def from_text(self, text: str) -> object:
        """Read a decimal fraction; anything else stays text and is refused as such."""
        return float(text) if re.fullmatch(r"[0-9]{0,9}\.?[0-9]{1,9}", text.strip()) else text


@dataclass(frozen=True, slots=True)
class Choice:
    """One of a few names."""

    names: tuple[str, ...]

    def read(self, value: object) -> str:
        """Accept one of the names."""
        if isinstance(value, str) and value in self.names:
            return value
        allowed = " or ".join(shown(name) for name in self.names)
        mend = f"write {shown(self.names[0])}" if len(self.names) == 1 else ""
        raise RefusedError(f"allowed is {allowed}", mend)

    def from_text(self, text: str) -> object:
        """Read a name in any case; anything else stays text and is refused as such."""
        return {name.lower(): name for name in self.names}.get(text.strip().lower(), text)


@dataclass(frozen=True, slots=True)
class Flag:
    """True or false."""

    def read(self, value: object) -> bool:
        """Accept a truth value; 0, 1 and "yes" are not truth values."""
        if isinstance(value, bool):
            return value
        raise RefusedError("allowed is true or false")

    def from_text(self, text: str) -> object:
        """Read true and false as TOML writes them, in any case."""
        return {"true": True, "false": False}.get(text.strip().lower(), text)


@dataclass(frozen=True, slots=True)
class Text:
    """Text of a given shape."""

    pattern: str
    allowed: str

    def read(self, value: object) -> str:
        """Accept text that fits the pattern as a whole."""
        if isinstance(value, str) and re.fullmatch(self.pattern, value, re.DOTALL):
            return value
        raise RefusedError(f"allowed is {self.allowed}")

    def from_text(self, text: str) -> object:
        """Return the text as it is."""
        return text


@dataclass(frozen=True, slots=True)
class Texts:
    """A list of texts of one shape."""

    item: Text

    def read(self, value: object) -> tuple[str, ...]:
        """Accept a list in which every item fits and none comes twice."""
        if not isinstance(value, Sequence) or isinstance(value, str):
            raise RefusedError(f"allowed is a list, each item {self.item.allowed}")
        items = tuple(self.item.read(item) for item in value)
        if len(set(items)) < len(items):
            raise RefusedError("allowed is a list in which no item comes twice")
        return items

    def from_text(self, text: str) -> object:
        """Split at commas."""
        return [item.strip() for item in text.split(",") if item.strip()]


@dataclass(frozen=True, slots=True)
class Folder:
    """The path of a folder; it need not exist yet."""

    def read(self, value: object) -> Path:
        """Accept a non-empty path."""
        if isinstance(value, str) and value and "\0" not in value:
            return Path(value)
        raise RefusedError("allowed is the path of a folder")

    def from_text(self, text: str) -> object:
        """Return the text as it is."""
        return text
