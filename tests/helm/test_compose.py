"""deploy/compose.yaml fits the published schema of Compose files."""

import json
from typing import Any

import jsonschema  # type: ignore[import-untyped]  # ships no types
import pytest
import yaml

from tests.helm.chart import HELM_TEST
from tests.support.kafka_image import DEPLOY
from tools.compose_schema import COMPOSE_SCHEMA
from tools.go import GoMissingError

pytestmark = HELM_TEST


@pytest.fixture(scope="module")
def validator() -> Any:
    try:
        (text,) = COMPOSE_SCHEMA.texts()
    except GoMissingError as missing:
        pytest.skip(str(missing))
    schema = json.loads(text)
    return jsonschema.validators.validator_for(schema)(schema)


@pytest.fixture
def document() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text("utf-8"))
    return found


def test_it_fits_the_schema(validator: Any, document: dict[str, Any]) -> None:
    assert [error.message for error in validator.iter_errors(document)] == []


def test_the_schema_refuses_an_unknown_key(validator: Any, document: dict[str, Any]) -> None:
    document["services"]["ringfence"]["read_onyl"] = True
    assert [error.message for error in validator.iter_errors(document)] != []
