"""Templates of routes as columns: `{topic}`, `{key}`, `{header:NAME}`, `{sha256:value}` and text.

As the service fills them for a record, so these do for a frame of records; a record that lacks
something has null.
"""

import re
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as sf

from ringfence.spark_columns import first

_FIELD: Final = re.compile(r"\{(topic|key|sha256:value|header:[^{}]+)\}")


def filled(template: str, topic: Column) -> Column:
    """The bytes that a template has for each record; `topic` is the topic it came in by."""
    parts = _FIELD.split(template)
    pieces = [_field(part, topic) if at % 2 else _bytes(part) for at, part in enumerate(parts)]
    return sf.concat(*pieces)


def filled_text(template: str, topic: Column) -> Column:
    """The same as text; null where the bytes are none."""
    return sf.try_validate_utf8(filled(template, topic).cast("string"))


def input_topic(template: str, topic: Column) -> Column:
    """The topic that came in, of one that a template like `{topic}.unique` has named.

    A name that the template does not give stands for itself.
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
