"""The TOML file as tables of given values: syntax, sections and keys, but not yet what they hold.

A file that cannot be parsed yields nothing but a problem that names line and column; a
section of the wrong kind yields a problem and counts as absent.
"""

import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path

from service.environment import Tables
from service.errors import ExitCode, ExitError, Problem
from service.kafka_properties import SCOPES
from service.reading import Given, Table, nearest

_SECTIONS = ("kafka", "service", "api", "routes", "addresses", "log", "tracing", "bridge")
BRIDGE_SECTIONS = frozenset({"bridge", "api", "log"})
"""What `ringfence bridge` reads; a file that holds no other is for a bridge alone."""


def read_document(path: Path, problems: list[Problem]) -> dict[str, object] | None:
    """Parse the file; None and a problem when that fails, ExitError where there is none."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except tomllib.TOMLDecodeError as error:
        reason, _, place = str(error).rpartition(" (at ")
        what = f"{path}, {place.rstrip(')')}: {reason[:1].lower()}{reason[1:]}"
        mend = "mend the TOML there: text and keys with dots or `#` stand in quotes"
        problems.append(Problem(what, mend))
    except UnicodeDecodeError as error:
        what = f"{path}, byte {error.start}: not text in UTF-8"
        problems.append(Problem(what, "save the file as UTF-8"))
    except OSError as error:
        sentence = f"{path} cannot be read: {error.strerror}; name a readable file."
        raise ExitError(ExitCode.USAGE, sentence) from error
    return None


def section_problems(document: Mapping[str, object]) -> Iterator[Problem]:
    """Yield what is wrong with the names and kinds of sections."""
    for name, content in document.items():
        if name not in _SECTIONS:
            near = nearest(name, _SECTIONS)
            mend = f"the nearest is {near}: rename or remove it" if near else "remove it"
            yield Problem(f"{name} is not a section", mend)
        elif name == "routes":
            if not isinstance(content, list) or not all(isinstance(r, dict) for r in content):
                yield Problem("routes is not a list of tables", "write [[routes]] above each")
        elif not isinstance(content, dict):
            yield Problem(f"{name} is not a table", f"write [{name}] above its keys")


def table_of(content: object, name: str) -> Table:
    """Return a table of the file under its full name; what is not a table is an empty one."""
    keys = content if isinstance(content, dict) else {}
    return Table(name, {key: Given(value, f"{name}.{key}") for key, value in keys.items()})


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


def properties_of(content: Mapping[str, object], table: str) -> dict[str, Given]:
    """Return the Kafka properties of a table of the file under its full name."""
    return {name: Given(value, f'{table}."{name}"') for name, value in _dotted(content).items()}


def _dotted(table: Mapping[str, object], prefix: str = "") -> dict[str, object]:
    """Join nested tables: `bootstrap.servers` without quotes means what it says."""
    properties: dict[str, object] = {}
    for name, value in table.items():
        if isinstance(value, dict):
            properties.update(_dotted(value, f"{prefix}{name}."))
        else:
            properties[prefix + name] = value
    return properties
