"""The chart's schema and the service's own rules allow the same: neither drifts from the other.

The chart refuses early, before anything is installed; the service has the last word.
"""

import json
from typing import Any

import pytest

from service.config.addresses import AddressSettings
from service.config.model import (
    ApiSettings,
    BooleanValue,
    ChoiceValue,
    FractionValue,
    IntegerValue,
    LogSettings,
    RouteSettings,
    ServiceSettings,
    TextListValue,
    TextValue,
    TracingSettings,
    Validator,
    rules_of,
)
from tests.helm.chart import CHART_DIR

pytestmark = pytest.mark.helm

# What the pod decides is the chart's to say, not the operator's.
NOT_IN_VALUES = {"instance", "state_dir", "host", "port", "probe_port", "advertised_url"}
NOT_IN_VALUES |= {name for name in rules_of(ApiSettings) if name.endswith("_file")}
# Shapes of text differ: the schema's expressions know less than Python's.
TEXT_KEYWORDS = {"minLength", "minItems", "pattern"}


def as_schema(rule: Validator) -> dict[str, Any]:
    """Say in JSON Schema what a rule of the service allows."""
    match rule:
        case ChoiceValue():
            return {"enum": list(rule.names)}
        case BooleanValue():
            return {"type": "boolean"}
        case FractionValue():
            return {"type": "number", "minimum": 0, "maximum": 1}
        case TextValue():
            return {"type": "string"}
        case TextListValue():
            return {"type": "array", "uniqueItems": True, "items": as_schema(rule.item)}
        case IntegerValue(low=low, high=high, besides=besides):
            span = {"type": "integer", "minimum": low, "maximum": high}
            return {"anyOf": [*({"const": one} for one in besides), span]} if besides else span
    raise AssertionError(f"the schema does not know a rule {rule}")


def without_shapes(schema: dict[str, Any]) -> dict[str, Any]:
    """Leave out what the schema says about the shape of texts."""
    kept = {name: value for name, value in schema.items() if name not in TEXT_KEYWORDS}
    return kept | ({"items": without_shapes(kept["items"])} if "items" in kept else {})


@pytest.mark.parametrize(
    ("definition", "section"),
    [
        ("service", ServiceSettings),
        ("api", ApiSettings),
        ("route", RouteSettings),
        ("addressSettings", AddressSettings),
        ("log", LogSettings),
        ("tracing", TracingSettings),
    ],
)
def test_the_schema_allows_what_the_service_allows(definition: str, section: type) -> None:
    schema = json.loads((CHART_DIR / "values.schema.json").read_text())["definitions"][definition]
    assert {name: without_shapes(allowed) for name, allowed in schema["properties"].items()} == {
        name: as_schema(rule)
        for name, rule in rules_of(section).items()
        if name not in NOT_IN_VALUES
    }
