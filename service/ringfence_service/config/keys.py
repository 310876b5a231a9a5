"""Configuration keys: what each setting of a section allows, validated by pydantic.

The annotations of the sections in `model.py` and `addresses.py` name the types that are defined
here, and are evaluated here alone: code that only has valid settings needs no pydantic.
"""

import difflib
import json
import re
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple, TypeVar, cast, get_type_hints

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
)
from pydantic.fields import FieldInfo
from pydantic_core import PydanticCustomError

from ringfence_client.headers import NAME_LENGTH_MAX
from ringfence_service.config.templates import expanded
from ringfence_service.errors import ConfigIssue, ConfigPath
from ringfence_service.formatting import short_duration_ms
from ringfence_service.urls import without_user
from ringfence_state.strategies.registry import STRATEGIES

_SHOWN_CHARS_MAX = 80
"""How much of a value a problem quotes: the rest of a long one would hide what is wrong."""

_UNITS_MS: Final = {"_ms": 1, "_s": 1000}
"""Ends of the names of keys that have durations."""

_STRICT = ConfigDict(strict=True, regex_engine="python-re")
"""A text is not a number, and true is not 1. The patterns are Python's."""


class InvalidValueError(ValueError):
    """A value that a setting does not allow, with the reason."""


class Key(NamedTuple):
    """A setting: what converts and validates its values, and their JSON Schema."""

    adapter: TypeAdapter[object]
    schema: Mapping[str, Any]

    @property
    def allowed(self) -> str:
        """Return the values that are allowed, as the end of a sentence."""
        return _allowed(self.schema)

    def read(self, value: object) -> object:
        """Return the value in the type that the service uses, or raise InvalidValueError."""
        try:
            return self.adapter.validate_python(value)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            if first["type"] == _REPEATED:
                raise InvalidValueError(first["msg"]) from None
            schema = self.schema.get("items", self.schema) if first["loc"] else self.schema
            raise InvalidValueError(f"must be {_allowed(schema)}") from None

    def meant(self, name: str, value: object) -> object | None:
        """Return the allowed value that a text in its place means; None if it means none.

        Numbers and booleans in quotes, durations for keys in milliseconds or seconds.
        """
        if not isinstance(value, str) or self.schema.get("type") in {"string", "array"}:
            return None
        unit_ms = next((ms for unit, ms in _UNITS_MS.items() if name.endswith(unit)), 0)
        span_ms = short_duration_ms(value.strip()) if unit_ms else None
        is_span = span_ms is not None and span_ms % unit_ms == 0
        found = (span_ms or 0) // unit_ms if is_span else self.from_text(value)
        try:
            return None if found == value else self.read(found)
        except InvalidValueError:
            return None

    def from_text(self, text: str) -> object:
        """Return the text of an environment variable as the value that TOML would have.

        Text that cannot be converted is returned unchanged, and `read` refuses it.
        """
        word = text.strip()
        match self.schema:
            case {"enum": names}:
                return {name.lower(): name for name in names}.get(word.lower(), text)
            case {"type": "boolean"}:
                return {"true": True, "false": False}.get(word.lower(), text)
            case {"type": "array"}:
                return [item.strip() for item in text.split(",") if item.strip()]
            case {"type": "string"}:
                return text
            case _:
                return (
                    _number(word) if re.fullmatch(r"[+-]?[0-9]{0,18}\.?[0-9]{1,18}", word) else text
                )


@cache
def keys_of(section: type) -> Mapping[str, Key]:
    """Return the settings of a section, by name."""
    hints = get_type_hints(section, localns=globals(), include_extras=True)
    adapters = {name: TypeAdapter[object](hint, config=_STRICT) for name, hint in hints.items()}
    return {name: Key(adapter, adapter.json_schema()) for name, adapter in adapters.items()}


def _number(text: str) -> int | float:
    return float(text) if "." in text else int(text)


def _allowed(schema: Mapping[str, Any]) -> str:
    """Return the values that a schema allows, as the end of a sentence."""
    match schema:
        case {"description": description}:
            allowed = str(description)
        case {"anyOf": choices}:
            allowed = " or ".join(map(_allowed, choices))
        case {"const": value}:
            allowed = shown(value)
        case {"enum": names}:
            allowed = " or ".join(map(shown, names))
        case {"items": items}:
            allowed = f"a list, each item {_allowed(items)}"
        case {"minimum": low, "maximum": high}:
            kind = "a whole number" if schema["type"] == "integer" else "a number"
            allowed = f"{kind} from {low} to {high}"
        case _:
            allowed = "true or false"
    return allowed


def shown(value: object) -> str:
    """Return a value as TOML, shortened to fit a sentence."""
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


_REPEATED = "repeated_items"


def _distinct(items: tuple[str, ...]) -> tuple[str, ...]:
    if len(set(items)) < len(items):
        raise PydanticCustomError(_REPEATED, "must be a list without repeated items")
    return items


T = TypeVar("T")

Distinct = Annotated[
    tuple[T, ...],
    Field(strict=False, json_schema_extra={"uniqueItems": True}),
    AfterValidator(_distinct),
]
"""TOML has lists, and the service uses tuples."""


def _text(allowed: str, pattern: str, longest: int | None = None) -> FieldInfo:
    """Return the field of a text that a pattern matches as a whole; `allowed` is for users."""
    whole = rf"\A(?s:{pattern})\Z"
    return cast("FieldInfo", Field(description=allowed, pattern=whole, max_length=longest))


TOPIC_SHAPE: Final = rf"(?!\.{{1,2}}\Z)[a-zA-Z0-9._-]{{1,{NAME_LENGTH_MAX}}}"
"""Regular expression of the topic names that Kafka allows."""

_CHARACTERS = r"[a-zA-Z0-9._-]*[a-zA-Z0-9_-][a-zA-Z0-9._-]*|\.{3,}"  # neither . nor ..

Group = Annotated[
    str, _text("a name of 1 to 180 letters, digits, dots, `_` and `-`", _CHARACTERS, 180)
]

Instance = Annotated[
    str, _text("text of 1 to 60 letters, digits, dots, `_` and `-`", _CHARACTERS, 60)
]

RouteName = Annotated[
    str, _text("a name of 1 to 249 characters without `/`", r"[^\x00-\x1f/]+", 249)
]

Input = Annotated[
    str,
    _text(
        "a topic name or one regular expression that starts with ^",
        rf"{TOPIC_SHAPE}|\^.{{1,1000}}",
    ),
]

Topic = Annotated[
    str, _text("a topic name (1 to 249 letters, digits, dots, `_` and `-`)", TOPIC_SHAPE)
]

Template = Annotated[str, _text("text of 1 to 1000 characters", ".+", 1000)]

IdTemplate = Annotated[
    str, _text("text of at most 1000 characters", ".*", 1000), AfterValidator(expanded)
]

AnyText = Annotated[str, _text("text", ".*")]

Host = Annotated[str, _text("a host name or an address to listen on", r"[^\s/]+", 255)]

HostName = Annotated[
    str,
    _text("a host name, without a port", r"[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?", 253),
]

File = Annotated[str, _text("the path of a file", r"[^\x00]*", 4096)]

Url = Annotated[
    str,
    _text(
        "a URL that begins with https:// or http://, without a user",
        r"(https?://[^\s/?#@]+([/?#]\S*)?)?",
        2500,
    ),
]

PlainUrl = Annotated[
    str,
    _text(
        "a URL that begins with https:// or http://, without a user, ? and #",
        r"(https?://[^\s/?#@]+(/[^\s?#]*)?)?",
        1000,
    ),
]

User = Annotated[str, _text("the name of a user, without a colon", r"[^:\x00-\x1f]*", 1000)]

Password = Annotated[str, _text("text of at most 1000 characters", ".*", 1000)]

Claim = Annotated[str, _text("the name of a claim; dots lead into nested ones", r"\S+", 200)]

Algorithm = Annotated[
    str,
    _text(
        "RS256, PS256, ES256, their 384 and 512, or EdDSA",
        "(RS|PS|ES)(256|384|512)|EdDSA",
    ),
]

RoleOf = Annotated[
    str,
    _text(
        "VALUE=ROLE, where ROLE is viewer, operator, admin or payload:read",
        "[^=]{1,200}=(viewer|operator|admin|payload:read)",
    ),
]


def _folder(value: object) -> Path:
    if isinstance(value, str) and value and "\0" not in value and not value.startswith("~"):
        return Path(value)
    raise ValueError


Folder = Annotated[
    Path, BeforeValidator(_folder), Field(description="the path of a folder, without ~")
]
"""The folder need not exist yet."""

Port = Annotated[int, Field(ge=0, le=65_535)]


def _lower(value: object) -> object:
    return value.lower() if isinstance(value, str) else value


AnyCase = BeforeValidator(_lower)
"""Allows capitals, in which other programs write the levels of logs."""


def _known_strategy(name: str) -> str:
    if name not in STRATEGIES:
        raise ValueError
    return name


StrategyName = Annotated[
    str, AfterValidator(_known_strategy), Field(json_schema_extra={"enum": list(STRATEGIES)})
]


S = TypeVar("S")


_SECRET_KEYS: Final = frozenset({"password"})


class GivenValue(NamedTuple):
    """A value, and its name for its author: a key of the file or an environment variable."""

    value: object
    name: str


class GivenSection(NamedTuple):
    """The keys that one section contains, and where it is."""

    path: ConfigPath
    keys: Mapping[str, GivenValue]


def read_section(section: type[S], table: GivenSection, problems: list[ConfigIssue]) -> S:
    """Validate a table as a section; an invalid key adds a problem and keeps its default."""
    accepted = read_keys(section, table, problems)
    make = cast("Callable[..., S]", section)
    return make(**accepted)


def read_keys(section: type, table: GivenSection, problems: list[ConfigIssue]) -> dict[str, object]:
    """Return only the valid keys of a table: keys that are merged later have no default yet."""
    known = keys_of(section)
    accepted: dict[str, object] = {}
    for key, given in table.keys.items():
        paths = ((*table.path, key),)
        if key not in known:
            problems.append(_unknown(given.name, key, known)._replace(paths=paths))
            continue
        try:
            accepted[key] = known[key].read(given.value)
        except InvalidValueError as error:
            default = getattr(section(), key)
            meant = known[key].meant(key, given.value)
            problems.append(_invalid(given, key, error, default, meant)._replace(paths=paths))
    return accepted


def _unknown(name: str, key: str, known: Iterable[str]) -> ConfigIssue:
    """Return the problem of an unknown key: the most similar known key, or all of them.

    It leaves out the value, which may be a misplaced secret.
    """
    what = f"{name} is not a setting"
    near = nearest(key, known)
    if near is not None:
        return ConfigIssue(what, f"the nearest is {near}: rename or remove it")
    return ConfigIssue(f"{what}; known are {', '.join(sorted(known))}", "remove it")


def nearest(word: str, known: Iterable[str], cutoff: float = 0.6) -> str | None:
    """Return the known word that is most similar to this one, or None."""
    return next(iter(difflib.get_close_matches(word, list(known), n=1, cutoff=cutoff)), None)


def _invalid(
    given: GivenValue, key: str, error: InvalidValueError, default: object, meant: object
) -> ConfigIssue:
    """Return the problem of a value; `meant` is the one that its author most likely means."""
    value = '"***"' if key in _SECRET_KEYS else shown(given.value)
    what = f"{given.name} is {value}: {error}"
    if meant is not None:
        how = "remove the quotes: write" if str(given.value).strip() == shown(meant) else "write"
        return ConfigIssue(what, f"{how} {shown(meant)}")
    if default in ("", ()):
        return ConfigIssue(what, f"change {key}")
    return ConfigIssue(what, f"change it, or remove it for the default {shown(default)}")
