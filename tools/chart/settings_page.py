"""Tables of settings in docs/configuration.md, generated from the service's model of them."""

import ast
import inspect
import textwrap
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Final

from ringfence_service.config.addresses import AddressSettings
from ringfence_service.config.keys import keys_of, shown
from ringfence_service.config.model import (
    ApiSettings,
    BridgeSettings,
    LogSettings,
    RouteSettings,
    SchemaRegistrySettings,
    ServiceSettings,
    TracingSettings,
)
from tools.chart.readme import replaced

PAGE: Final = Path(__file__).parents[2] / "docs" / "configuration.md"
BEGIN: Final = "<!-- {}: made from service/ringfence_service/config by python -m tools.chart -->"
END: Final = "<!-- end of {} -->"
SECTIONS: Final[Mapping[str, type]] = {
    "service": ServiceSettings,
    "routes": RouteSettings,
    "addresses": AddressSettings,
    "api": ApiSettings,
    "log": LogSettings,
    "tracing": TracingSettings,
    "schema_registry": SchemaRegistrySettings,
    "bridge": BridgeSettings,
}


def renewed_settings(page: str) -> str:
    """Return the page with a table for each section, which has a row for each key."""
    for name, section in SECTIONS.items():
        page = replaced(page, BEGIN.format(name), END.format(name), _table(section))
    return page


def _table(section: type) -> str:
    defaults, meanings = section(), meanings_of(section)
    rows = ["| key | default | allowed | meaning |", "|---|---|---|---|"]
    for key, each in keys_of(section).items():
        default = shown(getattr(defaults, key))
        rows.append(f"| `{key}` | `{default}` | {each.allowed} | {meanings[key]} |")
    return "\n".join(rows)


def meanings_of(section: type) -> dict[str, str]:
    """Return the docstring of each field of a section, on one line."""
    (defined,) = ast.parse(textwrap.dedent(inspect.getsource(section))).body
    assert isinstance(defined, ast.ClassDef)  # the section is a class
    return {
        field.target.id: " ".join(text.split())
        for field, after in pairwise(defined.body)
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
        if isinstance(text := after.value.value, str)
    }
