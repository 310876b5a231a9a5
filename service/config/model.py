"""Configuration model: the sections as frozen values, each key with its bounds and its default.

Field names are the keys of the file. Values are validated here, and by no other module again.
"""

import difflib
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, Literal, NamedTuple, Protocol, TypeVar, cast, get_type_hints

from service.errors import ConfigIssue
from service.urls import without_user

_SHOWN_CHARS_MAX = 80


class InvalidValueError(ValueError):
    """A value that a setting does not allow.

    `why` is the reason; `fix` says what to write if the default is not the answer.
    """

    def __init__(self, why: str, fix: str = "") -> None:
        super().__init__(why)
        self.why = why
        self.fix = fix


class Validator(Protocol):
    """Rule for the values that one setting allows."""

    def read(self, value: object) -> object:
        """Return the value in the type that the service uses, or raise InvalidValueError."""

    def from_text(self, text: str) -> object:
        """Convert the text of an environment variable to the value that TOML would have."""


def rules_of(section: type) -> dict[str, Validator]:
    """Return the validators of a section, by setting."""
    hints = get_type_hints(section, include_extras=True)
    return {name: hint.__metadata__[0] for name, hint in hints.items()}


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


@dataclass(frozen=True, slots=True)
class IntegerValue:
    """A whole number from `low` to `high`, or one of the special values `besides`."""

    low: int
    high: int
    besides: tuple[int, ...] = ()

    def read(self, value: object) -> int:
        """Accept a number within the bounds; true and false are not numbers."""
        number = value if isinstance(value, int) and not isinstance(value, bool) else None
        if number is not None and (self.low <= number <= self.high or number in self.besides):
            return number
        others = "".join(f"{other} or " for other in self.besides)
        raise InvalidValueError(f"must be {others}a whole number from {self.low} to {self.high}")

    def from_text(self, text: str) -> object:
        """Parse decimal digits; any other text stays as it is, and `read` refuses it."""
        return int(text) if re.fullmatch(r"[+-]?[0-9]{1,18}", text.strip()) else text


@dataclass(frozen=True, slots=True)
class FractionValue:
    """A number from 0 to 1."""

    def read(self, value: object) -> float:
        """Accept a number from 0 to 1; true and false are not numbers."""
        if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1:
            return float(value)
        raise InvalidValueError("must be a number from 0 to 1")

    def from_text(self, text: str) -> object:
        """Parse a decimal fraction; any other text stays as it is, and `read` refuses it."""
        return float(text) if re.fullmatch(r"[0-9]{0,9}\.?[0-9]{1,9}", text.strip()) else text


@dataclass(frozen=True, slots=True)
class ChoiceValue:
    """One of a few names."""

    names: tuple[str, ...]

    def read(self, value: object) -> str:
        """Accept one of the names."""
        if isinstance(value, str) and value in self.names:
            return value
        allowed = " or ".join(shown(name) for name in self.names)
        fix = f"write {shown(self.names[0])}" if len(self.names) == 1 else ""
        raise InvalidValueError(f"must be {allowed}", fix)

    def from_text(self, text: str) -> object:
        """Match a name in any case; any other text stays as it is, and `read` refuses it."""
        return {name.lower(): name for name in self.names}.get(text.strip().lower(), text)


@dataclass(frozen=True, slots=True)
class BooleanValue:
    """True or false."""

    def read(self, value: object) -> bool:
        """Accept a boolean; 0, 1 and "yes" are not booleans."""
        if isinstance(value, bool):
            return value
        raise InvalidValueError("must be true or false")

    def from_text(self, text: str) -> object:
        """Parse true and false, in any case."""
        return {"true": True, "false": False}.get(text.strip().lower(), text)


@dataclass(frozen=True, slots=True)
class TextValue:
    """Text that matches a regular expression; `allowed` describes it for users."""

    pattern: str
    allowed: str

    def read(self, value: object) -> str:
        """Accept text that the pattern matches as a whole."""
        if isinstance(value, str) and re.fullmatch(self.pattern, value, re.DOTALL):
            return value
        raise InvalidValueError(f"must be {self.allowed}")

    def from_text(self, text: str) -> object:
        """Return the text as it is."""
        return text


@dataclass(frozen=True, slots=True)
class TextListValue:
    """A list of distinct texts, each of which `item` allows."""

    item: TextValue

    def read(self, value: object) -> tuple[str, ...]:
        """Accept a list of valid items without repeats."""
        if not isinstance(value, Sequence) or isinstance(value, str):
            raise InvalidValueError(f"must be a list, each item {self.item.allowed}")
        items = tuple(self.item.read(item) for item in value)
        if len(set(items)) < len(items):
            raise InvalidValueError("must be a list without repeated items")
        return items

    def from_text(self, text: str) -> object:
        """Split at commas."""
        return [item.strip() for item in text.split(",") if item.strip()]


@dataclass(frozen=True, slots=True)
class FolderValue:
    """The path of a folder; it need not exist yet."""

    def read(self, value: object) -> Path:
        """Accept a non-empty path."""
        if isinstance(value, str) and value and "\0" not in value:
            return Path(value)
        raise InvalidValueError("must be the path of a folder")

    def from_text(self, text: str) -> object:
        """Return the text as it is."""
        return text


TOPIC_SHAPE: Final = r"(?!\.{1,2}\Z)[a-zA-Z0-9._-]{1,249}"
"""Regular expression of the topic names that Kafka allows."""

EXPRESSION_MARKER: Final = "^"
"""First character of an input that is a regular expression."""

MissingOffset = Literal["earliest", "latest", "fail"]

LostOffset = Literal["fail", "earliest", "latest"]

ResetOffset = Literal["fail", "keep_state", "clear_state"]

ManagedBy = Literal["rest", "file"]

Scope = Literal["address", "partition"]

Auth = Literal["", "none", "tokens", "oidc", "tokens+oidc"]

AUTH: Final = ("", "none", "tokens", "oidc", "tokens+oidc")

LogLevel = Literal["debug", "info", "warning", "error"]

LOG_LEVELS: Final = ("debug", "info", "warning", "error")

LogFormat = Literal["auto", "json", "text"]

LOG_FORMATS: Final = ("auto", "json", "text")

MissingId = Literal["pass", "stamp", "dead_letter"]

_NAME = r"(?!\.{1,2}\Z)[a-zA-Z0-9._-]"

_GROUP = TextValue(_NAME + r"{1,180}", "a name of 1 to 180 letters, digits, dots, `_` and `-`")

_INSTANCE = TextValue(_NAME + r"{1,60}", "text of 1 to 60 letters, digits, dots, `_` and `-`")

_ROUTE_NAME = TextValue(r"[^\x00-\x1f/]{1,249}", "a name of 1 to 249 characters without `/`")

_INPUT = TextValue(
    rf"{TOPIC_SHAPE}|\^.{{1,1000}}",
    "a topic name or one regular expression that starts with ^",
)

_TOPIC = TextValue(TOPIC_SHAPE, "a topic name (1 to 249 letters, digits, dots, `_` and `-`)")

_TEMPLATE = TextValue(r".{1,1000}", "text of 1 to 1000 characters")

_TEMPLATE_OR_NONE = TextValue(r".{0,1000}", "text of at most 1000 characters")

_ANY_TEXT = TextValue(r".*", "text")

_HOST = TextValue(r"[^\s/]{1,255}", "a host name or an address to listen on")

_HOST_NAME = TextValue(
    r"[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?", "a host name, without a port"
)

_FILE = TextValue(r"[^\x00]{0,4096}", "the path of a file")

_URL = TextValue(
    r"(https?://[^\s/?#@]{1,500}([/?#][^\s]{0,2000})?)?",
    "a URL that begins with https:// or http://, without a user",
)

_PLAIN_URL = TextValue(
    r"(https?://[^\s/?#@]{1,500}(/[^\s?#]{0,500})?)?",
    "a URL that begins with https:// or http://, without a user, ? and #",
)

_CLAIM = TextValue(r"[^\s]{1,200}", "the name of a claim; dots lead into nested ones")

_ALGORITHM = TextValue(
    r"(RS|PS|ES)(256|384|512)|EdDSA", "RS256, PS256, ES256, their 384 and 512, or EdDSA"
)

_ROLE_OF = TextValue(
    r"[^=]{1,200}=(viewer|operator|admin|payload:read)",
    "VALUE=ROLE, where ROLE is viewer, operator, admin or payload:read",
)


@dataclass(frozen=True, slots=True)
class ServiceSettings:
    """`[service]`: the consumer group, its batches, timeouts and state."""

    group_id: Annotated[str, _GROUP] = "ringfence"
    instance: Annotated[str, _INSTANCE] = "0"
    workers: Annotated[int, IntegerValue(1, 64)] = 1
    state_dir: Annotated[Path, FolderValue()] = Path("./state-data")
    batch_records_max: Annotated[int, IntegerValue(1, 1_000_000)] = 10_000
    batch_bytes_max: Annotated[int, IntegerValue(1024 * 1024, 1024**3)] = 64 * 1024 * 1024
    batch_wait_ms: Annotated[int, IntegerValue(1, 10_000)] = 20
    transaction_timeout_ms: Annotated[int, IntegerValue(1_000, 900_000)] = 10_000
    session_timeout_ms: Annotated[int, IntegerValue(1_000, 1_800_000)] = 10_000
    cache_memory_mb: Annotated[int, IntegerValue(1, 1_048_576)] = 256
    by_address_partitions: Annotated[int, IntegerValue(1, 10_000)] = 12
    internal_replication: Annotated[int, IntegerValue(1, 100, besides=(-1,))] = -1
    create_topics: Annotated[bool, BooleanValue()] = False
    on_missing_offset: Annotated[MissingOffset, ChoiceValue(("earliest", "latest", "fail"))] = (
        "earliest"
    )
    on_lost_offset: Annotated[LostOffset, ChoiceValue(("fail", "earliest", "latest"))] = "fail"
    on_reset_offset: Annotated[ResetOffset, ChoiceValue(("fail", "keep_state", "clear_state"))] = (
        "fail"
    )
    managed_by: Annotated[ManagedBy, ChoiceValue(("rest", "file"))] = "rest"


@dataclass(frozen=True, slots=True)
class ApiSettings:
    """`[api]`: where the admin API listens, and who may use it; port 0 is any free port."""

    host: Annotated[str, _HOST] = "127.0.0.1"
    port: Annotated[int, IntegerValue(0, 65_535)] = 8080
    advertised_url: Annotated[str, _PLAIN_URL] = ""
    allowed_hosts: Annotated[tuple[str, ...], TextListValue(_HOST_NAME)] = ()
    peer_token_file: Annotated[str, _FILE] = ""
    auth: Annotated[Auth, ChoiceValue(AUTH)] = ""
    tokens_file: Annotated[str, _FILE] = ""
    oidc_issuer: Annotated[str, _URL] = ""
    oidc_audience: Annotated[str, _ANY_TEXT] = ""
    oidc_jwks_url: Annotated[str, _URL] = ""
    oidc_algorithms: Annotated[tuple[str, ...], TextListValue(_ALGORITHM)] = (
        "RS256",
        "ES256",
        "EdDSA",
    )
    oidc_leeway_s: Annotated[int, IntegerValue(0, 300)] = 30
    oidc_name_claim: Annotated[str, _CLAIM] = "sub"
    oidc_roles_claim: Annotated[str, _CLAIM] = "roles"
    oidc_roles: Annotated[tuple[str, ...], TextListValue(_ROLE_OF)] = ()
    session_max_s: Annotated[int, IntegerValue(60, 86_400)] = 3_600
    session_key_file: Annotated[str, _FILE] = ""
    protect_metrics: Annotated[bool, BooleanValue()] = False
    metrics_addresses: Annotated[bool, BooleanValue()] = False
    probe_port: Annotated[int, IntegerValue(0, 65_535)] = 0
    tls_cert_file: Annotated[str, _FILE] = ""
    tls_key_file: Annotated[str, _FILE] = ""
    tls_client_ca_file: Annotated[str, _FILE] = ""
    connections_max: Annotated[int, IntegerValue(8, 65_535)] = 256
    connections_per_address_max: Annotated[int, IntegerValue(4, 65_535)] = 64
    body_bytes_max: Annotated[int, IntegerValue(1_024, 1024**3)] = 16 * 1024 * 1024
    audit_records_max: Annotated[int, IntegerValue(100, 1_000_000)] = 10_000

    @property
    def own_url(self) -> str:
        """Return the URL of the API on this machine."""
        scheme = "https" if self.tls_cert_file else "http"
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.host, self.host)  # noqa: S104 - not bound
        return f"{scheme}://{f'[{host}]' if ':' in host else host}:{self.port}"

    @property
    def takes_tokens(self) -> bool:
        """Whether the API accepts tokens of the tokens file."""
        return "tokens" in self.auth

    @property
    def takes_oidc(self) -> bool:
        """Whether the API accepts tokens of the OIDC issuer."""
        return "oidc" in self.auth

    @property
    def asks_who(self) -> bool:
        """Whether a request has to be authenticated."""
        return self.takes_tokens or self.takes_oidc


@dataclass(frozen=True, slots=True)
class LogSettings:
    """`[log]`: level and format of the log on stderr."""

    level: Annotated[LogLevel, ChoiceValue(LOG_LEVELS)] = "info"
    format: Annotated[LogFormat, ChoiceValue(LOG_FORMATS)] = "auto"


@dataclass(frozen=True, slots=True)
class TracingSettings:
    """`[tracing]`: where spans are exported, and for which part of transactions; off by default."""

    endpoint: Annotated[str, _URL] = ""
    sample_ratio: Annotated[float, FractionValue()] = 0.01
    links_max: Annotated[int, IntegerValue(0, 128)] = 32


@dataclass(frozen=True, slots=True)
class RouteSettings:
    """One of `[[routes]]`: its inputs, address, id and targets."""

    name: Annotated[str, _ROUTE_NAME] = ""
    inputs: Annotated[tuple[str, ...], TextListValue(_INPUT)] = ()
    scope: Annotated[Scope, ChoiceValue(("address", "partition"))] = "address"
    address: Annotated[str, _TEMPLATE] = "{topic}"
    id: Annotated[str, _TEMPLATE_OR_NONE] = ""
    output: Annotated[str, _TEMPLATE] = "{topic}.unique"
    dead_letter: Annotated[str, _TEMPLATE] = "{topic}.dlq"
    allowed_outputs: Annotated[tuple[str, ...], TextListValue(_TOPIC)] = ()
    missing_id: Annotated[MissingId, ChoiceValue(("pass", "stamp", "dead_letter"))] = "pass"
    on_partitions_added: Annotated[Literal["fail", "keep"], ChoiceValue(("fail", "keep"))] = "fail"


@dataclass(frozen=True, slots=True)
class BridgeSettings:
    """`[bridge]`: which topics of one cluster are forwarded to which of another, and how."""

    topics: Annotated[tuple[str, ...], TextListValue(_INPUT)] = ()
    target_topic: Annotated[str, _TEMPLATE] = "{topic}"
    use_duplicate_detection: Annotated[bool, BooleanValue()] = True
    keep_partition: Annotated[bool, BooleanValue()] = True
    group_id: Annotated[str, _GROUP] = "ringfence-bridge"
    session_timeout_ms: Annotated[int, IntegerValue(1_000, 240_000)] = 10_000
    dead_letter: Annotated[str, _TEMPLATE] = "{group_id}.dead-letters"


S = TypeVar("S")


# The value of an unknown key may be a misplaced secret.
_SECRET: Final = re.compile(r"passw|passphrase|secret|token|credential|jaas|pem")


class GivenValue(NamedTuple):
    """A value, and its name for its author: a key of the file or an environment variable."""

    value: object
    name: str


class GivenSection(NamedTuple):
    """The keys that one section contains, and its full name."""

    name: str
    keys: Mapping[str, GivenValue]


def read_section(section: type[S], table: GivenSection, problems: list[ConfigIssue]) -> S:
    """Validate a table as a section; an invalid key adds a problem and keeps its default."""
    accepted = read_keys(section, table, problems)
    make = cast("Callable[..., S]", section)
    return make(**accepted)


def read_keys(section: type, table: GivenSection, problems: list[ConfigIssue]) -> dict[str, object]:
    """Return only the valid keys of a table: keys that are merged later have no default yet."""
    rules = rules_of(section)
    accepted: dict[str, object] = {}
    for key, given in table.keys.items():
        if key not in rules:
            problems.append(_unknown(given, key, rules))
            continue
        try:
            accepted[key] = rules[key].read(given.value)
        except InvalidValueError as error:
            default = getattr(section(), key)
            problems.append(_invalid(given, key, error, default))
    return accepted


def _unknown(given: GivenValue, key: str, known: Iterable[str]) -> ConfigIssue:
    """Return the problem of an unknown key: the known keys, and the one that is most similar."""
    value = '"***"' if _SECRET.search(key) else shown(given.value)
    what = f"{given.name} is not a setting (it is {value}); known are {', '.join(sorted(known))}"
    near = nearest(key, known)
    return ConfigIssue(what, f"the nearest is {near}: rename or remove it" if near else "remove it")


def nearest(word: str, known: Iterable[str], cutoff: float = 0.6) -> str | None:
    """Return the known word that is most similar to this one, or None."""
    return next(iter(difflib.get_close_matches(word, list(known), n=1, cutoff=cutoff)), None)


def _invalid(given: GivenValue, key: str, error: InvalidValueError, default: object) -> ConfigIssue:
    what = f"{given.name} is {shown(given.value)}: {error.why}"
    usual = f"change it, or remove it for the default {shown(default)}"
    if default in ("", ()):
        usual = f"change {key}"
    return ConfigIssue(what, error.fix or usual)
