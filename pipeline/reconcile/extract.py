"""What each topic tells of the fates of records, as slim rows: inputs, outputs, dead letters.

Dead letters name the input that they were made of. Outputs do not: they are their inputs unchanged,
so both bear a *print*, 128 bits over key, value and headers, in which what the service adds (a
mark, a bookmark, a stamped id) does not count. Pure: frames in, frames out.
"""

import re
from collections.abc import Callable, Sequence
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from pipeline.reconcile.scope import RouteScope
from pipeline.tables import filled, filled_text
from ringfence.headers import (
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
from ringfence.spark.columns import duplicate_id, first, headers_of, number, place, text
from ringfence.spark.reader import dead_letters, records

_STAMP: Final = r"^[A-Za-z0-9._-]{1,64}/[A-Za-z0-9._-]{1,249}/[0-9]{1,10}/[0-9]{1,19}\z"
_ADDED: Final = (MARK, BOOKMARK)


class Fingerprints:
    """How prints are made: the same for inputs and outputs."""

    def __init__(self, stamp: str | None) -> None:
        """`stamp` is what ids look like that this service stamps; None where it stamps none."""
        self._stamp = stamp

    @classmethod
    def of(cls, cluster_id: str, inputs: Sequence[str], *, stamps: bool) -> "Fingerprints":
        """Those of a cluster."""
        topics = "|".join(map(re.escape, inputs))
        stamp = rf"^{re.escape(cluster_id)}/({topics})/[0-9]+/[0-9]+\z"
        return cls(stamp if stamps else None)

    def column(self) -> Column:
        """Two hashes; one of 64 bits would meet itself among billions of records."""
        headers = sf.filter(headers_of(sf.col("headers")), lambda header: ~self._is_added(header))
        # A null changes no hash, so that it is one has to be said.
        told = sf.transform(
            headers,
            lambda header: sf.struct(header["key"], header["value"].isNull(), header["value"]),
        )
        columns = [sf.isnull("key"), sf.col("key"), sf.isnull("value"), sf.col("value"), told]
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
    """Records of inputs -> one row each: its place, its print, and what it claims where."""
    headers, topic = headers_of(sf.col("headers")), sf.col("topic")
    identifier = _by_rule(
        rules, lambda rule: filled(rule.id, topic) if rule.id else duplicate_id(headers)
    )
    # Ids that a route makes itself are never taken for stamped ones.
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
    """Records of outputs -> one row each: its place, its print, its time, whether it is marked."""
    marked = sf.exists("headers", lambda header: header["key"] == MARK)
    return records(topics).select(
        _place(),
        prints.column().alias("print"),
        _time_ms().alias("time_ms"),
        marked.alias("marked"),
    )


def letters_of(topics: DataFrame, inputs: Sequence[str]) -> DataFrame:
    """Records of dead-letter topics -> one row for each letter of these inputs."""
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
    """Records between the hops -> the places in the inputs that they come from."""
    return topics.select(place(text(sf.col("headers"), ORIGIN)).alias("origin"))


def _by_rule(rules: Sequence[RouteScope], column: Callable[[RouteScope], Column]) -> Column:
    """What the rule of a record's topic says of it."""
    *others, last = rules
    found = column(last)
    for rule in others:
        found = sf.when(sf.col("topic").isin(*rule.topics), column(rule)).otherwise(found)
    return found


def _place() -> Column:
    return sf.struct("topic", "partition", "offset").alias("place")


def _time_ms() -> Column:
    return sf.unix_millis("timestamp")
