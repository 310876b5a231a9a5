"""Command arguments: documents from a file or standard input, KEY=VALUE pairs, positions."""

import json
import re
import sys
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import quote

from ringfence_service.errors import ExitCode, ExitError

STDIN = Path("-")


def document_of(path: Path) -> dict[str, Any]:
    """Return the JSON object or TOML table of a file; `-` is standard input.

    Raises ExitError when it cannot be read or parsed.
    """
    text = _text(path)
    try:
        document: Any = json.loads(text) if text.lstrip().startswith("{") else tomllib.loads(text)
    except ValueError as error:
        sentence = f"{_name(path)} is neither JSON nor TOML ({error}); correct it there."
        raise ExitError(ExitCode.USAGE, sentence) from error
    if not isinstance(document, dict):
        sentence = f"{_name(path)} contains no table; write keys and their values."
        raise ExitError(ExitCode.USAGE, sentence)
    return document


def lines_of_stdin() -> list[str]:
    """Return the non-empty lines of standard input."""
    return [line for line in _text(STDIN).splitlines() if line]


def lines_of_file(path: Path) -> Iterator[bytes]:
    """Yield the lines of a file; raise ExitError when it cannot be read."""
    try:
        with path.open("rb") as file:
            yield from file
    except OSError as error:
        sentence = f"{path} cannot be read ({error}); name another file."
        raise ExitError(ExitCode.USAGE, sentence) from error


def pairs_of(texts: Sequence[str]) -> dict[str, Any]:
    """Return KEY=VALUE texts as a dict; integers and booleans are converted, the rest is text.

    Raises ExitError for a text without a key or `=`.
    """
    return dict(map(_pair, texts))


def _pair(text: str) -> tuple[str, Any]:
    key, equals, value = text.partition("=")
    if not key or not equals:
        sentence = f"{text!r} is not a setting; write KEY=VALUE, as in id_cache_size=5000."
        raise ExitError(ExitCode.USAGE, sentence)
    try:
        parsed = json.loads(value)
    except ValueError:
        return key, value
    return key, parsed if isinstance(parsed, bool | int) else value


def _text(path: Path) -> str:
    try:
        return sys.stdin.read() if path == STDIN else path.read_text("utf-8")
    except (OSError, ValueError) as error:
        sentence = f"{_name(path)} cannot be read ({error}); name another file, or - for a pipe."
        raise ExitError(ExitCode.USAGE, sentence) from error


def _name(path: Path) -> str:
    return "standard input" if path == STDIN else str(path)


Document = dict[str, Any]
"""A document of the API."""

PAGE_MAX: Final = 1_000
"""The largest `page_size` of the API, so that a long list takes the fewest requests."""


class InputDocument(NamedTuple):
    """A document and its ETag."""

    document: Document
    etag: str | None


def path_of(*segments: str) -> str:
    """Return a path of escaped segments; `.` and `..` do not navigate."""
    return "/" + "/".join(_segment(each) for each in segments)


def _segment(text: str) -> str:
    return text.replace(".", "%2E") if text in {".", ".."} else quote(text, safe=":")


_POSITION: Final = re.compile(r"(?P<topic>.+)-(?P<partition>[0-9]{1,10})@(?P<offset>[0-9]{1,19})")


class RecordPosition(NamedTuple):
    """The topic, partition and offset of a record."""

    topic: str
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}@{self.offset}"


def position_of(text: str) -> RecordPosition:
    """Return the position topic-partition@offset; raise ExitError for other text."""
    found = _POSITION.fullmatch(text)
    if found is None:
        sentence = (
            f"{text!r} is not the position of a record; write topic-partition@offset, as in "
            "orders-3@42."
        )
        raise ExitError(ExitCode.USAGE, sentence)
    return RecordPosition(found["topic"], int(found["partition"]), int(found["offset"]))
