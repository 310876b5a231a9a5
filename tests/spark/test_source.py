"""Options that tell the connector what to read, and which of them users may not override."""

from typing import cast

import pytest
from pyspark.sql import SparkSession

from ringfence_client.spark.reader import kafka_options, topics_option
from ringfence_pipeline.errors import USAGE, PipelineError
from ringfence_pipeline.source import read_topics

pytestmark = pytest.mark.spark


def test_topics_are_a_list_of_names_or_one_expression_as_kafka_clients_have_it() -> None:
    assert topics_option(["a.unique", "b.unique"]) == ("subscribe", "a.unique,b.unique")
    assert topics_option(["^flights"]) == ("subscribePattern", "(?:^flights).*")
    with pytest.raises(ValueError, match="no topics"):
        topics_option([])


def test_only_committed_records_are_read_and_headers_are_asked_for() -> None:
    options = kafka_options("b:9092", {"security.protocol": "SSL"}, {"maxOffsetsPerTrigger": "9"})
    assert options["kafka.isolation.level"] == "read_committed"
    assert options["includeHeaders"] == "true"
    assert options["failOnDataLoss"] == "true"
    assert options["kafka.bootstrap.servers"] == "b:9092"
    assert options["kafka.security.protocol"] == "SSL"
    assert options["maxOffsetsPerTrigger"] == "9"


def test_a_stream_is_as_patient_as_kafka_and_anything_else_gives_up_within_half_a_minute() -> None:
    brief = {"kafka.default.api.timeout.ms", "kafka.request.timeout.ms", "fetchOffset.numRetries"}
    assert kafka_options("b:9092", {}, {}).keys() >= brief
    assert not kafka_options("b:9092", {}, {}, patient=True).keys() & brief
    own = kafka_options("b:9092", {"request.timeout.ms": "7"}, {})
    assert own["kafka.request.timeout.ms"] == "7"


@pytest.mark.parametrize(
    ("properties", "options", "sentence"),
    [
        (
            {"isolation.level": "read_uncommitted"},
            {},
            r"^isolation\.level = read_uncommitted: leave",
        ),
        ({}, {"kafka.isolation.level": "read_uncommitted"}, r"^isolation\.level"),
        ({}, {"includeHeaders": "false"}, "^includeHeaders = false"),
    ],
)
def test_what_is_pinned_cannot_be_set_otherwise(
    properties: dict[str, str], options: dict[str, str], sentence: str
) -> None:
    with pytest.raises(ValueError, match=sentence):
        kafka_options("b:9092", properties, options)


def test_a_command_tells_it_as_a_question_of_usage() -> None:
    with pytest.raises(PipelineError, match="stands alone") as told:
        read_topics(cast("SparkSession", None), "b:9092", ["^a", "b"], {}, once=True)
    assert told.value.exit_code == USAGE
