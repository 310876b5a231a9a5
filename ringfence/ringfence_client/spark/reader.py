"""Spark reader: Ringfence's output and dead-letter topics as typed DataFrames, batch or stream.

    from ringfence.spark import read_output
    flights = read_output(spark, "kafka:9092", "flights.unique")

Only committed records are read, which is not Spark's default. Headers are included. No content of a
record stops a stream: a value that does not parse as its type is null. Reading a range that the
topic no longer has is an error. Offsets on these topics have gaps, from transaction markers and
aborted records: count rows, not offsets.

The session needs Spark 4.0 or newer and its Kafka connector,
`org.apache.spark:spark-sql-kafka-0-10_2.13`. Executors need nothing of this package.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from ringfence_client.spark.columns import RECORD, claim, headers_of, outcome, verdict

ISOLATION: Final = "isolation.level"
_COMMITTED: Final = "read_committed"

_DEFAULTS: Final = {
    "startingOffsets": "earliest",
    "failOnDataLoss": "true",
    "groupIdPrefix": "ringfence-spark",
    "kafka.max.poll.records": "5000",
    "kafka.receive.buffer.bytes": "-1",
}
"""Used where the caller gives nothing else.

Kafka's own limits suit consumers that react to each record: a task of Spark reads thousands in a
row, and would wait for most of its time. -1 leaves the buffer of a connection to the system.
"""
_SPARK_MIN: Final = 4
"""Major version of Spark; earlier ones lack functions that the columns use."""

_BRIEF: Final = {
    "kafka.default.api.timeout.ms": "10000",
    "kafka.request.timeout.ms": "10000",
    "fetchOffset.numRetries": "1",
}
"""Options with which a job gives up within half a minute if the broker does not answer.

The defaults of Kafka and the connector take minutes, and survive a rolling restart of brokers.
"""


def read_output(
    spark: SparkSession,
    bootstrap_servers: str,
    topics: str | Sequence[str],
    *,
    stream: bool = False,
    properties: Mapping[str, str] | None = None,
    options: Mapping[str, str] | None = None,
) -> DataFrame:
    """Return the messages of output topics, with the columns `MESSAGES` of `columns.py`.

    `topics` are names, or one regular expression that starts with ^. `properties` are those of a
    Java client (`security.protocol`, …), `options` those of the connector (`startingTimestamp`,
    `maxOffsetsPerTrigger`, …). Without options, the topics are read from the beginning.

    Raises ValueError without topics, for a regular expression beside other topics, and for a
    property or option that would change the isolation level or leave out headers; RuntimeError on a
    Spark before 4.0.
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
    """Return the records of dead-letter topics, with the columns `DEAD_LETTERS`.

    The parameters and errors are those of `read_output`. The columns contain the reason, and the
    original record with its position in the input.
    """
    return dead_letters(read_topics(spark, bootstrap_servers, topics, stream, properties, options))


def read_topics(
    spark: SparkSession,
    bootstrap_servers: str,
    topics: str | Sequence[str],
    stream: bool,  # noqa: FBT001 - the public functions take it by keyword
    properties: Mapping[str, str] | None = None,
    options: Mapping[str, str] | None = None,
    *,
    patient: bool | None = None,
) -> DataFrame:
    """Return the connector's records, with the options of `kafka_options`.

    A stream is patient unless `patient` says otherwise.
    """
    name, value = topics_option([topics] if isinstance(topics, str) else topics)
    waits = stream if patient is None else patient
    given = kafka_options(bootstrap_servers, properties or {}, options or {}, patient=waits)
    settings = {**given, name: value}
    if int(spark.version.partition(".")[0]) < _SPARK_MIN:
        raise RuntimeError(f"this session is of Spark {spark.version}: use one of 4.0 or newer")
    reader = (spark.readStream if stream else spark.read).format("kafka")
    return reader.options(**settings).load()


def topics_option(topics: Sequence[str]) -> tuple[str, str]:
    """Return the connector's option, name and value, that selects the topics.

    Raises ValueError without topics, and for a regular expression beside other topics.
    """
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
    # librdkafka searches for the expression; the connector has to match the whole name.
    return "subscribePattern", f"(?:{patterns[0]}).*"


def kafka_options(
    servers: str,
    properties: Mapping[str, str],
    options: Mapping[str, str],
    *,
    patient: bool = False,
) -> dict[str, str]:
    """Return the connector's options: client properties, its own options, and the fixed ones.

    With `patient`, Kafka's own time limits hold; without it a broker that does not answer is an
    error after half a minute.

    Raises ValueError when one of them contradicts a fixed option.
    """
    given = {**{f"kafka.{name}": value for name, value in properties.items()}, **options}
    fixed = {f"kafka.{ISOLATION}": _COMMITTED, "includeHeaders": "true"}
    for name, required in fixed.items():
        if given.get(name, required) != required:
            raise ValueError(
                f"{name.removeprefix('kafka.')} = {given[name]}: leave it out, it is always "
                f"{required}"
            )
    limits = {} if patient else _BRIEF
    # Spark prefers a starting timestamp to starting offsets when both are given.
    return {**limits, **_DEFAULTS, **given, **fixed, "kafka.bootstrap.servers": servers}


def records(topics: DataFrame) -> DataFrame:
    """Return the connector's records with the columns `RECORD`."""
    names = [field.name for field in RECORD.fields]
    return topics.withColumn("headers", headers_of(sf.col("headers"))).select(*names)


def messages(topics: DataFrame) -> DataFrame:
    """Return the connector's records of output topics with the columns `MESSAGES`."""
    headers = sf.col("headers")
    return records(topics).select("*", *claim(headers), *outcome(headers))


def dead_letters(topics: DataFrame) -> DataFrame:
    """Return the connector's records of dead-letter topics with the columns `DEAD_LETTERS`."""
    headers = sf.col("headers")
    return records(topics).select("*", *claim(headers), *verdict(headers))
