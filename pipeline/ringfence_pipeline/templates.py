"""Route templates as Spark columns: what the service fills for one record, for all rows at once."""

import re
from collections.abc import Callable
from typing import cast

import pandas as pd
from pyspark.sql import Column
from pyspark.sql import functions as sf
from pyspark.sql.pandas.functions import pandas_udf
from pyspark.sql.types import BinaryType

from ringfence_client.spark.columns import first
from ringfence_pipeline.errors import USAGE, PipelineError
from ringfence_service.dedup.field import (
    ChangedField,
    DigestField,
    DocumentField,
    Field,
    FirstField,
    HeaderField,
    KeyField,
    SchemaField,
    pieces_of,
)


def filled(template: str, topic: Column) -> Column:
    """Return the bytes of a template for each record; `topic` is the record's input topic."""
    columns = []
    for piece in pieces_of(template):
        if isinstance(piece, Field):
            columns.append(_field(piece))
        else:
            for number, literal in enumerate(piece.split("{topic}")):
                columns += [topic.cast("binary"), _bytes(literal)] if number else [_bytes(literal)]
    return sf.concat(*columns)


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


def _field(field: Field) -> Column:
    match field:
        case KeyField():
            return sf.col("key")
        case DigestField():
            return sf.sha2(sf.col("value"), 256).cast("binary")
        case HeaderField():
            return first(sf.col("headers"), field.header)
        case SchemaField():
            sentence = f"{field.name} needs a schema registry, which jobs on Spark do not have"
            raise PipelineError(sentence, exit_code=USAGE)
        case DocumentField():
            return _mapped(field.of_document, sf.col("key" if field.in_key else "value"))
        case FirstField():
            found = map(_field, field.choices)
            return sf.coalesce(*(sf.when(sf.length(each) > 0, each) for each in found))
        case ChangedField():
            return _mapped(field.of_field, _field(field.inner))
        case _:
            raise AssertionError(field.name)


def _mapped(of_value: Callable[[bytes | None], bytes | None], column: Column) -> Column:
    """Return a column of bytes, each converted by the service's own code.

    Spark's functions read JSON, and change the case of text, in ways that differ.
    """

    def mapped(values: pd.Series) -> pd.Series:
        return values.map(of_value)

    udf = cast("Callable[[object, BinaryType], Callable[..., Column]]", pandas_udf)
    return udf(mapped, BinaryType())(column)
