"""Configuration: defaults, then a TOML file, then the environment, validated once at start.

`load` returns a frozen Config or raises ConfigErrors with all problems at once. `load_lenient`
returns both: invalid keys have their defaults, so that `ringfence check` can still query the
broker. No problem and no repr ever shows a secret.
"""

import sys
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final, TypeVar

from ringfence_service.config.addresses import AddressBook, AddressSettings, pattern_fault
from ringfence_service.config.expressions import expression_fault
from ringfence_service.config.kafka_properties import (
    JAVA,
    KNOWN,
    SCOPES,
    KafkaSettings,
    java_name,
    read_kafka,
)
from ringfence_service.config.keys import (
    GivenSection,
    GivenValue,
    keys_of,
    nearest,
    read_keys,
    read_section,
)
from ringfence_service.config.model import (
    ApiSettings,
    BridgeSettings,
    Config,
    LogSettings,
    RouteSettings,
    SchemaRegistrySettings,
    ServiceSettings,
    TracingSettings,
)
from ringfence_service.config.targets import target_problems
from ringfence_service.config.unread_keys import unread_keys, without_effect
from ringfence_service.config.validation import (
    NamedRoute,
    api_problems,
    registry_problems,
    route_problems,
    timing_problems,
    tracing_problems,
)
from ringfence_service.errors import ConfigIssue, ConfigPath, ExitCode, ExitError

OWN_PREFIX: Final = "RINGFENCE_"

KAFKA_PREFIX: Final = "KAFKA_"

SECTIONS: Final = {
    "service": ServiceSettings,
    "api": ApiSettings,
    "log": LogSettings,
    "tracing": TracingSettings,
    "schema_registry": SchemaRegistrySettings,
    "bridge": BridgeSettings,
}
"""Sections that the environment can set; routes and addresses come only from the file."""

CLUSTERS: Final = ("source", "target")
"""Tables of `[bridge]` that contain Kafka properties."""

_SEPARATOR = "__"

_FILE_KEY = "_file"

_CLUSTER_PREFIXES = tuple(f"{cluster}{_SEPARATOR}" for cluster in CLUSTERS)

_FILE_PROPERTY = _FILE_KEY.replace("_", ".")

_LINK_MARKER = "://"

_OF_THE_CLI: Final = "RINGFENCE_URL"
"""The command line finds the service with it; `schema_registry` has a key of this name."""

_SHORT_NAMES: Final = {"RINGFENCE_FAST_PATH": "RINGFENCE_SERVICE__FAST_PATH"}

Tables = dict[str, dict[str, GivenValue]]


def read_own_variables(environ: Mapping[str, str], problems: list[ConfigIssue]) -> Tables:
    """Return the keys of Ringfence's own sections that the environment sets, by section."""
    tables: Tables = {section: {} for section in SECTIONS}
    for variable, text in sorted(environ.items()):
        if not variable.startswith(OWN_PREFIX) or not text:
            continue
        name = _SHORT_NAMES.get(variable, variable)
        section, separator, key = name.removeprefix(OWN_PREFIX).lower().partition(_SEPARATOR)
        if key.startswith(_CLUSTER_PREFIXES) and section == "bridge":
            continue  # a Kafka property, which read_cluster_variables reads
        if not separator:
            problems.extend(_single_underscore(variable, text))
        elif section not in SECTIONS:
            problems.append(_unknown_section(variable, section))
        else:
            tables[section] |= _read_variable(section, key, variable, text, problems)
    return tables


def read_kafka_variables(environ: Mapping[str, str], problems: list[ConfigIssue]) -> Tables:
    """Return the Kafka properties that the environment sets, by scope."""
    tables: Tables = {scope: {} for scope in SCOPES}
    for variable, text in sorted(environ.items()):
        if not variable.startswith(KAFKA_PREFIX) or not text:
            continue
        scope, name = _property(variable.removeprefix(KAFKA_PREFIX))
        stem = name.removesuffix(_FILE_PROPERTY)
        if name in KNOWN:
            tables[scope][name] = GivenValue(text, variable)
        elif stem in KNOWN and stem != name:
            content = _read_file(variable, text, problems)
            if content is not None:
                tables[scope][stem] = GivenValue(content, variable)
        elif name in JAVA:
            problems.append(java_name(name, variable))
        elif near := nearest(name, KNOWN, cutoff=0.85):
            what = f"{variable} is not a property that librdkafka knows"
            problems.append(ConfigIssue(what, f"the nearest is {near}: rename or remove it"))
    return tables


def read_cluster_variables(
    cluster: str, environ: Mapping[str, str], problems: list[ConfigIssue]
) -> dict[str, GivenValue]:
    """Return the properties of `[bridge.<cluster>]` that the environment sets."""
    prefix = f"{OWN_PREFIX}BRIDGE{_SEPARATOR}{cluster.upper()}{_SEPARATOR}"
    found: dict[str, GivenValue] = {}
    for variable, text in sorted(environ.items()):
        if not variable.startswith(prefix) or not text:
            continue
        name = _property_name(variable.removeprefix(prefix))
        stem = name.removesuffix(_FILE_PROPERTY)
        if name not in KNOWN and stem in KNOWN:
            content = _read_file(variable, text, problems)
            found |= {} if content is None else {stem: GivenValue(content, variable)}
        else:
            found[name] = GivenValue(text, variable)
    return found


def _read_variable(
    section: str, key: str, variable: str, text: str, problems: list[ConfigIssue]
) -> dict[str, GivenValue]:
    """Return the key and value that one variable sets; nothing if its file cannot be read."""
    known = keys_of(SECTIONS[section])
    value: str | None = text
    stem = key.removesuffix(_FILE_KEY)
    if key not in known and stem in known:
        key, value = stem, _read_file(variable, text, problems)
    if value is None:
        return {}
    given = known[key].from_text(value) if key in known else value
    return {key: GivenValue(given, f"{section}.{key} (from {variable})")}


def _single_underscore(variable: str, text: str) -> list[ConfigIssue]:
    """Report a name with one underscore for two, or without its section.

    Kubernetes' links to services, which are URLs, are ignored.
    """
    if _LINK_MARKER in text or variable == _OF_THE_CLI:
        return []
    name = variable.removeprefix(OWN_PREFIX).lower()
    for section, settings in SECTIONS.items():
        for key in keys_of(settings):
            if name in {key, f"{section}_{key}"}:
                intended = f"{OWN_PREFIX}{section}{_SEPARATOR}{key}".upper()
                fix = f"write {intended}, with two underscores"
                return [ConfigIssue(f"{variable} is not read", fix)]
    return []


def _unknown_section(variable: str, section: str) -> ConfigIssue:
    what = f"{variable} is not read"
    if section == "kafka":
        fix = f"for Kafka properties write {KAFKA_PREFIX}BOOTSTRAP_SERVERS and so on"
        return ConfigIssue(what, fix)
    if section in ("routes", "addresses"):
        return ConfigIssue(what, f"write {section} into the configuration file")
    known = " or ".join(f"{OWN_PREFIX}{name.upper()}{_SEPARATOR}KEY" for name in SECTIONS)
    return ConfigIssue(what, f"write {known}")


def _property(rest: str) -> tuple[str, str]:
    """Return the scope and the librdkafka name of a variable, given without its prefix."""
    name = _property_name(rest)
    scope, dot, scoped_name = name.partition(".")
    return (scope, scoped_name) if dot and scope in SCOPES else ("common", name)


def _property_name(name: str) -> str:
    return name.lower().replace(_SEPARATOR, "\0").replace("_", ".").replace("\0", "_")


def _read_file(variable: str, path: str, problems: list[ConfigIssue]) -> str | None:
    try:
        return Path(path).read_text(encoding="utf-8").rstrip("\r\n")
    except (OSError, UnicodeDecodeError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text in UTF-8"
        what = f'{variable} names the file "{path}", which cannot be read: {reason}'
        problems.append(ConfigIssue(what, "mount the file or unset the variable"))
        return None


_SECTIONS = (
    *("kafka", "service", "api", "routes", "addresses", "log", "tracing"),
    *("schema_registry", "bridge"),
)

BRIDGE_SECTIONS = frozenset({"bridge", "api", "log"})
"""Sections that `ringfence bridge` reads; a file with no others is only for a bridge."""


_UNCLOSED: Final = (r"Illegal character '\n'", "Unterminated string", "Expected \"'")
"""What the parser says of a text without an end."""


def read_document(path: Path, problems: list[ConfigIssue]) -> dict[str, object] | None:
    """Parse the file; add a problem and return None if it is invalid.

    Raises ExitError if the file cannot be read.
    """
    try:
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except tomllib.TOMLDecodeError as error:
        reason, _, position = str(error).rpartition(" (at ")
        fix = "correct the TOML there: quote text, and keys with dots or `#`"
        if reason.startswith(_UNCLOSED):
            reason, fix = "a quote is not closed", "write the quote at the end of the text"
        what = f"{path}, {position.rstrip(')')}: {reason[:1].lower()}{reason[1:]}"
        problems.append(ConfigIssue(what, fix))
    except UnicodeDecodeError as error:
        what = f"{path}, byte {error.start}: not text in UTF-8"
        problems.append(ConfigIssue(what, "save the file as UTF-8"))
    except RecursionError:
        what = f"{path} has arrays or tables that are nested too deeply"
        problems.append(ConfigIssue(what, "no key takes such a value: remove it"))
    except ValueError:  # of Python's own limit, beyond which it converts no digits
        what = f"{path} has a whole number of more than {sys.get_int_max_str_digits()} digits"
        problems.append(ConfigIssue(what, "no key takes such a value: remove it"))
    except OSError as error:
        sentence = f"{path} cannot be read: {error.strerror}; name a readable file."
        raise ExitError(ExitCode.USAGE, sentence) from error
    return None


def section_problems(document: Mapping[str, object]) -> Iterator[ConfigIssue]:
    """Yield the unknown sections, and those that are not tables as they should be."""
    for name, content in document.items():
        if name not in _SECTIONS:
            near = nearest(name, _SECTIONS)
            fix = f"the nearest is {near}: rename or remove it" if near else "remove it"
            fix = "write [[routes]] above each route" if near == "routes" else fix
            yield ConfigIssue(f"{name} is not a section", fix)
        elif name == "routes":
            if not isinstance(content, list) or not all(isinstance(r, dict) for r in content):
                yield ConfigIssue(
                    "routes is not a list of tables", "write [[routes]] above each route"
                )
        elif not isinstance(content, dict):
            yield ConfigIssue(f"{name} is not a table", f"write [{name}] above its keys")


def table_of(content: object, name: str, path: ConfigPath) -> GivenSection:
    """Return a table of the file with full key names; an empty one if it is not a table."""
    keys = content if isinstance(content, dict) else {}
    return GivenSection(
        path, {key: GivenValue(value, f"{name}.{key}") for key, value in keys.items()}
    )


def tables_of(content: object) -> list[Mapping[str, object]]:
    """Return the items of a list that are tables."""
    return [item for item in content if isinstance(item, dict)] if isinstance(content, list) else []


def kafka_tables(content: object) -> Tables:
    """Return the properties of `[kafka]` and of its subtables, by scope."""
    common = dict(content) if isinstance(content, dict) else {}
    tables: Tables = {}
    for scope in SCOPES[1:]:
        subtable = common.pop(scope, {})
        properties = subtable if isinstance(subtable, dict) else {scope: subtable}
        tables[scope] = properties_of(properties, f"kafka.{scope}")
    tables[SCOPES[0]] = properties_of(common, "kafka")
    return tables


def properties_of(content: Mapping[str, object], table: str) -> dict[str, GivenValue]:
    """Return the Kafka properties of a table of the file, each with its full name."""
    return {
        name: GivenValue(value, f'{table}."{name}"') for name, value in _dotted(content).items()
    }


def _dotted(table: Mapping[str, object], prefix: str = "") -> dict[str, object]:
    """Join nested tables: TOML parses an unquoted `bootstrap.servers` as a nested table."""
    properties: dict[str, object] = {}
    for name, value in table.items():
        if isinstance(value, dict):
            properties.update(_dotted(value, f"{prefix}{name}."))
        else:
            properties[prefix + name] = value
    return properties


S = TypeVar("S")

_PATTERN_FIX = (
    "write whole words between dots, `*` for one word, a final `#` for any number of words, "
    "(text) for literal text"
)


class ConfigErrors(ExitError):  # noqa: N818  one for all problems
    """All problems of a configuration."""

    def __init__(self, problems: list[ConfigIssue]) -> None:
        super().__init__(ExitCode.USAGE, "\n".join(str(problem) for problem in problems))
        self.problems = tuple(problems)


def load(path: Path | None, environ: Mapping[str, str], *, serves: bool = True) -> Config:
    """Return the configuration, or raise ConfigErrors with all problems.

    Without `serves` the files of `[api]` and the libraries of `[tracing]` are not checked: the
    caller may run on another machine than the service.
    """
    config, problems = load_lenient(path, environ, serves=serves)
    if config is None or problems:
        raise ConfigErrors(problems)
    return config


def load_lenient(
    path: Path | None, environ: Mapping[str, str], *, serves: bool = True
) -> tuple[Config | None, list[ConfigIssue]]:
    """Return the configuration, with defaults for invalid keys, and all problems.

    The configuration is None if the file is not valid TOML.
    """
    problems: list[ConfigIssue] = []
    document = read_document(path, problems) if path else {}
    if document is None:
        return None, problems
    problems.extend(section_problems(document))
    variables = read_own_variables(environ, problems)
    kafka = _read_kafka(document.get("kafka"), environ, problems)
    service = read_part(ServiceSettings, "service", document, variables, problems)
    api = read_part(ApiSettings, "api", document, variables, problems)
    registry = read_part(SchemaRegistrySettings, "schema_registry", document, variables, problems)
    if _lacks_routes(document):
        what = "[[routes]] is missing, so there is nothing to read"
        fix = 'write [[routes]] with inputs = ["your-topic"]'
        problems.append(ConfigIssue(what, fix, (("routes",),)))
    routes = _read_routes(document.get("routes"), service.group_id, registry, problems)
    addresses = read_addresses(document.get("addresses"), problems)
    for pattern, keys in addresses.patterns.items():
        problems.extend(unread_keys(pattern, keys))
    problems.extend(timing_problems(kafka, service))
    log = read_part(LogSettings, "log", document, variables, problems)
    tracing = read_part(TracingSettings, "tracing", document, variables, problems)
    if serves:
        problems.extend((*api_problems(api), *tracing_problems(tracing)))
        problems.extend(registry_problems(registry))
    return Config(kafka, service, api, routes, addresses, log, tracing, registry), problems


def read_part(
    section: type[S],
    name: str,
    document: Mapping[str, object],
    variables: Tables,
    problems: list[ConfigIssue],
) -> S:
    """Read one section of the file; the environment overrides its keys."""
    from_file = table_of(document.get(name), name, (name,))
    given = from_file._replace(keys={**from_file.keys, **variables[name]})
    settings = read_section(section, given, problems)
    problems.extend(without_effect(settings, given))
    return settings


def _lacks_routes(document: Mapping[str, object]) -> bool:
    """Whether the file has no routes, not even ones that `section_problems` reports."""
    others = document.keys() - {"routes"}
    misspelled = (nearest(name, _SECTIONS) == "routes" for name in others)
    return not document.get("routes") and not any(misspelled)


def _read_kafka(
    content: object, environ: Mapping[str, str], problems: list[ConfigIssue]
) -> KafkaSettings:
    from_file = kafka_tables(content)
    variables = read_kafka_variables(environ, problems)
    tables = {scope: {**from_file[scope], **variables[scope]} for scope in SCOPES}
    return read_kafka(tables, problems)


def _read_routes(
    content: object,
    group_id: str,
    registry: SchemaRegistrySettings,
    problems: list[ConfigIssue],
) -> tuple[RouteSettings, ...]:
    tables = tables_of(content)
    named = [
        read_route(keys, f"{number} of {len(tables)}", problems)
        for number, keys in enumerate(tables, 1)
    ]
    for keys, each in zip(tables, named, strict=True):
        table = table_of(keys, each.where, each.path())
        problems.extend(without_effect(each.route, table))
    problems.extend(route_problems(named, group_id, has_registry=bool(registry.url)))
    problems.extend(target_problems(named, group_id))
    return usable(named)


def usable(named: Iterable[NamedRoute]) -> tuple[RouteSettings, ...]:
    """Return the routes with valid inputs."""
    return tuple(
        entry.route
        for entry in named
        if entry.route.inputs and not any(map(expression_fault, entry.route.inputs))
    )


def read_route(keys: Mapping[str, object], section: str, problems: list[ConfigIssue]) -> NamedRoute:
    """Read one route; `section` names it in problems if it has neither name nor inputs."""
    inputs = keys.get("inputs")
    first = inputs[0] if isinstance(inputs, list) and inputs else inputs
    label = keys.get("name") or first
    where = f'routes["{label}"]' if label and isinstance(label, str) else f"routes[{section}]"
    table = table_of(keys, where, ("routes", str(label)))
    route = read_section(RouteSettings, table, problems)
    if not route.name and route.inputs:
        route = replace(route, name=route.inputs[0])
    return NamedRoute(where, route, names_inputs=bool(inputs))


def read_addresses(content: object, problems: list[ConfigIssue]) -> AddressBook:
    """Read `[addresses]`: patterns, each with its keys."""
    book: dict[str, Mapping[str, object]] = {}
    for pattern, keys in (content if isinstance(content, dict) else {}).items():
        name = f'addresses."{pattern}"'
        fault = pattern_fault(pattern)
        if fault:
            what = f"{name} is not a pattern: {fault}"
            problems.append(ConfigIssue(what, _PATTERN_FIX, (("addresses", pattern),)))
        if not isinstance(keys, dict):
            problems.append(ConfigIssue(f"{name} is not a table", f"write [{name}] above its keys"))
            continue
        nested = [key for key, value in keys.items() if isinstance(value, dict)]
        problems.extend(_unquoted(pattern, key) for key in nested)
        own = {key: value for key, value in keys.items() if key not in nested}
        table = table_of(own, name, ("addresses", pattern))
        accepted = read_keys(AddressSettings, table, problems)
        if not fault:
            book[pattern] = accepted
    return AddressBook.of(book)


def _unquoted(pattern: str, key: str) -> ConfigIssue:
    what = f"addresses.{pattern}.{key} is a table within a table"
    fix = f'quote the whole pattern: [addresses."{pattern}.{key}"]'
    return ConfigIssue(what, fix, (("addresses", pattern, key),))
