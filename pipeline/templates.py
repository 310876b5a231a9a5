"""Route templates as Spark columns: what the service fills for one record, for all rows at once."""

import re
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as sf

from ringfence.spark.columns import first

_FIELD: Final = re.compile(r"\{(topic|key|sha256:value|header:[^{}]+)\}")


def filled(template: str, topic: Column) -> Column:
    """Return the bytes of a template for each record; `topic` is the record's input topic."""
    parts = _FIELD.split(template)
    pieces = [_field(part, topic) if at % 2 else _bytes(part) for at, part in enumerate(parts)]
    return sf.concat(*pieces)


def filled_text(template: str, topic: Column) -> Column:
    """Return a template as text; null if the bytes are not UTF-8."""
    return sf.try_validate_utf8(filled(template, topic).cast("string"))


def input_topic(template: str, topic: Column) -> Column:
    """Return the input topic of an output topic that a template like `{topic}.unique` has named.

    A name that does not match the template is returned unchanged.
    """
    before, _, after = template.partition("{topic}")
    expression = f"^{re.escape(before)}(.+){re.escape(after)}$"
    found = sf.regexp_extract(topic, expression, 1)
    return sf.when(found != "", found).otherwise(topic)


def _bytes(text: str) -> Column:
    return sf.lit(text).cast("binary")


def _field(name: str, topic: Column) -> Column:
    if name == "topic":
        return topic.cast("binary")
    if name == "key":
        return sf.col("key")
    if name == "sha256:value":
        return sf.sha2(sf.col("value"), 256).cast("binary")
    return first(sf.col("headers"), name.removeprefix("header:"))
