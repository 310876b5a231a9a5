"""Forms: the fields that a page sends, and the redirect that follows.

Authorization checks that a form came from the console's own pages.
"""

import json
import tomllib
from collections.abc import Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import quote, urlencode

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from ringfence_api.console.client import ApiProblem, PageFailed
from ringfence_api.form import read_fields
from ringfence_api.parameters import parse_position
from ringfence_api.problems import ProblemError
from ringfence_client.headers import Reason


async def read(request: Request, *names: str) -> dict[str, str]:
    """Read a form, with values stripped; fields in `names` that were not sent are empty."""
    try:
        sent = await read_fields(request)
    except ProblemError as error:
        kind = error.kind
        raise PageFailed(ApiProblem(kind.status, kind.name, kind.title, error.detail)) from None
    return dict.fromkeys(names, "") | sent


def query_of(request: Request) -> dict[str, str]:
    """Return the query parameters of a page, with values stripped and empty ones omitted."""
    query = {key: value.strip() for key, value in request.query_params.items()}
    return {key: value for key, value in query.items() if value}


def segment(text: str) -> str:
    """Encode text as one path segment; `.` and `..` alone would be normalised away."""
    return quote(text, safe="") if text not in {".", ".."} else text.replace(".", "%2E")


def to(path: str, **query: str) -> str:
    """Return the URL of a page; empty query parameters are omitted."""
    given = {key: value for key, value in query.items() if value}
    return f"{path}?{urlencode(given)}" if given else path


def redirect(path: str, **query: str) -> Response:
    """Redirect the browser, after a form, to the page that shows the result."""
    return RedirectResponse(to(path, **query), 303)


FIELDS: Final = ("topic", "address", "reason", "from", "to", "header_name", "header_value", "key")

LETTER: Final = "letter"
"""The field with the position of a single dead letter, instead of criteria."""

REASONS: Final = tuple(map(str, Reason))


class FilterForm(NamedTuple):
    """The criteria for dead letters, or the position of one: the non-empty fields of a form."""

    fields: dict[str, str]

    @property
    def letter(self) -> str:
        """Return the position of the single dead letter; empty for criteria."""
        return self.fields.get(LETTER, "")

    @classmethod
    def of(cls, values: dict[str, str]) -> "FilterForm":
        """Select the criteria from the parameters of a page."""
        if values.get(LETTER):
            return cls({LETTER: values[LETTER]})
        return cls({name: values[name] for name in FIELDS if values.get(name)})

    def query(self) -> dict[str, str]:
        """Return the query parameters of `/v1/dead-letters`."""
        fields = dict(self.fields)
        name, value = fields.pop("header_name", ""), fields.pop("header_value", "")
        if name:
            fields[f"header.{name}"] = value
        return {key: _time(key, text) for key, text in fields.items()}

    def order(self) -> dict[str, Any]:
        """Return the topics and the filter of a redrive, or its letter. Raise NotPossible."""
        if self.letter:
            names = ("topic", "partition", "offset")
            return {"letters": [dict(zip(names, parse_position(self.letter), strict=True))]}
        fields = dict(self.fields)
        topic, reason = fields.pop("topic", ""), fields.pop("reason", "")
        name, value = fields.pop("header_name", ""), fields.pop("header_value", "")
        filter_: dict[str, Any] = {key: _time(key, text) for key, text in fields.items()}
        if reason:
            filter_["reason"] = [reason]
        if name:
            filter_["header"] = {name: value}
        return {"topics": [topic] if topic else [], "filter": filter_}

    def sentence(self) -> str:
        """Return the criteria in words."""
        if self.letter:
            return f"the dead letter {self.letter}"
        words = {"header_name": "header", "header_value": "="}
        units = {"from": " UTC", "to": " UTC"}
        parts = [
            f"{words.get(name, name)} {text}{units.get(name, '')}"
            for name, text in self.fields.items()
        ]
        return ", ".join(parts) or "all dead letters of the group"


def _time(name: str, text: str) -> str:
    return f"{text}Z" if name in {"from", "to"} and not text.endswith("Z") else text


def as_toml(keys: Mapping[str, object]) -> str:
    """Return TOML with one line per key."""
    return "".join(f"{_key(key)} = {_value(value)}\n" for key, value in sorted(keys.items()))


def from_toml(text: str) -> dict[str, Any]:
    """Parse TOML whose values JSON can represent. Raise ValueError with a message for the user."""
    try:
        keys = tomllib.loads(text.replace("\r\n", "\n"))
        json.dumps(keys, allow_nan=False)
    except tomllib.TOMLDecodeError as error:
        sentence = f"The text is not valid: {error}. Write a key and its value on each line."
        raise ValueError(sentence) from None
    except (TypeError, ValueError, RecursionError):
        sentence = (
            "A setting cannot be a date, a time, inf, nan, a number of thousands of digits or a"
            " nested list; write text, a number, true, false or a list of texts."
        )
        raise ValueError(sentence) from None
    return keys


def _key(key: str) -> str:
    bare = key.replace("_", "").replace("-", "")
    return key if bare.isascii() and bare.isalnum() else _quoted(key)


def _value(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return f"[{', '.join(_value(each) for each in value)}]"
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{_key(k)} = {_value(v)}" for k, v in value.items()) + " }"
    if isinstance(value, int | float):
        return str(value)
    return _quoted(str(value))


def _quoted(text: str) -> str:
    """Return a TOML string: a JSON string, with DEL escaped, which only TOML requires."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
