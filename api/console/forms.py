"""Forms: the fields that a page sends, and the page that follows.

Authorization checks that a form came from the console's own pages.
"""

import json
import tomllib
from collections.abc import Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import quote, urlencode

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from api.console.client import ApiProblem, PageFailed
from api.problems import INVALID
from ringfence.headers import Reason

FIELDS_MAX: Final = 200


async def read(request: Request, *names: str) -> dict[str, str]:
    """The fields of a form, without spaces around them; of `names`, what is not sent is empty."""
    async with request.form(max_files=0, max_fields=FIELDS_MAX) as form:
        sent = {key: value.strip() for key, value in form.items() if isinstance(value, str)}
    try:  # the client chooses the encoding of a form
        "".join((*sent, *sent.values())).encode()
    except UnicodeEncodeError:
        detail = "The form holds half of a character; fill it in again, and send it as UTF-8."
        raise PageFailed(ApiProblem(INVALID.status, INVALID.name, INVALID.title, detail)) from None
    return dict.fromkeys(names, "") | sent


def asked(request: Request) -> dict[str, str]:
    """What stands in the address of a page, without spaces around it and without what is empty."""
    told = {key: value.strip() for key, value in request.query_params.items()}
    return {key: value for key, value in told.items() if value}


def segment(text: str) -> str:
    """Any text as one step of a path; one or two dots alone would be taken for a way up."""
    return quote(text, safe="") if text not in {".", ".."} else text.replace(".", "%2E")


def to(path: str, **query: str) -> str:
    """The address of a page."""
    told = {key: value for key, value in query.items() if value}
    return f"{path}?{urlencode(told)}" if told else path


def see(path: str, **query: str) -> Response:
    """Send who has sent a form to the page that shows what became of it."""
    return RedirectResponse(to(path, **query), 303)


FIELDS: Final = ("topic", "address", "reason", "from", "to", "header_name", "header_value", "key")

REASONS: Final = tuple(map(str, Reason))


class FilterForm(NamedTuple):
    """Which dead letters are meant: fields of a form, none of them empty."""

    fields: dict[str, str]

    @classmethod
    def of(cls, told: dict[str, str]) -> "FilterForm":
        """Out of all that a page was told."""
        return cls({name: told[name] for name in FIELDS if told.get(name)})

    def query(self) -> dict[str, str]:
        """For what lists and counts them."""
        told = dict(self.fields)
        name, value = told.pop("header_name", ""), told.pop("header_value", "")
        if name:
            told[f"header.{name}"] = value
        return {key: _time(key, text) for key, text in told.items()}

    def order(self) -> dict[str, Any]:
        """For what redrives them."""
        told = dict(self.fields)
        topic, reason = told.pop("topic", ""), told.pop("reason", "")
        name, value = told.pop("header_name", ""), told.pop("header_value", "")
        filter_: dict[str, Any] = {key: _time(key, text) for key, text in told.items()}
        if reason:
            filter_["reason"] = [reason]
        if name:
            filter_["header"] = {name: value}
        return {"topics": [topic] if topic else [], "filter": filter_}

    def sentence(self) -> str:
        """In words."""
        words = {"header_name": "header", "header_value": "="}
        told = [f"{words.get(name, name)} {text}" for name, text in self.fields.items()]
        return ", ".join(told) or "all dead letters of the group"


def _time(name: str, text: str) -> str:
    return f"{text}Z" if name in {"from", "to"} and not text.endswith("Z") else text


def as_toml(keys: Mapping[str, object]) -> str:
    """One line for each key."""
    return "".join(f"{_key(key)} = {_value(value)}\n" for key, value in sorted(keys.items()))


def from_toml(text: str) -> dict[str, Any]:
    """The keys and values of a text, all of which JSON can hold; ValueError says what is wrong."""
    try:
        keys = tomllib.loads(text.replace("\r\n", "\n"))
        json.dumps(keys, allow_nan=False)
    except tomllib.TOMLDecodeError as error:
        sentence = f"The text cannot be read: {error}. Write a key and its value on each line."
        raise ValueError(sentence) from None
    except (TypeError, ValueError, RecursionError):
        sentence = (
            "No setting holds a date, a time, inf, nan, thousands of digits or lists within lists;"
            " write text, a number, true, false or a list of texts."
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
    """JSON's strings are TOML's, but for one character that TOML wants escaped."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
