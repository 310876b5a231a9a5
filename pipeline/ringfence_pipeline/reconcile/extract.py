"""Extraction: slim rows about the fates of records, from inputs, outputs and dead letters.

A dead letter names its input. An output does not: it is its input unchanged, so both have the same
*fingerprint*, 128 bits over key, value and headers without what the service adds (a mark, a
bookmark, a stamped id). Pure: frames in, frames out.
"""

import re
from collections.abc import Callable, Sequence
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from ringfence_client.headers import (
    BOOKMARK,
    DUPLICATE_ID,
    GROUP,
    GROUP_POSITION,
    GROUP_SIZE,
    MARK,
    NUMBER,
    ORIGIN,
    PUBLISHER,
    STREAM,
)
from ringfence_client.spark.columns import duplicate_id, first, headers_of, number, place, text
from ringfence_client.spark.reader import dead_letters, records
from ringfence_pipeline.reconcile.scope import RouteScope
from ringfence_pipeline.templates import filled, filled_text

_STAMP: Final = r"^[A-Za-z0-9._-]{1,64}/[A-Za-z0-9._-]{1,249}/[0-9]{1,10}/[0-9]{1,19}\z"
_ADDED: Final = (MARK, BOOKMARK)


class Fingerprints:
    """Computes fingerprints, for inputs and outputs alike."""

    def __init__(self, stamp: str | None) -> None:
        """`stamp` is a regular expression of the ids that the service stamps; None for no ids."""
        self._stamp = stamp

    @classmethod
    def of(cls, cluster_id: str, inputs: Sequence[str], *, stamps: bool) -> "Fingerprints":
        """Return the fingerprints for inputs of a cluster."""
        topics = "|".join(map(re.escape, inputs))
        stamp = rf"^{re.escape(cluster_id)}/({topics})/[0-9]+/[0-9]+\z"
        return cls(stamp if stamps else None)

    def column(self) -> Column:
        """Return two hashes: a single one of 64 bits would collide among billions of records."""
        headers = sf.filter(headers_of(sf.col("headers")), lambda header: ~self._is_added(header))
        # xxhash64 skips nulls, so whether a value is null is hashed too.
        marked = sf.transform(
            headers,
            lambda header: sf.struct(header["key"], header["value"].isNull(), header["value"]),
        )
        columns = [sf.isnull("key"), sf.col("key"), sf.isnull("value"), sf.col("value"), marked]
        return sf.struct(
            sf.xxhash64(*columns).alias("a"), sf.xxhash64(sf.lit(1), *columns).alias("b")
        )

    def _is_added(self, header: Column) -> Column:
        added = header["key"].isin(*_ADDED)
        if self._stamp is None:
            return added
        stamped = header["value"].cast("string").rlike(self._stamp)
        return added | ((header["key"] == DUPLICATE_ID) & sf.coalesce(stamped, sf.lit(col=False)))


def inputs_of(topics: DataFrame, rules: Sequence[RouteScope], prints: Fingerprints) -> DataFrame:
    """Return a row for each input record: position, fingerprint, address and claims."""
    headers, topic = headers_of(sf.col("headers")), sf.col("topic")
    identifier = _by_rule(
        rules, lambda rule: filled(rule.id, topic) if rule.id else duplicate_id(headers)
    )
    # An id from a route's template is never a stamped one.
    is_stamped = _by_rule(rules, lambda rule: sf.lit(col=not rule.id)) & (
        sf.coalesce(identifier.cast("string").rlike(_STAMP), sf.lit(col=False))
    )
    by_partition = _by_rule(rules, lambda rule: sf.lit(col=rule.scope == "partition"))
    return records(topics).select(
        _place(),
        prints.column().alias("print"),
        _time_ms().alias("time_ms"),
        _by_rule(rules, lambda rule: filled_text(rule.address, topic)).alias("address"),
        sf.when(by_partition, sf.concat_ws("-", "topic", "partition"))
        .otherwise("")
        .alias("decider"),
        identifier.alias("id"),
        is_stamped.alias("stamped"),
        first(headers, PUBLISHER).alias("publisher"),
        number(first(headers, NUMBER)).alias("number"),
        number(first(headers, STREAM)).alias("stream"),
        first(headers, GROUP).alias("tx_id"),
        number(first(headers, GROUP_SIZE)).alias("tx_size"),
        number(first(headers, GROUP_POSITION)).alias("tx_position"),
    )


def outputs_of(topics: DataFrame, prints: Fingerprints) -> DataFrame:
    """Return a row for each output record: position, fingerprint, time, marked or not."""
    marked = sf.exists("headers", lambda header: header["key"] == MARK)
    return records(topics).select(
        _place(),
        prints.column().alias("print"),
        _time_ms().alias("time_ms"),
        marked.alias("marked"),
    )


def letters_of(topics: DataFrame, inputs: Sequence[str]) -> DataFrame:
    """Return a row for each dead letter of these inputs."""
    origin = sf.struct(
        sf.col("input_topic").alias("topic"),
        sf.col("input_partition").alias("partition"),
        sf.col("input_offset").alias("offset"),
    )
    return (
        dead_letters(topics)
        .where(sf.col("input_topic").isin(*inputs))
        .select(
            origin.alias("origin"),
            _place(),
            "reason",
            "original",
            sf.coalesce("redrives", sf.lit(0)).alias("redrives"),
            sf.unix_millis("timestamp").alias("decided_ms"),
            sf.unix_millis("input_timestamp").alias("input_ms"),
        )
    )


def carried_of(topics: DataFrame) -> DataFrame:
    """Return the input positions of records on the topic by-address."""
    return topics.select(place(text(sf.col("headers"), ORIGIN)).alias("origin"))


def _by_rule(rules: Sequence[RouteScope], column: Callable[[RouteScope], Column]) -> Column:
    """Return a column by the rule of the record's topic."""
    *others, last = rules
    found = column(last)
    for rule in others:
        found = sf.when(sf.col("topic").isin(*rule.topics), column(rule)).otherwise(found)
    return found


def _place() -> Column:
    return sf.struct("topic", "partition", "offset").alias("place")


def _time_ms() -> Column:
    return sf.unix_millis("timestamp")
