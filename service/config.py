"""The configuration, checked once at start: defaults, then a TOML file, then the environment.

`load` returns a frozen Config or raises ConfigErrors with every problem at once. `load_lenient`
gives both: faulty keys fall back to their defaults, so that a check can still ask the broker.
No problem and no repr ever shows a secret.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

from service.addresses import AddressBook, AddressSettings, pattern_fault
from service.api_checks import api_problems
from service.document import (
    kafka_tables,
    read_document,
    section_problems,
    table_of,
    tables_of,
)
from service.environment import Tables, read_kafka_variables, read_ours
from service.errors import ExitCode, ExitError, Problem
from service.kafka_properties import SCOPES, KafkaSettings, read_kafka
from service.reading import Table, read_keys, read_section
from service.route_checks import NamedRoute, expression_fault, route_problems
from service.sections import (
    ApiSettings,
    LogSettings,
    RouteSettings,
    ServiceSettings,
    TracingSettings,
)
from service.timing_checks import timing_problems
from service.tracing_checks import tracing_problems

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

    def __init__(self, problems: list[Problem]) -> None:
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
) -> tuple[Config | None, list[Problem]]:
    """Return what could be read, with defaults for what is faulty, and every problem."""
    problems: list[Problem] = []
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
    problems: list[Problem],
) -> S:
    """Read one section of the file, refined by the environment."""
    from_file = table_of(document.get(name), name)
    return read_section(section, Table(name, {**from_file.keys, **variables[name]}), problems)


def _read_kafka(
    content: object, environ: Mapping[str, str], problems: list[Problem]
) -> KafkaSettings:
    from_file = kafka_tables(content)
    variables = read_kafka_variables(environ, problems)
    tables = {scope: {**from_file[scope], **variables[scope]} for scope in SCOPES}
    return read_kafka(tables, problems)


def _read_routes(
    content: object, group_id: str, problems: list[Problem]
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


def read_route(keys: Mapping[str, object], number: int, problems: list[Problem]) -> NamedRoute:
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


def read_addresses(content: object, problems: list[Problem]) -> AddressBook:
    """Read patterns with the keys that each gives."""
    book: dict[str, Mapping[str, object]] = {}
    for pattern, keys in (content if isinstance(content, dict) else {}).items():
        name = f'addresses."{pattern}"'
        fault = pattern_fault(pattern)
        if fault:
            problems.append(Problem(f"{name} is not a pattern: {fault}", _PATTERN_MEND))
        if not isinstance(keys, dict):
            problems.append(Problem(f"{name} is not a table", f"write [{name}] above its keys"))
            continue
        nested = [key for key, value in keys.items() if isinstance(value, dict)]
        problems.extend(_unquoted(pattern, key) for key in nested)
        own = {key: value for key, value in keys.items() if key not in nested}
        accepted = read_keys(AddressSettings, table_of(own, name), problems)
        if not fault:
            book[pattern] = accepted
    return AddressBook.of(book)


def _unquoted(pattern: str, key: str) -> Problem:
    what = f"addresses.{pattern}.{key} is a table within a table"
    return Problem(what, f'quote the whole pattern: [addresses."{pattern}.{key}"]')
