"""Route templates as Spark columns: what the service fills for one record, for all rows at once."""

import re
from collections.abc import Callable
from typing import cast

import pandas as pd
from pyspark.sql import Column
from pyspark.sql import functions as sf
from pyspark.sql.pandas.functions import pandas_udf
from pyspark.sql.types import BinaryType

from pipeline.errors import USAGE, PipelineError
from ringfence.spark.columns import first
from service.dedup.field import (
    FIELD,
    DigestField,
    HeaderField,
    JsonField,
    KeyField,
    SchemaField,
    field_of,
)


def filled(template: str, topic: Column) -> Column:
    """Return the bytes of a template for each record; `topic` is the record's input topic."""
    pieces = []
    for at, part in enumerate(FIELD.split(template)):
        if at % 2:
            pieces.append(_field(part))
        else:
            for number, literal in enumerate(part.split("{topic}")):
                pieces += [topic.cast("binary"), _bytes(literal)] if number else [_bytes(literal)]
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


def _field(name: str) -> Column:
    field = field_of(name)
    match field:
        case KeyField():
            return sf.col("key")
        case DigestField():
            return sf.sha2(sf.col("value"), 256).cast("binary")
        case HeaderField():
            return first(sf.col("headers"), field.header)
        case JsonField():
            return _member(field)
        case SchemaField():
            sentence = f"{field.name} needs a schema registry, which jobs on Spark do not have"
            raise PipelineError(sentence, exit_code=USAGE)
        case _:
            raise AssertionError(name)


def _member(field: JsonField) -> Column:
    """Return a member of JSON as the service reads it; Spark's functions read it differently."""

    def members(documents: pd.Series) -> pd.Series:
        return documents.map(field.of_document)

    udf = cast("Callable[[object, BinaryType], Callable[..., Column]]", pandas_udf)
    return udf(members, BinaryType())("key" if field.in_key else "value")
