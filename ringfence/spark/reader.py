"""The reader for users of Spark: what Ringfence writes, as typed DataFrames, batch or stream.

    from ringfence.spark import read_output
    flights = read_output(spark, "kafka:9092", "flights.unique")

What always holds: only committed records are read, which is not Spark's own default; headers are
there; nothing that a record holds stops a stream, for what cannot be read as its type is null; and
a topic that has lost what is to be read is an error. Offsets on these topics have gaps, where
markers and aborted records lie: count rows, never offsets.

The session needs Spark's Kafka connector, `org.apache.spark:spark-sql-kafka-0-10_2.13`.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from ringfence.spark.columns import RECORD, claim, headers_of, outcome, verdict

ISOLATION: Final = "isolation.level"
_COMMITTED: Final = "read_committed"

# The client gives up within half a minute where its defaults take minutes.
_CLIENT: Final = {"default.api.timeout.ms": "10000", "request.timeout.ms": "10000"}
_DEFAULTS: Final = {
    "startingOffsets": "earliest",
    "failOnDataLoss": "true",
    "fetchOffset.numRetries": "1",
    "groupIdPrefix": "ringfence-spark",
}


def read_output(
    spark: SparkSession,
    bootstrap_servers: str,
    topics: str | Sequence[str],
    *,
    stream: bool = False,
    properties: Mapping[str, str] | None = None,
    options: Mapping[str, str] | None = None,
) -> DataFrame:
    """The messages of output topics, as typed columns (`MESSAGES` in `spark_columns`).

    `topics` are names, or one regular expression that starts with ^. `properties` are those of a
    Java client (`security.protocol`, …), `options` those of the connector (`startingTimestamp`,
    `maxOffsetsPerTrigger`, …). Without any, all that the topics hold is read.
    """
    return messages(read_topics(spark, bootstrap_servers, topics, stream, properties, options))


def read_dead_letters(
    spark: SparkSession,
    bootstrap_servers: str,
    topics: str | Sequence[str],
    *,
    stream: bool = False,
    properties: Mapping[str, str] | None = None,
    options: Mapping[str, str] | None = None,
) -> DataFrame:
    """The same for dead-letter topics (`DEAD_LETTERS`): why, and what it was at which place."""
    return dead_letters(read_topics(spark, bootstrap_servers, topics, stream, properties, options))


def read_topics(
    spark: SparkSession,
    bootstrap_servers: str,
    topics: str | Sequence[str],
    stream: bool,  # noqa: FBT001 - the two above spell it out
    properties: Mapping[str, str] | None = None,
    options: Mapping[str, str] | None = None,
) -> DataFrame:
    """Records as the connector gives them, with what must not be otherwise pinned."""
    name, value = topics_option([topics] if isinstance(topics, str) else topics)
    settings = {**kafka_options(bootstrap_servers, properties or {}, options or {}), name: value}
    reader = (spark.readStream if stream else spark.read).format("kafka")
    return reader.options(**settings).load()


def topics_option(topics: Sequence[str]) -> tuple[str, str]:
    """How the connector is told of names, or of one regular expression that starts with ^."""
    if not topics:
        raise ValueError("no topics: give names, or one regular expression that starts with ^")
    patterns = [topic for topic in topics if topic.startswith("^")]
    if not patterns:
        return "subscribe", ",".join(topics)
    if len(topics) > 1:
        raise ValueError(
            f"topics {', '.join(topics)}: give names, or one regular expression that starts "
            "with ^ and stands alone"
        )
    # Kafka clients search with the expression, Java's connector wants it to match the whole name.
    return "subscribePattern", f"(?:{patterns[0]}).*"


def kafka_options(
    servers: str, properties: Mapping[str, str], options: Mapping[str, str]
) -> dict[str, str]:
    """The connector's options: properties of a Java client, options of its own, and the pins."""
    given = {**{f"kafka.{name}": value for name, value in properties.items()}, **options}
    pins = {f"kafka.{ISOLATION}": _COMMITTED, "includeHeaders": "true"}
    for name, pinned in pins.items():
        if given.get(name, pinned) != pinned:
            raise ValueError(
                f"{name.removeprefix('kafka.')} = {given[name]}: leave it out, for it is "
                f"{pinned} here"
            )
    client = {f"kafka.{name}": value for name, value in _CLIENT.items()}
    # A start by time goes before the offsets, which Spark takes beside it.
    return {**client, **_DEFAULTS, **given, **pins, "kafka.bootstrap.servers": servers}


def records(topics: DataFrame) -> DataFrame:
    """Records as the connector gives them -> the columns that all begin with."""
    names = [field.name for field in RECORD.fields]
    return topics.withColumn("headers", headers_of(sf.col("headers"))).select(*names)


def messages(topics: DataFrame) -> DataFrame:
    """Records of output topics -> `MESSAGES`."""
    headers = sf.col("headers")
    return records(topics).select("*", *claim(headers), *outcome(headers))


def dead_letters(topics: DataFrame) -> DataFrame:
    """Records of dead-letter topics -> `DEAD_LETTERS`."""
    headers = sf.col("headers")
    return records(topics).select("*", *claim(headers), *verdict(headers))
