"""Quality views: how often, where and how late records were duplicated, refused, or had no id.

    from ringfence.spark import quality
    quality.by_publisher(messages, dead_letters).show()

The frames are those of the reader, or the tables `messages` and `dead_letters`. Views that name
addresses need the column `address` in both, which the tables have; an output topic does not contain
it. Every view is a frame and computes nothing until it is used. The time of a record is its own
timestamp, not that of its decision. A dead letter that a redrive wrote again counts once; one that
was redriven and accepted counts both as a dead letter and as a message.
"""

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as sf

from ringfence_client.headers import REPEATED

_PRECISION: Final = 100_000

_PRINTABLE: Final = r"^(?:[^\p{C}\p{Z}]| )*\z"

_SHARES: Final = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p999": 0.999}


def decisions(messages: DataFrame, dead_letters: DataFrame) -> DataFrame:
    """Return a row for each record that was decided, without its content.

    Columns: `address`, `publisher`, `time`, `duplicate_id`, `verdict` (`accepted`, `duplicate` or
    `rejected`), and `reason` of a dead letter. A duplicate that was marked and let through is a
    duplicate.
    """
    went_out = sf.when(sf.col("duplicate_of").isNull(), "accepted").otherwise("duplicate")
    shared = ("address", "publisher", "time", "duplicate_id", "verdict")
    letters = _first_letters(dead_letters).select(*shared, "reason")
    outputs = messages.withColumns({"time": sf.col("timestamp"), "verdict": went_out})
    return outputs.select(*shared, sf.lit(None).cast("string").alias("reason")).unionByName(letters)


def by_publisher(messages: DataFrame, dead_letters: DataFrame) -> DataFrame:
    """Return the counts of each publisher, those with most duplicates first.

    `publisher` is null for records without the header `_PUBLISHER`. Columns of the counts:
    `records`, `accepted`, `duplicates`, `rejected`, `without_id` and `duplicates_percent`.
    """
    return _most_first(_counts(decisions(messages, dead_letters), "publisher"), "publisher")


def by_address(messages: DataFrame, dead_letters: DataFrame) -> DataFrame:
    """Return the counts of each address, those with most duplicates first."""
    return _most_first(_counts(decisions(messages, dead_letters), "address"), "address")


def by_time(messages: DataFrame, dead_letters: DataFrame, every: str = "1 hour") -> DataFrame:
    """Return the counts of each time slot, in order; `begins` is its beginning.

    `every` is an interval of Spark. A slot without records has no row.
    """
    slot = sf.window("time", every)["start"].alias("begins")
    return _counts(decisions(messages, dead_letters), slot).orderBy("begins")


def by_reason(dead_letters: DataFrame) -> DataFrame:
    """Return the dead letters by `reason` and `cause`, the most frequent first.

    Positions and numbers in a cause are replaced by `…`, so that equal causes count together.
    Columns: `records`, and `first` and `last`, the times of the first and last record.
    """
    general = sf.regexp_replace("cause", r"\S+-\d+@\d+|\b\d[\d.,]*\b", "…")
    return (
        _first_letters(dead_letters)
        .groupBy("reason", general.alias("cause"))
        .agg(
            sf.count("*").alias("records"),
            sf.min("time").alias("first"),
            sf.max("time").alias("last"),
        )
        .orderBy(sf.desc("records"), "reason", "cause")
    )


def resends(
    messages: DataFrame, dead_letters: DataFrame, by: str | Column = "duplicate_id"
) -> DataFrame:
    """Return a row for each duplicate whose original is in `messages`, with its distance.

    `by` is what the id of the route is made of, as a column of both frames: `key` for the template
    `{key}`. Columns: `address`, `publisher`, `id` as text, `time`, `original`, `seconds` after the
    last message with its id (0 if its own timestamp is earlier), and `offsets` between both in
    the input, null if they are of different partitions. Offsets also count transaction markers.
    """
    columns = ("address", "publisher", "time", "identity", "original", "offsets", "is_copy")
    identity = by if isinstance(by, Column) else sf.col(by)
    no_place = sf.lit(None).cast("struct<topic: string, partition: int, offset: bigint>")
    outputs = messages.withColumns(
        {
            "time": sf.col("timestamp"),
            "identity": identity,
            "original": sf.coalesce("duplicate_of", no_place),
            "offsets": sf.lit(None).cast("bigint"),
            "is_copy": sf.col("duplicate_of").isNotNull(),
        }
    )
    is_same_log = (sf.col("original.topic") == sf.col("input_topic")) & (
        sf.col("original.partition") == sf.col("input_partition")
    )
    behind = sf.when(is_same_log, sf.col("input_offset") - sf.col("original.offset"))
    letters = (
        _first_letters(dead_letters)
        .where(sf.col("verdict") == "duplicate")
        .withColumns({"identity": identity, "offsets": behind, "is_copy": sf.lit(col=True)})
    )
    same = Window.partitionBy("address", "identity")
    so_far = same.orderBy("time", "is_copy").rowsBetween(
        Window.unboundedPreceding, Window.currentRow
    )
    accepted = sf.when(~sf.col("is_copy"), sf.col("time"))
    original_time = sf.coalesce(
        sf.last(accepted, ignorenulls=True).over(so_far), sf.min(accepted).over(same)
    )
    return (
        outputs.select(*columns)
        .unionByName(letters.select(*columns))
        .where(sf.col("identity").isNotNull())
        .withColumn("original_time", original_time)
        .where(sf.col("is_copy") & sf.col("original_time").isNotNull())
        .select(
            *("address", "publisher", id_text(sf.col("identity")).alias("id"), "time", "original"),
            sf.greatest(_micros_after("original_time") / 1e6, sf.lit(0.0)).alias("seconds"),
            "offsets",
        )
    )


def resend_quantiles(found: DataFrame, *by: str) -> DataFrame:
    """Return the quantiles of the distances of `resends`, in all or for each value of `by`.

    Columns: `copies`, then `seconds` and `offsets`, each a struct of `p50`, `p90`, `p99`, `p999`
    and `max`.
    """
    return found.groupBy(*by).agg(
        sf.count("*").alias("copies"),
        *(_quantiles(measure).alias(measure) for measure in ("seconds", "offsets")),
    )


def repeated_ids(
    messages: DataFrame, dead_letters: DataFrame, by: str | Column = "duplicate_id"
) -> DataFrame:
    """Return the ids that came more than once, those with most copies first.

    `by` is as for `resends`. Columns: `address`, `id` as text, `copies` that were recognised,
    `accepted`, how often it went out (more than once if it had been forgotten meanwhile), `first`
    and `last`, the times of its first and last record, and `publishers`, their number.
    """
    identity = by if isinstance(by, Column) else sf.col(by)
    columns = ("address", "publisher", "time", "verdict", "identity")
    verdict = sf.when(sf.col("duplicate_of").isNull(), "accepted").otherwise("duplicate")
    outputs = messages.withColumns(
        {"time": sf.col("timestamp"), "verdict": verdict, "identity": identity}
    )
    letters = _first_letters(dead_letters).withColumn("identity", identity)
    return (
        outputs.select(*columns)
        .unionByName(letters.select(*columns))
        .where(sf.col("identity").isNotNull() & (sf.col("verdict") != "rejected"))
        .groupBy("address", "identity")
        .agg(
            sf.count_if(sf.col("verdict") == "duplicate").alias("copies"),
            sf.count_if(sf.col("verdict") == "accepted").alias("accepted"),
            sf.min("time").alias("first"),
            sf.max("time").alias("last"),
            sf.count_distinct("publisher").alias("publishers"),
        )
        .where((sf.col("copies") > 0) | (sf.col("accepted") > 1))
        .withColumn("id", id_text(sf.col("identity")))
        .select("address", "id", "copies", "accepted", "first", "last", "publishers")
        .orderBy(sf.desc(sf.col("copies") + sf.col("accepted")), "address", "id")
    )


def id_text(identifier: Column) -> Column:
    """Return an id as REST and dead letters write it: printable text unchanged, else `hex:…`."""
    text = sf.try_validate_utf8(identifier.cast("string"))
    is_plain = text.rlike(_PRINTABLE) & ~text.rlike("^(hex|base64):")
    return sf.when(is_plain, text).otherwise(
        sf.concat(sf.lit("hex:"), sf.lower(sf.hex(identifier.cast("binary"))))
    )


def _first_letters(dead_letters: DataFrame) -> DataFrame:
    """Return the dead letters, each record once, with `time` and `verdict`."""
    repeated = sf.col("reason").isin(*sorted(reason.value for reason in REPEATED))
    return dead_letters.where(sf.coalesce("redrives", sf.lit(0)) == 0).withColumns(
        {
            "time": sf.coalesce("input_timestamp", "timestamp"),
            "verdict": sf.when(repeated, "duplicate").otherwise("rejected"),
        }
    )


def _counts(decided: DataFrame, by: str | Column) -> DataFrame:
    duplicates = sf.count_if(sf.col("verdict") == "duplicate")
    return decided.groupBy(by).agg(
        sf.count("*").alias("records"),
        sf.count_if(sf.col("verdict") == "accepted").alias("accepted"),
        duplicates.alias("duplicates"),
        sf.count_if(sf.col("verdict") == "rejected").alias("rejected"),
        sf.count_if(sf.col("duplicate_id").isNull()).alias("without_id"),
        (100 * duplicates / sf.count("*")).alias("duplicates_percent"),
    )


def _most_first(counts: DataFrame, name: str) -> DataFrame:
    return counts.orderBy(sf.desc("duplicates"), sf.desc("records"), name)


def _quantiles(measure: str) -> Column:
    shares = sf.percentile_approx(measure, list(_SHARES.values()), _PRECISION)
    each = [sf.get(shares, sf.lit(at)).alias(name) for at, name in enumerate(_SHARES)]
    return sf.struct(*each, sf.max(measure).alias("max"))


def _micros_after(time: str) -> Column:
    return sf.unix_micros("time") - sf.unix_micros(time)
