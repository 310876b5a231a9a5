"""Arguments: documents from a file or standard input, values KEY=VALUE, and positions."""

import json
import re
import sys
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import quote

from service.errors import ExitCode, ExitError

STDIN = Path("-")


def document_of(path: Path) -> dict[str, Any]:
    """Return the table that a file holds; `-` is standard input."""
    text = _text(path)
    try:
        told: Any = json.loads(text) if text.lstrip().startswith("{") else tomllib.loads(text)
    except ValueError as error:
        sentence = f"{_name(path)} is neither JSON nor TOML ({error}); mend it there."
        raise ExitError(ExitCode.USAGE, sentence) from error
    if not isinstance(told, dict):
        sentence = f"{_name(path)} holds no table; write keys and their values."
        raise ExitError(ExitCode.USAGE, sentence)
    return told


def lines_of_stdin() -> list[str]:
    """Return the lines of standard input that are not empty."""
    return [line for line in _text(STDIN).splitlines() if line]


def given_lines(path: Path) -> Iterator[bytes]:
    """Give the lines of a file; it can be read again."""
    try:
        with path.open("rb") as file:
            yield from file
    except OSError as error:
        sentence = f"{path} cannot be read ({error}); name another file."
        raise ExitError(ExitCode.USAGE, sentence) from error


def pairs_of(texts: Sequence[str]) -> dict[str, Any]:
    """Return keys and values: numbers and true or false as such, all else as text."""
    return dict(map(_pair, texts))


def _pair(text: str) -> tuple[str, Any]:
    key, equals, value = text.partition("=")
    if not key or not equals:
        sentence = f"{text!r} is no setting; write KEY=VALUE, as id_cache_size=5000."
        raise ExitError(ExitCode.USAGE, sentence)
    try:
        told = json.loads(value)
    except ValueError:
        return key, value
    return key, told if isinstance(told, bool | int) else value


def _text(path: Path) -> str:
    try:
        return sys.stdin.read() if path == STDIN else path.read_text("utf-8")
    except (OSError, ValueError) as error:
        sentence = f"{_name(path)} cannot be read ({error}); name another file, or - for a pipe."
        raise ExitError(ExitCode.USAGE, sentence) from error


def _name(path: Path) -> str:
    return "standard input" if path == STDIN else str(path)


Document = dict[str, Any]
"""A document of the API, as it came."""

PAGE_MAX: Final = 1_000


class InputDocument(NamedTuple):
    """A document, and the tag of what was read."""

    document: Document
    etag: str | None


def path_of(*segments: str) -> str:
    """A path of segments that may hold any character; one of dots is none to walk up."""
    return "/" + "/".join(_segment(each) for each in segments)


def _segment(text: str) -> str:
    return text.replace(".", "%2E") if text in {".", ".."} else quote(text, safe=":")


_PLACE: Final = re.compile(r"(?P<topic>.+)-(?P<partition>[0-9]{1,10})@(?P<offset>[0-9]{1,19})")


class RecordPosition(NamedTuple):
    """A record's."""

    topic: str
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}@{self.offset}"


def place_of(text: str) -> RecordPosition:
    """Return the place that a text names."""
    found = _PLACE.fullmatch(text)
    if found is None:
        sentence = (
            f"{text!r} is no place of a record; write topic-partition@offset, as orders-3@42."
        )
        raise ExitError(ExitCode.USAGE, sentence)
    return RecordPosition(found["topic"], int(found["partition"]), int(found["offset"]))
