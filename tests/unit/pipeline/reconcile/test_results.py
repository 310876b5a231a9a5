"""Findings survive JSON, and nothing else is taken for them."""

import json

import pytest

from ringfence_pipeline.errors import USAGE, PipelineError
from ringfence_pipeline.reconcile.results import Violation, from_json, to_json
from tests.unit.pipeline.reconcile.found import LONG, SHORT, findings


def test_findings_come_back_as_they_were() -> None:
    found = findings(SHORT, LONG, faults=(Violation("doubled", "t", 1, 2, "…"),))
    assert from_json(to_json(found)) == found
    assert json.loads(to_json(found))["faultless"] is False


def test_missed_copies_are_no_fault() -> None:
    found = findings(SHORT)
    assert found.is_faultless
    assert found.missed == 100


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": 1}', "null"])
def test_anything_else_is_refused_in_a_sentence(text: str) -> None:
    with pytest.raises(PipelineError, match="not the JSON of ringfence pipeline reconcile") as told:
        from_json(text)
    assert told.value.exit_code == USAGE


def test_another_format_is_refused() -> None:
    with pytest.raises(PipelineError, match="another version"):
        from_json('{"format": 2}')
