"""The chart's schema allows what the service allows: it is generated from the service's settings.

The chart refuses early, before anything is installed; the service has the last word.
"""

from pathlib import Path

import pytest
import re2

from ringfence_service.config.keys import InvalidValueError, keys_of
from ringfence_service.config.model import ServiceSettings
from tools.chart.__main__ import GENERATED
from tools.chart.schema import SECTIONS, schema_of

pytestmark = pytest.mark.helm


def patterns() -> set[str]:
    """Return those of all generated definitions."""
    schemas = (key for section in SECTIONS.values() for key in schema_of(section).values())
    texts = (schema.get("items", schema) for schema in schemas)
    return {text["pattern"] for text in texts if "pattern" in text}


@pytest.mark.parametrize("file", GENERATED, ids=lambda file: file.name)
def test_a_generated_file_is_what_the_generator_writes(file: Path) -> None:
    text = file.read_text("utf-8")
    assert text == GENERATED[file](text), "run python -m tools.chart"


def test_what_the_pod_decides_is_no_value_of_the_chart() -> None:
    assert keys_of(ServiceSettings).keys() - schema_of(ServiceSettings).keys() == {
        "instance",
        "state_dir",
    }


@pytest.mark.parametrize("pattern", sorted(patterns()))
def test_helm_understands_every_pattern(pattern: str) -> None:
    re2.compile(pattern)


@pytest.mark.parametrize("group_id", ["", ".", "..", "a b", "a" * 181, "orders\n"])
def test_schema_and_service_refuse_the_same_group_id(group_id: str) -> None:
    schema = schema_of(ServiceSettings)["group_id"]
    assert len(group_id) > schema["maxLength"] or not re2.search(schema["pattern"], group_id)
    with pytest.raises(InvalidValueError):
        keys_of(ServiceSettings)["group_id"].read(group_id)
