"""What is to be reconciled follows from the configuration and the topics that exist."""

from pathlib import Path

import pytest

from ringfence_client.headers import DUPLICATE_ID
from ringfence_pipeline.config import read_config
from ringfence_pipeline.errors import USAGE, PipelineError
from ringfence_pipeline.reconcile.scope import RouteScope, planned, redriven_of
from ringfence_service.config.model import Config
from ringfence_service.metadata.redrive_job import DeadLetterRange, RedriveJob
from ringfence_service.queries.dead_letters import (
    DeadLetterFilter,
    DeadLetterPosition,
    RedriveRequest,
)

TOPICS = {"a.eu", "a.us", "b", "b.out", "a.eu.unique", "g.dead-letters", "a.eu.dlq", "x", "y", "z"}


def config(tmp_path: Path, routes: str) -> Config:
    file = tmp_path / "ringfence.toml"
    file.write_text(
        f'[kafka]\n"bootstrap.servers" = "b:1"\n[service]\ngroup_id = "g"\n{routes}', "utf-8"
    )
    return read_config(file)


def test_routes_tell_inputs_outputs_and_dead_letters_that_exist(tmp_path: Path) -> None:
    routes = """
[[routes]]
name = "as"
inputs = ["^a\\\\.(eu|us)$"]
address = "in.{topic}"
[[routes]]
inputs = ["b"]
scope = "partition"
address = "of.{header:A}"
id = "{key}"
output = "b.out"
missing_id = "stamp"
"""
    plan = planned(config(tmp_path, routes), TOPICS)
    assert plan.rules == (
        RouteScope(("a.eu", "a.us"), "in.{topic}", "", "address"),
        RouteScope(("b",), "of.{header:A}", "{key}", "partition"),
    )
    assert plan.outputs == {"a.eu.unique", "b.out"}
    assert plan.letters == {"a.eu.dlq", "g.dead-letters"}
    assert plan.targets == {
        "a.eu": {"a.eu.unique", "a.eu.dlq", "g.dead-letters"},
        "a.us": {"g.dead-letters"},
        "b": {"b.out", "g.dead-letters"},
    }
    assert plan.carried == "g.by-address"
    assert plan.stamps


def test_what_a_record_steers_goes_to_one_of_the_allowed(tmp_path: Path) -> None:
    routes = (
        f'[[routes]]\ninputs = ["b"]\nscope = "partition"\noutput = "{{header:{DUPLICATE_ID}}}"\n'
        'allowed_outputs = ["x", "y"]\n'
    )
    plan = planned(config(tmp_path, routes), TOPICS)
    assert plan.outputs == {"x", "y"}
    assert plan.carried is None


def test_a_broker_without_the_input_topics_is_reported(tmp_path: Path) -> None:
    routes = '[[routes]]\ninputs = ["gone"]\n'
    with pytest.raises(PipelineError, match="no topic on the broker is an input") as told:
        planned(config(tmp_path, routes), TOPICS)
    assert told.value.exit_code == USAGE


def test_redrives_tell_the_letters_that_they_went_over() -> None:
    whole = RedriveJob(
        "1",
        RedriveRequest("forget", DeadLetterFilter()),
        (DeadLetterRange("d", 0, 5, 9), DeadLetterRange("d", 1, 0, 3)),
        0,
        0,
    )
    named = tuple(DeadLetterPosition("d", 0, offset) for offset in (2, 8, 9))
    some = RedriveJob(
        "2",
        RedriveRequest("through", DeadLetterFilter(), named),
        (DeadLetterRange("d", 0, 2, 10),),
        0,
        0,
    )
    records = [(job.record.key, job.record.value, 0) for job in (some, whole)]
    assert redriven_of([*records, (b"settings", None, 3)]) == (
        DeadLetterRange("d", 0, 2, 3),
        DeadLetterRange("d", 0, 5, 10),
        DeadLetterRange("d", 1, 0, 3),
    )
