"""Extraction: slim rows about the fates of records, from inputs, outputs and dead letters.

A dead letter names its input. An output does not: it is its input unchanged, so both have the same
*fingerprint*, 128 bits over key, value and headers without what the service adds (a mark, a
bookmark, a stamped id). Pure: frames in, frames out.
"""

import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final, cast

import pandas as pd
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.pandas.functions import pandas_udf
from pyspark.sql.types import IntegerType

from ringfence_client.headers import (
    BOOKMARK,
    DUPLICATE_ID,
    GROUP,
    GROUP_POSITION,
    GROUP_SIZE,
    MARK,
    NUMBER,
    ORIGIN,
    PREVIOUS,
    PUBLISHER,
    STREAM,
)
from ringfence_client.spark.columns import duplicate_id, first, headers_of, number, place, text
from ringfence_client.spark.reader import dead_letters, records
from ringfence_pipeline.reconcile import cache_model
from ringfence_pipeline.reconcile.scope import ReconcileScope, RouteScope
from ringfence_pipeline.templates import filled, filled_text
from ringfence_service.config.addresses import AddressBook
from ringfence_service.dedup.repartition_keys import key_of
from ringfence_service.kafka.topics import RepartitionTopic
from ringfence_state.model import Claim

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


def inputs_of(topics: DataFrame, plan: ReconcileScope, prints: Fingerprints) -> DataFrame:
    """Return a row for each input record: position, fingerprint, address and claims."""
    rules = plan.rules
    headers, topic = headers_of(sf.col("headers")), sf.col("topic")
    identifier = _by_rule(
        rules, lambda rule: filled(rule.id, topic) if rule.id else duplicate_id(headers)
    )
    # An id from a route's template is never a stamped one.
    is_stamped = _by_rule(rules, lambda rule: sf.lit(col=not rule.id)) & (
        sf.coalesce(identifier.cast("string").rlike(_STAMP), sf.lit(col=False))
    )
    scope = _by_rule(rules, lambda rule: sf.lit(rule.scope))
    found = records(topics).select(
        _place(),
        prints.column().alias("print"),
        _time_ms().alias("time_ms"),
        _by_rule(rules, lambda rule: filled_text(rule.address, topic)).alias("address"),
        sf.when(scope == "partition", sf.concat_ws("-", "topic", "partition"))
        .otherwise("")
        .alias("decider"),
        (scope == "id").alias("spread"),
        identifier.alias("id"),
        is_stamped.alias("stamped"),
        first(headers, PUBLISHER).alias("publisher"),
        number(first(headers, NUMBER)).alias("number"),
        number(first(headers, STREAM)).alias("stream"),
        number(first(headers, PREVIOUS)).alias("previous_number"),
        first(headers, GROUP).alias("tx_id"),
        number(first(headers, GROUP_SIZE)).alias("tx_size"),
        number(first(headers, GROUP_POSITION)).alias("tx_position"),
    )
    if all(rule.scope != "id" for rule in rules):
        return found.drop("spread", "previous_number")
    share = cache_model.share_of(_share(plan))
    decider = sf.when(sf.col("spread"), share).otherwise(sf.col("decider"))
    return found.withColumn("decider", decider).drop("spread", "previous_number")


def _share(plan: ReconcileScope) -> Column:
    """Return the number of the partition that decides a record with scope `id`."""
    patterns, partitions = plan.book.patterns, plan.by_address_partitions

    def numbers(
        addresses: pd.Series,
        ids: pd.Series,
        groups: pd.Series,
        names: pd.Series,
        counted: pd.Series,
        streams: pd.Series,
        before: pd.Series,
        places: pd.Series,
    ) -> pd.Series:
        book, topic = AddressBook.of_valid(patterns), RepartitionTopic("", partitions)
        rows = zip(addresses, ids, groups, names, counted, streams, before, places, strict=True)
        found = []
        for address, identifier, group, name, count, stream, previous, source in rows:
            claim = Claim(
                identifier=identifier,
                publisher=_text(name),
                number=_whole(count),
                stream=_whole(stream),
                previous=_whole(previous),
            )
            key = key_of(book, address or "", claim, group, source.encode())
            found.append(topic.partition_of(key))
        return pd.Series(found, dtype="int32")

    # The stubs of pandas_udf allow only one or two columns.
    udf = cast("Callable[[object, IntegerType], Callable[..., Column]]", pandas_udf)
    columns = "address", "id", "tx_id", "publisher", "number", "stream", "previous_number"
    source = sf.concat_ws("-", "place.topic", "place.partition")
    return udf(numbers, IntegerType())(*columns, source)


def _text(name: object) -> str | None:
    """Return a name from a header; None if it has none that is valid."""
    with suppress(UnicodeDecodeError):
        return name.decode() if isinstance(name, bytes) else cast("str | None", name)
    return None


def _whole(number: float | None) -> int | None:
    return None if pd.isna(number) else int(cast("float", number))


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
