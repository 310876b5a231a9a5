"""Topic source: topics as a stream or a batch of records, in the Kafka connector's columns.

It uses the public reader, `ringfence.spark`: committed transactions only, headers included. Errors
of the reader become PipelineErrors.
"""

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Final

from pyspark.sql import DataFrame, SparkSession

from ringfence_client.spark import reader
from ringfence_client.spark.columns import RECORD
from ringfence_pipeline.admin import KafkaPartition, OffsetSpan
from ringfence_pipeline.errors import USAGE, PipelineError

_OURS: Final = {"groupIdPrefix": "ringfence-tables"}


def read_topics(
    spark: SparkSession,
    servers: str,
    topics: Sequence[str],
    properties: Mapping[str, str],
    *,
    once: bool,
    options: Mapping[str, str] | None = None,
) -> DataFrame:
    """Return the stream of these topics, from their beginning or from the checkpoint.

    A stream that is read `once` gives up soon if the broker does not answer; any other waits as
    long as Kafka's clients do. Raises PipelineError.
    """
    settings = {**_OURS, **(options or {})}
    try:
        return reader.read_topics(
            spark,
            servers,
            topics,
            stream=True,
            properties=properties,
            options=settings,
            patient=not once,
        )
    except ValueError as error:
        raise PipelineError(str(error), exit_code=USAGE) from error


def kafka_options(
    servers: str, properties: Mapping[str, str], options: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Return the connector's options for these client properties, isolation level included.

    Raises PipelineError for a property or option that contradicts them.
    """
    try:
        return reader.kafka_options(servers, properties, {**_OURS, **(options or {})})
    except ValueError as error:
        raise PipelineError(str(error), exit_code=USAGE) from error


def offsets_json(positions: Mapping[KafkaPartition, int]) -> str:
    """Return offsets as the connector's `startingOffsets` and `endingOffsets` take them."""
    offsets: defaultdict[str, dict[str, int]] = defaultdict(dict)
    for (topic, number), offset in positions.items():
        offsets[topic][str(number)] = offset
    return json.dumps(offsets)


def read_spans(
    spark: SparkSession,
    servers: str,
    spans: Mapping[KafkaPartition, OffsetSpan],
    properties: Mapping[str, str],
    *,
    is_cleaned: bool = False,
) -> DataFrame:
    """Return the records of these spans; with `is_cleaned`, some may be deleted meanwhile."""
    if not any(span.begin < span.end for span in spans.values()):
        return spark.createDataFrame([], RECORD)
    numbers: defaultdict[str, list[int]] = defaultdict(list)
    for topic, number in spans:
        numbers[topic].append(number)
    options = {
        "startingOffsets": offsets_json({each: span.begin for each, span in spans.items()}),
        "endingOffsets": offsets_json({each: span.end for each, span in spans.items()}),
        "failOnDataLoss": str(not is_cleaned).lower(),
        "groupIdPrefix": "ringfence-spans",
    }
    settings = kafka_options(servers, properties, options)
    frame = spark.read.format("kafka").options(**settings)
    return frame.option("assign", json.dumps(numbers)).load()
