"""Configuration rules across keys: routes, timing, the API and tracing.

Templates contain only known placeholders; a target that a publisher can choose needs a list of
allowed topics; no topic is both read and written; names are unique. No rule needs a broker.
"""

import re
import ssl
import stat
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from importlib.util import find_spec
from itertools import combinations
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from ringfence_client.headers import NAME_LENGTH_MAX
from ringfence_service.config import tokens
from ringfence_service.config.addresses import AUDIT, BRIDGE
from ringfence_service.config.expressions import EXPRESSION_MARKER, OF_KAFKA, expression_fault
from ringfence_service.config.kafka_properties import KafkaSettings, Property
from ringfence_service.config.model import (
    COMMIT_GRACE_MS,
    ApiSettings,
    RouteSettings,
    SchemaRegistrySettings,
    ServiceSettings,
    TracingSettings,
)
from ringfence_service.config.possible_addresses import may_meet, possible_addresses
from ringfence_service.config.templates import (
    DIGEST,
    ESCAPED,
    FIELD,
    PLACEHOLDER,
    PLAIN,
    PRESETS,
    SCHEMA_KINDS,
    FieldName,
    choices_of,
    unmarked,
)
from ringfence_service.credentials import secret_of
from ringfence_service.errors import ConfigIssue, ConfigPath
from ringfence_service.urls import is_loopback

_WITH_ARGUMENT: Final = {
    "header": "header:NAME",
    "json": "json:/POINTER",
    "key-json": "key-json:/POINTER",
    "schema": "schema:/POINTER",
    "key-schema": "key-schema:/POINTER",
    DIGEST: f"{DIGEST}:/POINTER",
}
"""Fields that name a part of the record, as `_ALLOWED` and problems write them."""

_PRESETS: Final = tuple(name.strip("{}") for name in PRESETS)

_NAMES: Final = ("topic", "address")
"""Names that are no fields of a record."""

_ALLOWED: Final[Mapping[str, tuple[str, ...]]] = {
    "address": ("topic", "key", *_WITH_ARGUMENT.values()),
    "id": ("key", *_WITH_ARGUMENT.values(), "sha256:value", *_PRESETS),
    "output": ("topic", "address", *_WITH_ARGUMENT.values()),
    "dead_letter": ("topic", "address", *_WITH_ARGUMENT.values()),
}

_POINTER: Final = re.compile(r"(?:/(?:[^~/]|~[01])*)*")
_TOKENS_MAX: Final = 50
"""Names and indexes of a pointer. Finding the way of each takes some frames of Python's stack."""

_ALONE: Final = "|".join((*_NAMES, *_PRESETS, "key"))
_TAKEN_IN: Final = re.compile(
    rf"\A\s|\s\Z|\s(?:or\s+(?:/|[\w-]+:|{_ALONE})|without\s)|,\s*/|[|]\s*(?:/|[\w-]+:)",
    re.IGNORECASE,
)
"""What is beside an argument and was taken into it: `{json:/a or /b}`, `{json:/a|json:/b}`."""

_TARGETS = ("output", "dead_letter")


class NamedRoute(NamedTuple):
    """A route and its name in problems."""

    where: str
    route: RouteSettings
    names_inputs: bool = True
    """Whether the file has inputs for it, valid or not."""

    def path(self, *key: str) -> ConfigPath:
        """Return where the route is, or one of its keys."""
        return ("routes", self.route.name, *key)


def route_problems(
    routes: Sequence[NamedRoute], group_id: str, *, has_registry: bool
) -> list[ConfigIssue]:
    """Return everything that is wrong with the routes; some need a schema registry."""
    problems: list[ConfigIssue] = []
    for named in routes:
        for key, problem in _problems_of(named, group_id):
            problems.append(problem._replace(paths=(named.path(key),)))
        if not has_registry:
            problems.extend(_without_registry(named))
    problems.extend(_repeated_names(routes))
    problems.extend(_scopes_of_one_address(routes))
    return problems


def invalid_routes(problems: Iterable[ConfigIssue]) -> frozenset[str]:
    """Return the names of the routes that have problems."""
    paths = (path for problem in problems for path in problem.paths)
    return frozenset(path[1] for path in paths if path[0] == "routes" and len(path) > 1)


def reads_schemas(route: RouteSettings) -> bool:
    """Whether any template of a route reads payloads by their schemas."""
    return any(_reads_schemas(getattr(route, key)) for key in _ALLOWED)


def _reads_schemas(template: str) -> bool:
    return not SCHEMA_KINDS.isdisjoint(_kinds(template))


def _kinds(template: str) -> set[str]:
    """Return the kinds of the fields in a template."""
    return {field.kind for text in FIELD.findall(template) for field in choices_of(text)}


def _without_registry(named: NamedRoute) -> Iterator[ConfigIssue]:
    for key in _ALLOWED:
        template: str = getattr(named.route, key)
        if _reads_schemas(template):
            what = f'{named.where}.{key} is "{template}", and schema_registry.url is not set'
            fix = "set url in [schema_registry] to the registry that has the schemas"
            yield ConfigIssue(what, fix, (named.path(key),))


def _problems_of(named: NamedRoute, group_id: str) -> Iterator[tuple[str, ConfigIssue]]:
    """Yield what is wrong with one route alone, each with its key."""
    for problem in _input_problems(named, group_id):
        yield "inputs", problem
    for key, allowed in _ALLOWED.items():
        template: str = getattr(named.route, key)
        where = f"{named.where}.{key}"
        for problem in template_problems(where, template, allowed, is_topic=key in _TARGETS):
            yield key, problem
    yield from _constant_id(named)
    if not unmarked(named.route.address):
        what = f'{named.where}.address is "{named.route.address}", so no record has an address'
        yield "address", ConfigIssue(what, "write a name or a field after it")
    yield from _reserved_addresses(named)
    yield from _publisher_chosen_targets(named)


def _input_problems(named: NamedRoute, group_id: str) -> Iterator[ConfigIssue]:
    where = f"{named.where}.inputs"
    if not named.names_inputs:
        yield ConfigIssue(f"{where} is missing", 'write inputs = ["your-topic"]')
    yield from topics_problems(where, named.route.inputs, group_id, "service.group_id")


def topics_problems(
    where: str, topics: Sequence[str], group_id: str, group_key: str
) -> Iterator[ConfigIssue]:
    """Yield what is wrong with topics to read, which are names or one regular expression."""
    expressions = [topic for topic in topics if topic.startswith(EXPRESSION_MARKER)]
    if expressions and len(topics) > 1:
        what = f"{where} mixes a regular expression with other topics"
        yield ConfigIssue(what, "write one expression alone, or names only")
    for expression in expressions:
        fault = expression_fault(expression)
        if fault:
            what = f'{where} has "{expression}", which is not a regular expression of RE2: {fault}'
            yield ConfigIssue(what, "use RE2's syntax: no lookahead, no backreferences")
    for topic in topics:
        if topic in OF_KAFKA:
            what = f'{where} has "{topic}", which belongs to Kafka'
            yield ConfigIssue(what, "remove it")
        if topic.startswith(f"{group_id}."):
            what = f'{where} has "{topic}", but topics under "{group_id}." belong to Ringfence'
            yield ConfigIssue(what, f"remove it or choose another {group_key}")


def template_problems(
    where: str, template: str, allowed: Sequence[str], *, is_topic: bool
) -> Iterator[ConfigIssue]:
    """Yield what is wrong with a template that may contain these placeholders."""
    allowed_text = ", ".join(f"{{{placeholder}}}" for placeholder in allowed)
    what = f'{where} is "{template}"'
    text = PLACEHOLDER.sub("", template)
    bare = template if is_topic else unmarked(template)
    for placeholder in PLACEHOLDER.findall(bare):
        if placeholder in allowed:
            continue
        for field in choices_of(placeholder):
            is_field = FIELD.fullmatch(f"{{{field.text}}}")
            if is_field and _WITH_ARGUMENT.get(field.kind) in allowed:
                yield from _argument_problems(what, field)
            elif not is_field or field.kind not in allowed:
                yield _unknown(what, template, field.text, allowed) or ConfigIssue(
                    f"{what}: {{{field.text}}} is unknown", f"use {allowed_text}"
                )
    if {"{", "}"} & set(text):
        yield ConfigIssue(f"{what}: unbalanced brace", f"close it: {allowed_text}")
    elif is_topic and text and not re.fullmatch(rf"[a-zA-Z0-9._-]{{1,{NAME_LENGTH_MAX}}}", text):
        fix = "use letters, digits, dots, `_` and `-`"
        yield ConfigIssue(f"{what}: that cannot be the name of a topic", fix)


def _unknown(what: str, template: str, text: str, allowed: Sequence[str]) -> ConfigIssue | None:
    """Return the problem of a name that is known, but not here; None for any other text."""
    if f"{{{text}}}" in {PLAIN, ESCAPED}:
        fix = f"write {{{text}}} once, at the beginning of an id or an address: {template}"
        return ConfigIssue(f"{what}: {{{text}}} is not at its beginning", fix)
    names = {*_NAMES, *_PRESETS}.intersection(allowed)
    for name in names.intersection(re.split(r" or |:", text)):
        fix = f"write {{{name}}} alone, or fields of the record in its place"
        return ConfigIssue(f"{what}: {{{name}}} can have no filter and no alternative", fix)
    return None


def _argument_problems(what: str, field: FieldName) -> Iterator[ConfigIssue]:
    if any(map(_TAKEN_IN.search, (field.argument, " ".join(field.without)))):
        yield ConfigIssue(
            f"{what}: {{{field.text}}} would be read as one field with a long name",
            "write fields as in {json:/a or json:/b}, or pointers as in "
            f"{{{DIGEST}:/a without /b /c}}",
        )
        return
    if field.kind == "header":
        if not field.argument:
            yield ConfigIssue(f"{what}: {{{field.text}}} names no header", "write {header:NAME}")
        return
    pointers = (field.argument, *field.without)
    if not all(map(is_pointer, pointers)) or "" in field.without:
        example = f"{field.kind}:/order{' without /ts' if field.without else '/id'}"
        fix = (
            f"write a JSON pointer (RFC 6901), as in {{{example}}}; in a name, ~0 stands "
            'for "~" and ~1 for "/"'
        )
        yield ConfigIssue(f"{what}: {{{field.text}}} is not a JSON pointer", fix)
    elif max(pointer.count("/") for pointer in pointers) > _TOKENS_MAX:
        most = f"{{{field.kind}:…}} has more than {_TOKENS_MAX} names and indexes"
        yield ConfigIssue(f"{what}: {most}", "name a member that is nested less deeply")


def is_pointer(text: str) -> bool:
    """Whether a text is a JSON pointer (RFC 6901)."""
    return _POINTER.fullmatch(text) is not None


def _constant_id(named: NamedRoute) -> Iterator[tuple[str, ConfigIssue]]:
    template = named.route.id
    text = unmarked(template or "")
    is_closed = not {"{", "}"} & set(text)  # else it is reported as unbalanced
    if template and is_closed and not PLACEHOLDER.search(text):
        what = f'{named.where}.id is "{template}", so all records would have the same id'
        fix = (
            "use a field of the record: {key}, {header:NAME}, {json:/POINTER}, {schema:/POINTER} "
            "or {sha256:value}"
        )
        yield "id", ConfigIssue(what, fix)


def _reserved_addresses(named: NamedRoute) -> Iterator[tuple[str, ConfigIssue]]:
    """Find addresses that have the name of another memory, as a record may not have them either."""
    for address in possible_addresses(named.route):
        text = "".join(each or "*" for each in address)
        for prefix in (BRIDGE, AUDIT):
            if text.startswith(prefix):
                what = f'{named.where} has the address "{text}": {prefix}… is a name of Ringfence'
                yield "address", ConfigIssue(what, "write an address with another beginning")


def _publisher_chosen_targets(named: NamedRoute) -> Iterator[tuple[str, ConfigIssue]]:
    """Find targets that depend on the record: the publisher of an input chooses them."""
    route = named.route
    address_chosen = FIELD.search(route.address) is not None
    for key in _TARGETS:
        template: str = getattr(route, key)
        by_address = address_chosen and "{address}" in template
        by_field = not _WITH_ARGUMENT.keys().isdisjoint(_kinds(template))
        if (by_address or by_field) and not route.allowed_outputs:
            what = f'{named.where}.{key} is "{template}", which a publisher can choose'
            yield key, ConfigIssue(what, 'list the topics it may be: allowed_outputs = ["…"]')


def _repeated_names(routes: Sequence[NamedRoute]) -> Iterator[ConfigIssue]:
    counts = Counter(named.route.name for named in routes)
    for name, count in counts.items():
        if count > 1 and name:
            what = f'{count} routes have the name "{name}"'
            yield ConfigIssue(what, "give each its own name", (("routes",),))


def _scopes_of_one_address(routes: Sequence[NamedRoute]) -> Iterator[ConfigIssue]:
    """Find routes that can share an address although they remember it in different caches."""
    for one, other in combinations(routes, 2):
        if one.route.scope == other.route.scope or not _meet(one.route, other.route):
            continue
        yield ConfigIssue(
            f"{one.where} and {other.where} can have the same address, but their scopes differ",
            "give both the same scope, or addresses that differ in their text",
            (one.path(), other.path()),
        )


def _meet(one: RouteSettings, other: RouteSettings) -> bool:
    """Whether both can produce the same address."""
    return any(may_meet(a, b) for a in possible_addresses(one) for b in possible_addresses(other))


_POLL_INTERVAL_MS: Final = 300_000
"""The default of librdkafka for `max.poll.interval.ms`."""

_SOCKET_SLACK_MS: Final = 100
"""By how much librdkafka lets `socket.timeout.ms` exceed `transaction.timeout.ms`."""


def timing_problems(kafka: KafkaSettings, service: ServiceSettings) -> Iterator[ConfigIssue]:
    """Yield each pair of limits that contradict each other."""
    consumer = {**kafka.common, **kafka.consumer}
    producer = {**kafka.common, **kafka.producer}
    session_ms, transaction_ms = service.session_timeout_ms, service.transaction_timeout_ms
    poll_ms = _milliseconds(consumer.get("max.poll.interval.ms"), _POLL_INTERVAL_MS)
    if poll_ms < session_ms:
        what = f"max.poll.interval.ms is {poll_ms}, below service.session_timeout_ms ({session_ms})"
        yield ConfigIssue(what, "raise one or lower the other")
    pause_ms = transaction_ms + COMMIT_GRACE_MS + service.batch_wait_ms
    if poll_ms <= pause_ms:
        what = (
            f"max.poll.interval.ms is {poll_ms}, but a batch whose commit is retried may take "
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
        fix = f"write at most {transaction_ms}, or set it in [kafka.consumer] only"
        yield ConfigIssue(what, fix)


def _milliseconds(value: Property | None, default_ms: int) -> int:
    """Return a property as a number, or the default if it is not one: librdkafka refuses that."""
    text = str(value)
    return int(text) if text.isdecimal() else default_ms


def api_problems(api: ApiSettings) -> Iterator[ConfigIssue]:
    """Yield what is wrong with `[api]` across its keys."""
    if not api.auth and not is_loopback(api.host):
        yield ConfigIssue(
            f'api.host is "{api.host}", which other machines can reach, and api.auth is not set',
            'write auth = "tokens" or "oidc" in [api], or auth = "none" for open access',
        )
    if api.port and api.port == api.probe_port:
        what = f"api.port and api.probe_port are both {api.port}"
        yield ConfigIssue(what, "use different ports, or remove probe_port: probes use port then")
    yield from _token_problems(api)
    yield from _oidc_problems(api)
    yield from _tls_problems(api)
    yield from _secret_problems("peer_token_file", api.peer_token_file)
    yield from _secret_problems("session_key_file", api.session_key_file)


def exposed_files(api: ApiSettings) -> Iterator[str]:
    """Yield a sentence for each secret file that every user of the machine can read."""
    for key in ("tokens_file", "peer_token_file", "session_key_file", "tls_key_file"):
        path = getattr(api, key)
        with suppress(OSError):
            if path and Path(path).stat().st_mode & stat.S_IROTH:
                yield (
                    f"{path} of api.{key} can be read by every user of this machine;"
                    " remove that permission: chmod o-r"
                )


def _token_problems(api: ApiSettings) -> Iterator[ConfigIssue]:
    if not api.takes_tokens:
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
        yield fault.issue._replace(what=f"{api.tokens_file}, {fault.issue.what}")
        return
    if not known and not api.takes_oidc:
        what = f"{api.tokens_file} contains no token, so no client could use the API"
        yield ConfigIssue(what, "add a line with `ringfence token NAME --add-to FILE`")


def _oidc_problems(api: ApiSettings) -> Iterator[ConfigIssue]:
    if not api.takes_oidc:
        return
    for key in ("oidc_issuer", "oidc_audience", "oidc_algorithms"):
        if not getattr(api, key):
            what = f'api.auth is "{api.auth}", and api.{key} is missing'
            yield ConfigIssue(what, f"write {key} in [api], as the issuer names it")
    for key in ("oidc_issuer", "oidc_jwks_url"):
        url = urlsplit(getattr(api, key))
        if url.scheme == "http" and not is_loopback(url.hostname or ""):
            what = f"api.{key} is a plain http URL: an attacker on the network could forge tokens"
            yield ConfigIssue(what, "write an https URL")


def _tls_problems(api: ApiSettings) -> Iterator[ConfigIssue]:
    if bool(api.tls_cert_file) != bool(api.tls_key_file):
        what = "only one of api.tls_cert_file and api.tls_key_file is set"
        yield ConfigIssue(what, "set both, or neither")
    elif api.tls_client_ca_file and not api.tls_cert_file:
        what = "api.tls_client_ca_file is set without api.tls_cert_file"
        yield ConfigIssue(what, "set tls_cert_file and tls_key_file too, or remove it")
    elif api.tls_cert_file:
        for names, fix, load in (
            (
                "the files of api.tls_cert_file and tls_key_file",
                "name a certificate chain and its key, as PEM, without a password",
                _load_certificate,
            ),
            (
                "the file of api.tls_client_ca_file",
                "name a file of certificates of authorities, as PEM",
                _load_client_authorities,
            ),
        ):
            try:
                load(ssl.create_default_context(ssl.Purpose.CLIENT_AUTH), api)
            except (OSError, ssl.SSLError, ValueError) as error:
                reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or error
                yield ConfigIssue(f"{names} cannot be used: {reason}", fix)


def _load_certificate(context: ssl.SSLContext, api: ApiSettings) -> None:
    # With an empty password an encrypted key is an error instead of a prompt on the terminal.
    context.load_cert_chain(api.tls_cert_file, api.tls_key_file, password="")


def _load_client_authorities(context: ssl.SSLContext, api: ApiSettings) -> None:
    if api.tls_client_ca_file:
        context.load_verify_locations(api.tls_client_ca_file)


def tls_context(api: ApiSettings) -> ssl.SSLContext:
    """Return the TLS context of the API; raise OSError or SSLError for unusable files."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    _load_certificate(context, api)
    _load_client_authorities(context, api)
    if api.tls_client_ca_file:
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def _secret_problems(key: str, path: str) -> Iterator[ConfigIssue]:
    """Yield what is wrong with a secret file; a secret must be long enough not to be guessed."""
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
        yield ConfigIssue(what, "write a random secret to it: openssl rand -hex 32")


def _read(key: str, path: str) -> tuple[str, ConfigIssue | None]:
    try:
        return Path(path).read_text(encoding="utf-8"), None
    except UnicodeDecodeError:
        reason = "it is not text in UTF-8"
    except OSError as error:
        reason = error.strerror or "it cannot be opened"
    return "", ConfigIssue(f"{path} of api.{key} cannot be read: {reason}", "name a readable file")


def registry_problems(settings: SchemaRegistrySettings) -> Iterator[ConfigIssue]:
    """Yield what is wrong with `[schema_registry]` on this machine."""
    if not settings.url:
        return
    if bool(settings.user) != bool(settings.password):
        what = "only one of schema_registry.user and schema_registry.password is set"
        yield ConfigIssue(what, "set both, or neither")
    if settings.tls_ca_file:
        try:
            ssl.create_default_context(cafile=settings.tls_ca_file)
        except (OSError, ssl.SSLError) as error:
            reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or error
            what = f"{settings.tls_ca_file} of schema_registry.tls_ca_file cannot be used: {reason}"
            yield ConfigIssue(what, "name a file with certificates of authorities, as PEM")
    if not all(map(_is_installed, _REGISTRY_LIBRARIES)):
        how = "in a checkout, pip install --require-hashes -r requirements/schema-registry.txt"
        yield ConfigIssue(
            "schema_registry.url is set, but its libraries are not installed",
            f'install them: pip install "ringfence-server[schema-registry]" ({how}); or remove it',
        )


_REGISTRY_LIBRARIES: Final = (
    *("authlib", "cachetools", "attrs", "certifi"),  # of confluent-kafka's client
    *("google.protobuf", "proto_schema_parser"),
)

_LIBRARIES: Final = ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http")


def tracing_problems(settings: TracingSettings) -> list[ConfigIssue]:
    """Return the problem if tracing is enabled without its libraries."""
    if not settings.endpoint or all(map(_is_installed, _LIBRARIES)):
        return []
    what = "tracing.endpoint is set, but its libraries are not installed"
    how = "in a checkout, pip install --require-hashes -r requirements/tracing.txt"
    return [ConfigIssue(what, f"install them: {how}; or remove it")]


def _is_installed(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:
        return False
