"""Topics as a stream of records, as the Kafka connector gives them.

Always from committed transactions only: Spark's own default also reads what was aborted. Offsets
have gaps where markers and aborted records lie, so nothing here or later counts by offsets.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from pyspark.sql import DataFrame, SparkSession

from pipeline.errors import USAGE, PipelineError

_ISOLATION: Final = "isolation.level"

# The client gives up within half a minute where its defaults take minutes.
_CLIENT: Final = {"default.api.timeout.ms": "10000", "request.timeout.ms": "10000"}


def topics_option(topics: Sequence[str]) -> tuple[str, str]:
    """How the connector is told of names, or of one regular expression that starts with ^."""
    patterns = [topic for topic in topics if topic.startswith("^")]
    if not patterns:
        return "subscribe", ",".join(topics)
    if len(topics) > 1:
        raise PipelineError(
            f"topics {', '.join(topics)}: give names, or one regular expression that starts "
            "with ^ and stands alone",
            exit_code=USAGE,
        )
    # Kafka clients search with the expression, Java's connector wants it to match the whole name.
    return "subscribePattern", f"(?:{patterns[0]}).*"


def kafka_options(servers: str, properties: Mapping[str, str]) -> dict[str, str]:
    """The connector's options for these properties of a Java client, isolation pinned."""
    if properties.get(_ISOLATION, "read_committed") != "read_committed":
        raise PipelineError(
            f"{_ISOLATION} = {properties[_ISOLATION]}: leave it out, for the tables hold "
            "committed messages only",
            exit_code=USAGE,
        )
    client = {**_CLIENT, **properties, "bootstrap.servers": servers, _ISOLATION: "read_committed"}
    return {
        **{f"kafka.{name}": value for name, value in client.items()},
        "includeHeaders": "true",
        "startingOffsets": "earliest",
        "failOnDataLoss": "true",
        "fetchOffset.numRetries": "1",
        "groupIdPrefix": "ringfence-tables",
    }


def read_topics(
    spark: SparkSession, servers: str, topics: Sequence[str], properties: Mapping[str, str]
) -> DataFrame:
    """The stream of these topics, from their beginning or from the checkpoint."""
    name, value = topics_option(topics)
    options = kafka_options(servers, properties)
    return spark.readStream.format("kafka").options(**options).option(name, value).load()
