"""Settings from environment variables: ours, and Kafka properties.

`RINGFENCE_SECTION__KEY` is a key of a section, be it `[service]`, `[api]`, `[log]`, `[tracing]` or
`[bridge]`. `KAFKA_FETCH_MIN_BYTES` is a Kafka property (`_` is `.`, `__` is `_`),
`KAFKA_CONSUMER_…` one of `[kafka.consumer]`, `RINGFENCE_BRIDGE__SOURCE__…` one of
`[bridge.source]`. A name with `_FILE` behind it names a file that holds the value. An empty
variable counts as absent.
Others use these prefixes too (`KAFKA_HEAP_OPTS`, the links of Kubernetes services): what resembles
no setting is left alone, what resembles one is a problem and never ignored.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from service.errors import Problem
from service.kafka_properties import KNOWN, SCOPES
from service.reading import Given, nearest
from service.rules import rules_of
from service.sections import (
    ApiSettings,
    BridgeSettings,
    LogSettings,
    ServiceSettings,
    TracingSettings,
)

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

Tables = dict[str, dict[str, Given]]


def read_ours(environ: Mapping[str, str], problems: list[Problem]) -> Tables:
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


def read_kafka_variables(environ: Mapping[str, str], problems: list[Problem]) -> Tables:
    """Return the Kafka properties that the environment gives, by scope."""
    tables: Tables = {scope: {} for scope in SCOPES}
    for variable, text in sorted(environ.items()):
        if not variable.startswith(KAFKA) or not text:
            continue
        scope, name = _property(variable.removeprefix(KAFKA))
        stem = name.removesuffix(_FILE)
        if name in KNOWN:
            tables[scope][name] = Given(text, variable)
        elif stem in KNOWN and stem != name:
            content = _read_file(variable, text, problems)
            if content is not None:
                tables[scope][stem] = Given(content, variable)
        elif near := nearest(name, KNOWN, cutoff=0.85):
            what = f"{variable} is not a property that librdkafka knows"
            problems.append(Problem(what, f"the nearest is {near}: rename or remove it"))
    return tables


def read_cluster_variables(
    cluster: str, environ: Mapping[str, str], problems: list[Problem]
) -> dict[str, Given]:
    """Return the properties of `[bridge.<cluster>]` that the environment gives."""
    prefix = f"{OURS}BRIDGE{_BETWEEN}{cluster.upper()}{_BETWEEN}"
    found: dict[str, Given] = {}
    for variable, text in sorted(environ.items()):
        if not variable.startswith(prefix) or not text:
            continue
        name = _dotted(variable.removeprefix(prefix))
        stem = name.removesuffix(_FILE)
        if name not in KNOWN and stem in KNOWN:
            content = _read_file(variable, text, problems)
            found |= {} if content is None else {stem: Given(content, variable)}
        else:
            found[name] = Given(text, variable)
    return found


def _read_variable(
    section: str, key: str, variable: str, text: str, problems: list[Problem]
) -> dict[str, Given]:
    """Return the key and value that one variable gives; none when its file cannot be read."""
    rules = rules_of(SECTIONS[section])
    value: str | None = text
    stem = key.removesuffix(_FROM_FILE)
    if key not in rules and stem in rules:
        key, value = stem, _read_file(variable, text, problems)
    if value is None:
        return {}
    given = rules[key].from_text(value) if key in rules else value
    return {key: Given(given, f"{section}.{key} (from {variable})")}


def _single_underscore(variable: str, text: str) -> list[Problem]:
    """Tell of a name that misses its second underscore; links of Kubernetes services hold a URL."""
    for section, settings in SECTIONS.items():
        for key in rules_of(settings):
            meant = f"{OURS}{section}{_BETWEEN}{key}".upper()
            if variable == meant.replace(_BETWEEN, "_", 1) and _LINK_MARKER not in text:
                return [Problem(f"{variable} is not read", f"write {meant}, with two underscores")]
    return []


def _no_section(variable: str, section: str) -> Problem:
    what = f"{variable} is not read"
    if section == "kafka":
        return Problem(what, f"write {KAFKA}BOOTSTRAP_SERVERS and the like for Kafka properties")
    if section in ("routes", "addresses"):
        return Problem(what, f"write {section} into the configuration file")
    known = " or ".join(f"{OURS}{name.upper()}{_BETWEEN}KEY" for name in SECTIONS)
    return Problem(what, f"write {known}")


def _property(rest: str) -> tuple[str, str]:
    """Return the scope and the librdkafka name that a variable stands for."""
    name = _dotted(rest)
    scope, dot, refined = name.partition(".")
    return (scope, refined) if dot and scope in SCOPES else ("common", name)


def _dotted(name: str) -> str:
    return name.lower().replace(_BETWEEN, "\0").replace("_", ".").replace("\0", "_")


def _read_file(variable: str, path: str, problems: list[Problem]) -> str | None:
    try:
        return Path(path).read_text(encoding="utf-8").rstrip("\r\n")
    except (OSError, UnicodeDecodeError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text in UTF-8"
        what = f'{variable} names the file "{path}", which cannot be read: {reason}'
        problems.append(Problem(what, "mount the file or unset the variable"))
        return None
