"""Table of all settings in docs/configuration.md, generated from the service's model of them."""

from collections.abc import Mapping
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
BEGIN: Final = (
    "<!-- settings: made from service/ringfence_service/config by python -m tools.chart -->"
)
END: Final = "<!-- end of settings -->"
SECTIONS: Final[Mapping[str, type]] = {
    "service": ServiceSettings,
    "api": ApiSettings,
    "routes": RouteSettings,
    'addresses."PATTERN"': AddressSettings,
    "log": LogSettings,
    "tracing": TracingSettings,
    "schema_registry": SchemaRegistrySettings,
    "bridge": BridgeSettings,
}


def renewed_settings(page: str) -> str:
    """Return the page with a row for each key of each section."""
    rows = ["| key | default | allowed |", "|---|---|---|"]
    for name, section in SECTIONS.items():
        defaults = section()
        for key, each in keys_of(section).items():
            default = shown(getattr(defaults, key))
            rows.append(f"| `{name}.{key}` | `{default}` | {each.allowed} |")
    return replaced(page, BEGIN, END, "\n".join(rows))
