"""Configuration: defaults, then a TOML file, then the environment, validated once at the start.

`load` returns a frozen Config or raises ConfigErrors with all problems at once. `load_lenient`
returns both: invalid keys have their defaults, so that a check can still ask the broker.
No problem and no repr ever shows a secret.
"""

import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, TypeVar

from service.config.addresses import AddressBook, AddressSettings, pattern_fault
from service.config.kafka_properties import KNOWN, SCOPES, KafkaSettings, read_kafka
from service.config.model import (
    ApiSettings,
    BridgeSettings,
    GivenSection,
    GivenValue,
    LogSettings,
    RouteSettings,
    ServiceSettings,
    TracingSettings,
    nearest,
    read_keys,
    read_section,
    rules_of,
)
from service.config.validation import (
    NamedRoute,
    api_problems,
    expression_fault,
    route_problems,
    timing_problems,
    tracing_problems,
)
from service.errors import ConfigIssue, ExitCode, ExitError

OURS: Final = "RINGFENCE_"

KAFKA: Final = "KAFKA_"

SECTIONS: Final = {
    "service": ServiceSettings,
    "api": ApiSettings,
    "log": LogSettings,
    "tracing": TracingSettings,
    "bridge": BridgeSettings,
}
"""What the environment can set; routes and addresses come from the file."""

CLUSTERS: Final = ("source", "target")
"""Tables of `[bridge]` that hold Kafka properties."""

_BETWEEN = "__"

_FROM_FILE = "_file"

_OF_CLUSTERS = tuple(f"{cluster}{_BETWEEN}" for cluster in CLUSTERS)

_FILE = _FROM_FILE.replace("_", ".")

_LINK_MARKER = "://"

Tables = dict[str, dict[str, GivenValue]]


def read_ours(environ: Mapping[str, str], problems: list[ConfigIssue]) -> Tables:
    """Return the keys of our sections that the environment gives."""
    tables: Tables = {section: {} for section in SECTIONS}
    for variable, text in sorted(environ.items()):
        if not variable.startswith(OURS) or not text:
            continue
        section, between, key = variable.removeprefix(OURS).lower().partition(_BETWEEN)
        if key.startswith(_OF_CLUSTERS) and section == "bridge":
            continue  # a Kafka property: see read_cluster_variables
        if not between:
            problems.extend(_single_underscore(variable, text))
        elif section not in SECTIONS:
            problems.append(_no_section(variable, section))
        else:
            tables[section] |= _read_variable(section, key, variable, text, problems)
    return tables


def read_kafka_variables(environ: Mapping[str, str], problems: list[ConfigIssue]) -> Tables:
    """Return the Kafka properties that the environment gives, by scope."""
    tables: Tables = {scope: {} for scope in SCOPES}
    for variable, text in sorted(environ.items()):
        if not variable.startswith(KAFKA) or not text:
            continue
        scope, name = _property(variable.removeprefix(KAFKA))
        stem = name.removesuffix(_FILE)
        if name in KNOWN:
            tables[scope][name] = GivenValue(text, variable)
        elif stem in KNOWN and stem != name:
            content = _read_file(variable, text, problems)
            if content is not None:
                tables[scope][stem] = GivenValue(content, variable)
        elif near := nearest(name, KNOWN, cutoff=0.85):
            what = f"{variable} is not a property that librdkafka knows"
            problems.append(ConfigIssue(what, f"the nearest is {near}: rename or remove it"))
    return tables


def read_cluster_variables(
    cluster: str, environ: Mapping[str, str], problems: list[ConfigIssue]
) -> dict[str, GivenValue]:
    """Return the properties of `[bridge.<cluster>]` that the environment gives."""
    prefix = f"{OURS}BRIDGE{_BETWEEN}{cluster.upper()}{_BETWEEN}"
    found: dict[str, GivenValue] = {}
    for variable, text in sorted(environ.items()):
        if not variable.startswith(prefix) or not text:
            continue
        name = _key_of(variable.removeprefix(prefix))
        stem = name.removesuffix(_FILE)
        if name not in KNOWN and stem in KNOWN:
            content = _read_file(variable, text, problems)
            found |= {} if content is None else {stem: GivenValue(content, variable)}
        else:
            found[name] = GivenValue(text, variable)
    return found


def _read_variable(
    section: str, key: str, variable: str, text: str, problems: list[ConfigIssue]
) -> dict[str, GivenValue]:
    """Return the key and value that one variable gives; none when its file cannot be read."""
    rules = rules_of(SECTIONS[section])
    value: str | None = text
    stem = key.removesuffix(_FROM_FILE)
    if key not in rules and stem in rules:
        key, value = stem, _read_file(variable, text, problems)
    if value is None:
        return {}
    given = rules[key].from_text(value) if key in rules else value
    return {key: GivenValue(given, f"{section}.{key} (from {variable})")}


def _single_underscore(variable: str, text: str) -> list[ConfigIssue]:
    """Tell of a name that misses its second underscore; links of Kubernetes services hold a URL."""
    for section, settings in SECTIONS.items():
        for key in rules_of(settings):
            meant = f"{OURS}{section}{_BETWEEN}{key}".upper()
            if variable == meant.replace(_BETWEEN, "_", 1) and _LINK_MARKER not in text:
                return [
                    ConfigIssue(f"{variable} is not read", f"write {meant}, with two underscores")
                ]
    return []


def _no_section(variable: str, section: str) -> ConfigIssue:
    what = f"{variable} is not read"
    if section == "kafka":
        return ConfigIssue(
            what, f"write {KAFKA}BOOTSTRAP_SERVERS and the like for Kafka properties"
        )
    if section in ("routes", "addresses"):
        return ConfigIssue(what, f"write {section} into the configuration file")
    known = " or ".join(f"{OURS}{name.upper()}{_BETWEEN}KEY" for name in SECTIONS)
    return ConfigIssue(what, f"write {known}")


def _property(rest: str) -> tuple[str, str]:
    """Return the scope and the librdkafka name that a variable stands for."""
    name = _key_of(rest)
    scope, dot, refined = name.partition(".")
    return (scope, refined) if dot and scope in SCOPES else ("common", name)


def _key_of(name: str) -> str:
    return name.lower().replace(_BETWEEN, "\0").replace("_", ".").replace("\0", "_")


def _read_file(variable: str, path: str, problems: list[ConfigIssue]) -> str | None:
    try:
        return Path(path).read_text(encoding="utf-8").rstrip("\r\n")
    except (OSError, UnicodeDecodeError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text in UTF-8"
        what = f'{variable} names the file "{path}", which cannot be read: {reason}'
        problems.append(ConfigIssue(what, "mount the file or unset the variable"))
        return None


_SECTIONS = ("kafka", "service", "api", "routes", "addresses", "log", "tracing", "bridge")

BRIDGE_SECTIONS = frozenset({"bridge", "api", "log"})
"""What `ringfence bridge` reads; a file that holds no other is for a bridge alone."""


def read_document(path: Path, problems: list[ConfigIssue]) -> dict[str, object] | None:
    """Parse the file; None and a problem when that fails, ExitError where there is none."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except tomllib.TOMLDecodeError as error:
        reason, _, place = str(error).rpartition(" (at ")
        what = f"{path}, {place.rstrip(')')}: {reason[:1].lower()}{reason[1:]}"
        mend = "mend the TOML there: text and keys with dots or `#` stand in quotes"
        problems.append(ConfigIssue(what, mend))
    except UnicodeDecodeError as error:
        what = f"{path}, byte {error.start}: not text in UTF-8"
        problems.append(ConfigIssue(what, "save the file as UTF-8"))
    except OSError as error:
        sentence = f"{path} cannot be read: {error.strerror}; name a readable file."
        raise ExitError(ExitCode.USAGE, sentence) from error
    return None


def section_problems(document: Mapping[str, object]) -> Iterator[ConfigIssue]:
    """Yield what is wrong with the names and kinds of sections."""
    for name, content in document.items():
        if name not in _SECTIONS:
            near = nearest(name, _SECTIONS)
            mend = f"the nearest is {near}: rename or remove it" if near else "remove it"
            yield ConfigIssue(f"{name} is not a section", mend)
        elif name == "routes":
            if not isinstance(content, list) or not all(isinstance(r, dict) for r in content):
                yield ConfigIssue("routes is not a list of tables", "write [[routes]] above each")
        elif not isinstance(content, dict):
            yield ConfigIssue(f"{name} is not a table", f"write [{name}] above its keys")


def table_of(content: object, name: str) -> GivenSection:
    """Return a table of the file under its full name; what is not a table is an empty one."""
    keys = content if isinstance(content, dict) else {}
    return GivenSection(
        name, {key: GivenValue(value, f"{name}.{key}") for key, value in keys.items()}
    )


def tables_of(content: object) -> list[Mapping[str, object]]:
    """Return the tables of a list of tables."""
    return [item for item in content if isinstance(item, dict)] if isinstance(content, list) else []


def kafka_tables(content: object) -> Tables:
    """Return the properties of `[kafka]` and of its tables, by scope."""
    whole = dict(content) if isinstance(content, dict) else {}
    tables: Tables = {}
    for scope in SCOPES[1:]:
        refined = whole.pop(scope, {})
        properties = refined if isinstance(refined, dict) else {scope: refined}
        tables[scope] = properties_of(properties, f"kafka.{scope}")
    tables[SCOPES[0]] = properties_of(whole, "kafka")
    return tables


def properties_of(content: Mapping[str, object], table: str) -> dict[str, GivenValue]:
    """Return the Kafka properties of a table of the file under its full name."""
    return {
        name: GivenValue(value, f'{table}."{name}"') for name, value in _dotted(content).items()
    }


def _dotted(table: Mapping[str, object], prefix: str = "") -> dict[str, object]:
    """Join nested tables: `bootstrap.servers` without quotes means what it says."""
    properties: dict[str, object] = {}
    for name, value in table.items():
        if isinstance(value, dict):
            properties.update(_dotted(value, f"{prefix}{name}."))
        else:
            properties[prefix + name] = value
    return properties


__all__ = [
    "ApiSettings",
    "Config",
    "ConfigErrors",
    "KafkaSettings",
    "RouteSettings",
    "ServiceSettings",
    "load",
    "load_lenient",
]

S = TypeVar("S")

_PATTERN_MEND = (
    'write whole words between dots, `*` for one word, `#` last for any number, "(text)" for text'
)


@dataclass(frozen=True, slots=True)
class Config:
    """All settings of one instance."""

    kafka: KafkaSettings
    service: ServiceSettings
    api: ApiSettings
    routes: tuple[RouteSettings, ...]
    addresses: AddressBook
    log: LogSettings = field(default_factory=LogSettings)
    tracing: TracingSettings = field(default_factory=TracingSettings)


class ConfigErrors(ExitError):  # noqa: N818  it holds several
    """Everything that is wrong with a configuration, at once."""

    def __init__(self, problems: list[ConfigIssue]) -> None:
        super().__init__(ExitCode.USAGE, "\n".join(str(problem) for problem in problems))
        self.problems = tuple(problems)


def load(path: Path | None, environ: Mapping[str, str], *, serves: bool = True) -> Config:
    """Return the configuration, or raise ConfigErrors with all problems.

    Whoever reads it and does not serve may be on a machine without the files of `[api]` and what
    `[tracing]` needs.
    """
    config, problems = load_lenient(path, environ, serves=serves)
    if config is None or problems:
        raise ConfigErrors(problems)
    return config


def load_lenient(
    path: Path | None, environ: Mapping[str, str], *, serves: bool = True
) -> tuple[Config | None, list[ConfigIssue]]:
    """Return what could be read, with defaults for what is faulty, and every problem."""
    problems: list[ConfigIssue] = []
    document = read_document(path, problems) if path else {}
    if document is None:
        return None, problems
    problems.extend(section_problems(document))
    ours = read_ours(environ, problems)
    kafka = _read_kafka(document.get("kafka"), environ, problems)
    service = read_part(ServiceSettings, "service", document, ours, problems)
    api = read_part(ApiSettings, "api", document, ours, problems)
    routes = _read_routes(document.get("routes"), service.group_id, problems)
    addresses = read_addresses(document.get("addresses"), problems)
    problems.extend(timing_problems(kafka, service))
    log = read_part(LogSettings, "log", document, ours, problems)
    tracing = read_part(TracingSettings, "tracing", document, ours, problems)
    if serves:
        problems.extend((*api_problems(api), *tracing_problems(tracing)))
    return Config(kafka, service, api, routes, addresses, log, tracing), problems


def read_part(
    section: type[S],
    name: str,
    document: Mapping[str, object],
    variables: Tables,
    problems: list[ConfigIssue],
) -> S:
    """Read one section of the file, refined by the environment."""
    from_file = table_of(document.get(name), name)
    return read_section(
        section, GivenSection(name, {**from_file.keys, **variables[name]}), problems
    )


def _read_kafka(
    content: object, environ: Mapping[str, str], problems: list[ConfigIssue]
) -> KafkaSettings:
    from_file = kafka_tables(content)
    variables = read_kafka_variables(environ, problems)
    tables = {scope: {**from_file[scope], **variables[scope]} for scope in SCOPES}
    return read_kafka(tables, problems)


def _read_routes(
    content: object, group_id: str, problems: list[ConfigIssue]
) -> tuple[RouteSettings, ...]:
    named = [
        read_route(keys, number, problems) for number, keys in enumerate(tables_of(content), 1)
    ]
    problems.extend(route_problems(named, group_id))
    return usable(named)


def usable(named: Iterable[NamedRoute]) -> tuple[RouteSettings, ...]:
    """Those of the routes that have inputs."""
    return tuple(
        entry.route
        for entry in named
        if entry.route.inputs and not any(map(expression_fault, entry.route.inputs))
    )


def read_route(keys: Mapping[str, object], number: int, problems: list[ConfigIssue]) -> NamedRoute:
    """Read one route; `number` names it where nothing else does."""
    table = table_of(keys, f"routes[{_label(keys, number)}]")
    route = read_section(RouteSettings, table, problems)
    if not route.name and route.inputs:
        route = replace(route, name=route.inputs[0])
    return NamedRoute(table.name, route, names_inputs=bool(keys.get("inputs")))


def _label(keys: Mapping[str, object], number: int) -> str:
    """Name a route in problems as its author would: by name, by first input, at last by place."""
    inputs = keys.get("inputs")
    first = inputs[0] if isinstance(inputs, list) and inputs else None
    label = keys.get("name") or first
    return f'"{label}"' if isinstance(label, str) else str(number)


def read_addresses(content: object, problems: list[ConfigIssue]) -> AddressBook:
    """Read patterns with the keys that each gives."""
    book: dict[str, Mapping[str, object]] = {}
    for pattern, keys in (content if isinstance(content, dict) else {}).items():
        name = f'addresses."{pattern}"'
        fault = pattern_fault(pattern)
        if fault:
            problems.append(ConfigIssue(f"{name} is not a pattern: {fault}", _PATTERN_MEND))
        if not isinstance(keys, dict):
            problems.append(ConfigIssue(f"{name} is not a table", f"write [{name}] above its keys"))
            continue
        nested = [key for key, value in keys.items() if isinstance(value, dict)]
        problems.extend(_unquoted(pattern, key) for key in nested)
        own = {key: value for key, value in keys.items() if key not in nested}
        accepted = read_keys(AddressSettings, table_of(own, name), problems)
        if not fault:
            book[pattern] = accepted
    return AddressBook.of(book)


def _unquoted(pattern: str, key: str) -> ConfigIssue:
    what = f"addresses.{pattern}.{key} is a table within a table"
    return ConfigIssue(what, f'quote the whole pattern: [addresses."{pattern}.{key}"]')
