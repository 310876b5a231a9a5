"""Schema of the chart's values: what it allows below `config` is what the service allows.

The rest of values.schema.json is written by hand; this module keeps it, in one layout.
"""

import json
import re
from collections.abc import Mapping
from typing import Any, Final

from ringfence_service.config.addresses import AddressSettings
from ringfence_service.config.keys import keys_of
from ringfence_service.config.model import (
    ApiSettings,
    LogSettings,
    RouteSettings,
    SchemaRegistrySettings,
    ServiceSettings,
    TracingSettings,
)
from tools.chart.readme import CHART

SCHEMA: Final = CHART / "values.schema.json"
SECTIONS: Final[Mapping[str, type]] = {
    "service": ServiceSettings,
    "api": ApiSettings,
    "route": RouteSettings,
    "addressSettings": AddressSettings,
    "log": LogSettings,
    "tracing": TracingSettings,
    "schemaRegistry": SchemaRegistrySettings,
}
"""By the name of their definition in the schema."""

_OF_THE_POD: Final = {"instance", "state_dir", "host", "port", "probe_port", "advertised_url"}
"""Keys that the chart sets itself, as it does with those of files."""

_SECRETS: Final = {"password"}
"""Keys that are no values of the chart: its values are not secret."""

_COLUMNS: Final = 100


def schema_of(section: type) -> dict[str, Any]:
    """Return the JSON Schema of the keys of a section that are values of the chart."""
    return {
        name: _portable(key.schema)
        for name, key in keys_of(section).items()
        if name not in _OF_THE_POD | _SECRETS and not name.endswith("_file")
    }


def renewed_schema(text: str) -> str:
    """Return the schema of all values with the definitions of these sections."""
    schema = json.loads(text)
    for name, section in SECTIONS.items():
        schema["definitions"][name]["properties"] = schema_of(section)
    schema["definitions"]["route"]["properties"]["inputs"]["minItems"] = 1
    return f"{_laid_out(schema, '')}\n"


def _portable(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return a schema whose regular expressions are of the kind that Helm and editors share."""
    # Backwards, so that the type comes first and the minimum before the maximum.
    found = {name: schema[name] for name in sorted(schema, reverse=True) if name != "pattern"}
    if "items" in found:
        found["items"] = _portable(found["items"])
    if "pattern" not in schema:
        return found
    if not re.fullmatch(schema["pattern"], ""):
        found["minLength"] = 1
    shape = schema["pattern"].removeprefix(r"\A(?s:").removesuffix(r")\Z")
    # Only Python has lookahead; and `.` would not match a line break.
    return found if "(?" in shape or shape in (".+", ".*") else found | {"pattern": f"^({shape})$"}


def _laid_out(value: object, indent: str) -> str:
    """Return JSON in which an object or a list that fits has a line of its own."""
    line = json.dumps(value, ensure_ascii=False)
    if len(indent) + len(line) <= _COLUMNS or not isinstance(value, dict | list):
        return line
    inner = f"{indent}  "
    if isinstance(value, list):
        rows, (begin, end) = [_laid_out(each, inner) for each in value], "[]"
    else:
        rows = [f"{json.dumps(name)}: {_laid_out(each, inner)}" for name, each in value.items()]
        begin, end = "{}"
    return f"{begin}\n{inner}" + f",\n{inner}".join(rows) + f"\n{indent}{end}"
