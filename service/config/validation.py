"""Configuration rules across keys: routes, timing, the API and tracing.

Templates name only what they may; a target that a publisher can choose needs a list of allowed
topics; no topic is both read and written; names are unique. All of it is checked without a broker.
"""

import re
import ssl
import stat
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib.util import find_spec
from itertools import combinations
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import urlsplit

import re2

from service.config import tokens
from service.config.kafka_properties import KafkaSettings, Property
from service.config.model import (
    EXPRESSION_MARKER,
    TOPIC_SHAPE,
    ApiSettings,
    RouteSettings,
    ServiceSettings,
    TracingSettings,
)
from service.credentials import secret_of
from service.errors import ConfigIssue
from service.urls import is_loopback

PLACEHOLDER: Final = re.compile(r"\{([^{}]*)\}")

_RE2: Final = re2.Options()

_RE2.log_errors = False  # it would write them to stderr

_HEADER = "header:"

_ANY_HEADER = "header:NAME"

_ALLOWED: Final[Mapping[str, tuple[str, ...]]] = {
    "address": ("topic", "key", _ANY_HEADER),
    "id": ("key", _ANY_HEADER, "sha256:value"),
    "output": ("topic", "address", _ANY_HEADER),
    "dead_letter": ("topic", "address", _ANY_HEADER),
}

_TARGETS = ("output", "dead_letter")

Pattern = tuple[str | None, ...]
"""Characters, and None for any text."""


class NamedRoute(NamedTuple):
    """A route and its full name in the file."""

    where: str
    route: RouteSettings
    names_inputs: bool = True
    """Whether the file says anything of inputs, right or wrong."""


def route_problems(routes: Sequence[NamedRoute], group_id: str) -> list[ConfigIssue]:
    """Return everything that is wrong with the routes."""
    problems = [] if routes else [_no_routes()]
    for named in routes:
        problems.extend(_inputs(named, group_id))
        problems.extend(_templates(named))
        problems.extend(_same_for_all(named))
        problems.extend(_steered(named))
        problems.extend(_mixed(named))
    problems.extend(_same_names(routes))
    problems.extend(_scopes_of_one_address(routes))
    problems.extend(_read_and_written(routes))
    return problems


def _no_routes() -> ConfigIssue:
    return ConfigIssue(
        "[[routes]] is missing, so there is nothing to read",
        'write [[routes]] with inputs = ["your-topic"], or keep the last one and pause it',
    )


def expression_fault(topic: str) -> str | None:
    """Why an input is no regular expression though it is marked as one."""
    if not topic.startswith(EXPRESSION_MARKER):
        return None
    try:
        re2.compile(topic, _RE2)
    except re2.error as error:
        return str(error.args[0], "utf-8", "replace")
    except UnicodeEncodeError:
        return "it holds half of a character"
    return None


def fits(expression: str, topic: str) -> bool:
    """Whether an expression finds a topic; one that is none, of another version's file, never."""
    return expression_fault(expression) is None and bool(re2.match(expression, topic, _RE2))


def _inputs(named: NamedRoute, group_id: str) -> Iterator[ConfigIssue]:
    where = f"{named.where}.inputs"
    if not named.names_inputs:
        yield ConfigIssue(f"{where} is missing", 'write inputs = ["your-topic"]')
    yield from topics_problems(where, named.route.inputs, group_id, "service.group_id")


def topics_problems(
    where: str, topics: Sequence[str], group_id: str, group_key: str
) -> Iterator[ConfigIssue]:
    """Yield what is wrong with topics to read: names, or one regular expression."""
    expressions = [topic for topic in topics if topic.startswith(EXPRESSION_MARKER)]
    if expressions and len(topics) > 1:
        what = f"{where} mixes a regular expression with other topics"
        yield ConfigIssue(what, "write one expression alone, or names only")
    for expression in expressions:
        fault = expression_fault(expression)
        if fault:
            what = (
                f'{where} holds "{expression}", which RE2 takes for no regular expression: {fault}'
            )
            yield ConfigIssue(
                what, "write it in RE2's syntax: without lookahead and backreferences"
            )
    for topic in topics:
        if topic.startswith(f"{group_id}."):
            what = f'{where} holds "{topic}", but topics under "{group_id}." belong to Ringfence'
            yield ConfigIssue(what, f"remove it or choose another {group_key}")


def _templates(named: NamedRoute) -> Iterator[ConfigIssue]:
    for key, allowed in _ALLOWED.items():
        template: str = getattr(named.route, key)
        where = f"{named.where}.{key}"
        yield from template_problems(where, template, allowed, is_topic=key in _TARGETS)


def template_problems(
    where: str, template: str, allowed: Sequence[str], *, is_topic: bool
) -> Iterator[ConfigIssue]:
    """Yield what is wrong with a template that may hold these placeholders."""
    allowed_text = ", ".join(f"{{{placeholder}}}" for placeholder in allowed)
    what = f'{where} is "{template}"'
    text = PLACEHOLDER.sub("", template)
    for placeholder in PLACEHOLDER.findall(template):
        kind = _ANY_HEADER if re.fullmatch(r"header:.+", placeholder) else placeholder
        if kind not in allowed:
            yield ConfigIssue(f"{what}: {{{placeholder}}} is unknown", f"use {allowed_text}")
    if {"{", "}"} & set(text):
        yield ConfigIssue(f"{what}: a brace has no partner", f"close it: {allowed_text}")
    elif is_topic and text and not re.fullmatch(r"[a-zA-Z0-9._-]{1,249}", text):
        mend = "use letters, digits, dots, `_` and `-`"
        yield ConfigIssue(f"{what}: that cannot become the name of a topic", mend)


def _same_for_all(named: NamedRoute) -> Iterator[ConfigIssue]:
    template = named.route.id
    if template and not PLACEHOLDER.search(template):
        what = f'{named.where}.id is "{template}", so all records would have one id'
        yield ConfigIssue(
            what, "name a field of the record: {key}, {header:NAME} or {sha256:value}"
        )


def _steered(named: NamedRoute) -> Iterator[ConfigIssue]:
    """Find targets that follow a key or a header: whoever may write an input chooses them."""
    route = named.route
    names = {key: PLACEHOLDER.findall(getattr(route, key)) for key in _ALLOWED}
    address_steered = "key" in names["address"] or _has_header(names["address"])
    for key in _TARGETS:
        by_address = address_steered and "address" in names[key]
        if (by_address or _has_header(names[key])) and not route.allowed_outputs:
            what = f'{named.where}.{key} is "{getattr(route, key)}", which a publisher can steer'
            yield ConfigIssue(what, 'list the topics it may name: allowed_outputs = ["…"]')


def _has_header(names: Sequence[str]) -> bool:
    return any(name.startswith(_HEADER) for name in names)


def _mixed(named: NamedRoute) -> Iterator[ConfigIssue]:
    route = named.route
    if route.output == route.dead_letter:
        what = f'{named.where}.output and .dead_letter are both "{route.output}"'
        yield ConfigIssue(what, "give accepted and rejected messages topics of their own")


def _same_names(routes: Sequence[NamedRoute]) -> Iterator[ConfigIssue]:
    counts = Counter(named.route.name for named in routes)
    for name, count in counts.items():
        if count > 1 and name:
            yield ConfigIssue(
                f'{count} routes have the name "{name}"', "give each a name of its own"
            )


def _scopes_of_one_address(routes: Sequence[NamedRoute]) -> Iterator[ConfigIssue]:
    """Find routes that share an address and remember it in different places."""
    for one, other in combinations(routes, 2):
        if one.route.scope == other.route.scope or not _meet(one.route, other.route):
            continue
        yield ConfigIssue(
            f"{one.where} and {other.where} can yield the same address, and their scopes differ",
            "give both one scope, or addresses that differ in their text",
        )


def _meet(one: RouteSettings, other: RouteSettings) -> bool:
    """Whether some address fits both."""
    return any(may_meet(a, b) for a in _addresses(one) for b in _addresses(other))


def _addresses(route: RouteSettings) -> Iterator[Pattern]:
    """The addresses of a route as patterns: text, and None for whatever a record may bring."""
    for name in route.inputs:
        topic = "{key}" if name.startswith(EXPRESSION_MARKER) else name
        parts = PLACEHOLDER.split(route.address.replace("{topic}", topic))
        yield tuple(c for i, part in enumerate(parts) for c in ([None] if i % 2 else part))


def may_meet(one: Pattern, other: Pattern) -> bool:
    """Whether some text fits both patterns, in which None stands for any text."""

    @cache
    def meets(i: int, j: int) -> bool:
        if i == len(one) or j == len(other):
            return not any((*one[i:], *other[j:]))
        if one[i] is None:
            return meets(i + 1, j) or meets(i, j + 1)
        if other[j] is None:
            return meets(i, j + 1) or meets(i + 1, j)
        return one[i] == other[j] and meets(i + 1, j + 1)

    return meets(0, 0)


def _read_and_written(routes: Sequence[NamedRoute]) -> Iterator[ConfigIssue]:
    """Find named inputs that a route writes; an expression leaves such topics out by itself."""
    written = {topic: named.where for named in routes for topic in _written(named.route)}
    for named in routes:
        for topic in named.route.inputs:
            if topic in written:
                what = (
                    f'{named.where}.inputs holds "{topic}", which {written[topic]} writes: '
                    "a topic that a route writes is never an input"
                )
                yield ConfigIssue(what, "remove the input or change the target")


def _written(route: RouteSettings) -> set[str]:
    """Return the targets that are known before any message: those of inputs given by name."""
    targets = set(route.allowed_outputs)
    for template in (route.output, route.dead_letter):
        for topic in route.inputs:
            target = template.replace("{topic}", topic)
            if not topic.startswith(EXPRESSION_MARKER) and re.fullmatch(TOPIC_SHAPE, target):
                targets.add(target)
    return targets


COMMIT_GRACE_MS: Final = 10_000
"""How long past the transaction timeout a commit of unknown outcome is asked for again."""

_POLL_INTERVAL_MS: Final = 300_000  # librdkafka's default for max.poll.interval.ms

_SOCKET_SLACK_MS: Final = 100


def timing_problems(kafka: KafkaSettings, service: ServiceSettings) -> Iterator[ConfigIssue]:
    """Yield each pair of limits that cannot hold together."""
    consumer = {**kafka.common, **kafka.consumer}
    producer = {**kafka.common, **kafka.producer}
    session_ms, transaction_ms = service.session_timeout_ms, service.transaction_timeout_ms
    poll_ms = _milliseconds(consumer.get("max.poll.interval.ms"), _POLL_INTERVAL_MS)
    if poll_ms < session_ms:
        what = f"max.poll.interval.ms is {poll_ms}, below service.session_timeout_ms ({session_ms})"
        yield ConfigIssue(what, "raise the one or lower the other")
    pause_ms = transaction_ms + COMMIT_GRACE_MS + service.batch_wait_ms
    if poll_ms <= pause_ms:
        what = (
            f"max.poll.interval.ms is {poll_ms}, but a batch whose commit is repeated may take "
            f"{pause_ms} ms (service.transaction_timeout_ms is {transaction_ms})"
        )
        yield ConfigIssue(what, f"write more than {pause_ms} or lower the transaction timeout")
    if service.batch_wait_ms >= transaction_ms:
        what = (
            f"service.batch_wait_ms is {service.batch_wait_ms}, and a transaction may not take "
            f"longer than service.transaction_timeout_ms ({transaction_ms})"
        )
        yield ConfigIssue(
            what, f"write less than {transaction_ms}, or raise the transaction timeout"
        )
    socket_ms = _milliseconds(producer.get("socket.timeout.ms"), 0)
    if socket_ms > transaction_ms + _SOCKET_SLACK_MS:
        what = (
            f"socket.timeout.ms is {socket_ms}, longer than a transaction may take "
            f"(service.transaction_timeout_ms is {transaction_ms})"
        )
        mend = f"write at most {transaction_ms}, or set it in [kafka.consumer] only"
        yield ConfigIssue(what, mend)


def _milliseconds(value: Property | None, default_ms: int) -> int:
    """Read a property as a number; what is none is left for librdkafka to refuse."""
    text = str(value)
    return int(text) if text.isdecimal() else default_ms


def api_problems(api: ApiSettings) -> Iterator[ConfigIssue]:
    """Yield what is wrong with the section as a whole."""
    if not api.auth and not is_loopback(api.host):
        yield ConfigIssue(
            f'api.host is "{api.host}", which others can reach, and api.auth is not set',
            'write auth = "tokens" or "oidc" in [api], or auth = "none" to let anybody in',
        )
    yield from _token_problems(api)
    yield from _oidc_problems(api)
    yield from _tls_problems(api)
    yield from _secret_problems("peer_token_file", api.peer_token_file)
    yield from _secret_problems("session_key_file", api.session_key_file)


def exposed_files(api: ApiSettings) -> Iterator[str]:
    """A sentence for each file of secrets that every user of the machine can read."""
    for key in ("tokens_file", "peer_token_file", "session_key_file", "tls_key_file"):
        path = getattr(api, key)
        with suppress(OSError):
            if path and Path(path).stat().st_mode & stat.S_IROTH:
                yield (
                    f"{path} of api.{key} can be read by every user of this machine;"
                    " take that right away: chmod o-r"
                )


def _token_problems(api: ApiSettings) -> Iterator[ConfigIssue]:
    if not api.takes_tokens:
        if api.tokens_file:
            what = f'api.tokens_file is set, and api.auth is "{api.auth}"'
            yield ConfigIssue(what, 'write auth = "tokens", or remove tokens_file')
        return
    if not api.tokens_file:
        what = f'api.auth is "{api.auth}", and api.tokens_file is missing'
        yield ConfigIssue(what, "name a file that `ringfence token NAME --add-to FILE` writes")
        return
    text, problem = _read("tokens_file", api.tokens_file)
    if problem:
        yield problem
        return
    try:
        known = len(tokens.parse(text))
    except tokens.TokenError as fault:
        what, _, mend = str(fault).partition("; ")
        yield ConfigIssue(f"{api.tokens_file}, {what}", mend)
        return
    if not known and not api.takes_oidc:
        what = f"{api.tokens_file} holds no token, so nobody could use the API"
        yield ConfigIssue(what, "add a line with `ringfence token NAME --add-to FILE`")


def _oidc_problems(api: ApiSettings) -> Iterator[ConfigIssue]:
    if not api.takes_oidc:
        if api.oidc_issuer:
            what = f'api.oidc_issuer is set, and api.auth is "{api.auth}"'
            yield ConfigIssue(what, 'write auth = "oidc", or remove oidc_issuer')
        return
    for key in ("oidc_issuer", "oidc_audience", "oidc_algorithms"):
        if not getattr(api, key):
            what = f'api.auth is "{api.auth}", and api.{key} is missing'
            yield ConfigIssue(what, f"write {key} in [api], as the issuer names it")
    for key in ("oidc_issuer", "oidc_jwks_url"):
        url = urlsplit(getattr(api, key))
        if url.scheme == "http" and not is_loopback(url.hostname or ""):
            what = f"api.{key} is a plain http URL, so that anybody on the way could let himself in"
            yield ConfigIssue(what, "write an https URL")


def _tls_problems(api: ApiSettings) -> Iterator[ConfigIssue]:
    if bool(api.tls_cert_file) != bool(api.tls_key_file):
        what = "of api.tls_cert_file and api.tls_key_file only one is set"
        yield ConfigIssue(what, "set both, or neither")
    elif api.tls_client_ca_file and not api.tls_cert_file:
        what = "api.tls_client_ca_file is set without api.tls_cert_file"
        yield ConfigIssue(what, "set tls_cert_file and tls_key_file too, or remove it")
    elif api.tls_cert_file:
        try:
            tls_context(api)
        except (OSError, ssl.SSLError, ValueError) as error:
            reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or error
            what = f"the files of api.tls_cert_file, tls_key_file cannot be used: {reason}"
            yield ConfigIssue(
                what, "name a certificate chain and its key, as PEM, without a password"
            )


def tls_context(api: ApiSettings) -> ssl.SSLContext:
    """What the API speaks TLS with; OSError or SSLError where the files do not serve."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # With an empty password a key that has one is an error, and no question on the terminal.
    context.load_cert_chain(api.tls_cert_file, api.tls_key_file, password="")
    if api.tls_client_ca_file:
        context.load_verify_locations(api.tls_client_ca_file)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def _secret_problems(key: str, path: str) -> Iterator[ConfigIssue]:
    """A secret that a person made up can be guessed."""
    if not path:
        return
    text, problem = _read(key, path)
    if problem:
        yield problem
        return
    try:
        secret_of(text)
    except ValueError as fault:
        what = f"{path} of api.{key} {fault}"
        yield ConfigIssue(what, "write a random secret into it: openssl rand -hex 32")


def _read(key: str, path: str) -> tuple[str, ConfigIssue | None]:
    try:
        return Path(path).read_text(encoding="utf-8"), None
    except UnicodeDecodeError:
        reason = "it is not text in UTF-8"
    except OSError as error:
        reason = error.strerror or "it cannot be opened"
    return "", ConfigIssue(f"{path} of api.{key} cannot be read: {reason}", "name a readable file")


_LIBRARIES: Final = ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http")


def tracing_problems(settings: TracingSettings) -> list[ConfigIssue]:
    """What keeps spans from being made."""
    if not settings.endpoint or all(map(_is_there, _LIBRARIES)):
        return []
    what = "tracing.endpoint is set, and the libraries for it are not installed"
    how = "in a checkout, pip install --require-hashes -r requirements/tracing.txt"
    return [ConfigIssue(what, f"install them: {how}; or remove it")]


def _is_there(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:
        return False
