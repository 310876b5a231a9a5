"""Avro data by the schema that wrote it: what fastavro writes is read, and nothing ends us."""

import io
import json
import math
import uuid
from contextlib import suppress
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringfence_service.schemas.avro import AvroDecoder
from ringfence_service.schemas.errors import SchemaUnusableError, UndecodableError
from ringfence_service.schemas.limits import DECIMAL_BYTES_MAX, DEPTH_MAX
from tests.support.helpers import rows

DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}
LINE = {
    "type": "record",
    "name": "Line",
    "fields": [{"name": "sku", "type": "string"}, {"name": "next", "type": ["null", "Line"]}],
}
ORDER = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": ["null", "string"], "default": None},
        {"name": "count", "type": "int"},
        {"name": "number", "type": "long"},
        {"name": "single", "type": "float"},
        {"name": "double", "type": "double"},
        {"name": "sent", "type": "boolean"},
        {"name": "raw", "type": "bytes"},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["NEW", "OLD"]}},
        {"name": "again", "type": "Kind"},
        {"name": "hash", "type": {"type": "fixed", "name": "Hash", "size": 3}},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "named", "type": {"type": "map", "values": ["null", "long"]}},
        {"name": "price", "type": DECIMAL},
        {"name": "uuid", "type": {"type": "fixed", "name": "U", "size": 16, "logicalType": "uuid"}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "first", "type": ["null", LINE]},
    ],
}  # fmt: skip
VALUE: dict[str, Any] = {
    "id": "A-1",
    "count": -7,
    "number": 2**63 - 1,
    "single": 0.1,
    "double": 0.1,
    "sent": True,
    "raw": b"\xff\x00",
    "kind": "OLD",
    "again": "NEW",
    "hash": b"abc",
    "tags": ["x", "ß"],
    "named": {"a/b": 1, "n": None},
    "price": Decimal("-0.05"),
    "uuid": uuid.UUID(int=7).bytes,
    "at": datetime(2026, 1, 1, tzinfo=UTC),
    "first": {"sku": "s1", "next": {"sku": "s2", "next": None}},
}


def written(schema: object, value: object) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), value)  # type: ignore[arg-type]
    return stream.getvalue()


def member(schema: object, body: bytes, *tokens: str) -> object:
    decoder = AvroDecoder(json.dumps(schema))
    return decoder.member(decoder.document(body), tokens)


@pytest.mark.parametrize(
    ("tokens", "found"),
    [
        (["id"], "A-1"),
        (["count"], "-7"),
        (["number"], "9223372036854775807"),
        (["single"], "0.1"),
        (["double"], "0.1"),
        (["sent"], True),
        (["raw"], "/wA="),
        (["kind"], "OLD"),
        (["again"], "NEW"),
        (["hash"], "YWJj"),
        (["tags", "1"], "ß"),
        (["tags", "2"], None),
        (["named", "a/b"], "1"),
        (["named", "n"], None),
        (["price"], "-0.05"),
        (["uuid"], "00000000-0000-0000-0000-000000000007"),
        (["at"], "1767225600000"),
        (["first", "next", "sku"], "s2"),
        (["first", "next", "next"], None),
        (["none"], None),
        (["id", "x"], None),
    ],
)
def test_a_member_has_the_text_that_json_would_have(tokens: list[str], found: object) -> None:
    assert member(ORDER, written(ORDER, VALUE), *tokens) == found


def test_a_record_and_an_array_are_containers() -> None:
    body = written(ORDER, VALUE)
    assert isinstance(member(ORDER, body, "first"), dict)
    assert isinstance(member(ORDER, body, "tags"), list)


def test_a_schema_may_name_types_of_others() -> None:
    line = {**LINE, "namespace": "shop", "fields": [{"name": "sku", "type": "string"}]}
    order = {"type": "record", "name": "Order", "fields": [{"name": "line", "type": "shop.Line"}]}
    decoder = AvroDecoder(json.dumps(order), [json.dumps(line)])
    assert decoder.member(decoder.document(b"\x02x"), ["line", "sku"]) == "x"


def test_a_schema_of_bytes_alone_has_the_value_without_its_length() -> None:
    assert member("bytes", b"abc") == "YWJj"
    assert member({"type": "bytes"}, b"") == ""
    assert member("string", b"\x06abc") == "abc"


@pytest.mark.parametrize("number", [math.nan, math.inf])
def test_a_number_that_json_lacks_is_none(number: float) -> None:
    assert isinstance(member("double", written("double", number)), float)
    assert isinstance(member("float", written("float", number)), float)


@rows(
    ("schema", "body", "cause"),
    {
        "nothing": ("string", b"", "it ends too early"),
        "text that is cut": ("string", b"\x08abc", "it ends too early"),
        "a negative length": ("string", b"\x03abc", "it ends too early"),
        "no UTF-8": ("string", b"\x02\xff", "text in it is not UTF-8"),
        "more bytes": ("string", b"\x02ab", "more bytes follow than its schema describes"),
        "an endless number": ("long", b"\xff" * 20, "a number in it has too many bytes"),
        "no branch": (["null"], b"\x02", "a union in it names a type that it does not have"),
        "a negative branch": (
            ["null", "string"],
            b"\x03",
            "a union in it names a type that it does not have",
        ),
        "no symbol": (
            {"type": "enum", "name": "E", "symbols": ["A"]},
            b"\x02",
            "an enum in it has a symbol that its schema lacks",
        ),
        "no boolean": ("boolean", b"\x02", "a boolean in it is neither 0 nor 1"),
        "half a double": ("double", b"\x00" * 7, "it ends too early"),
        "half a fixed": ({"type": "fixed", "name": "F", "size": 4}, b"abc", "it ends too early"),
        "a list as long as memory": (
            {"type": "array", "items": "string"},
            b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01",
            "it ends too early",
        ),
        "too deep": (
            {"type": "record", "name": "N", "fields": [{"name": "n", "type": ["null", "N"]}]},
            b"\x02" * 1_000_000 + b"\x00",
            "it is nested deeper than 500 levels",
        ),
    },
)
def test_other_bytes_are_undecodable(schema: object, body: bytes, cause: str) -> None:
    with pytest.raises(UndecodableError, match=cause):
        member(schema, body)


def test_a_decimal_has_a_limit_that_concerns_no_other_member() -> None:
    decoder = AvroDecoder(json.dumps({
        "type": "record",
        "name": "R",
        "fields": [{"name": "price", "type": DECIMAL}, {"name": "id", "type": "string"}],
    }))  # fmt: skip
    for size in (DECIMAL_BYTES_MAX, DECIMAL_BYTES_MAX + 1, 100_000):
        body = written("bytes", b"\x7f" * size) + b"\x04id"
        document = decoder.document(body)
        assert decoder.member(document, ["id"]) == "id"
        if size == DECIMAL_BYTES_MAX:
            assert len(str(decoder.member(document, ["price"]))) == 2409
            continue
        with pytest.raises(UndecodableError, match="a decimal in it has more than 1000 bytes"):
            decoder.member(document, ["price"])


def test_what_no_pointer_names_may_contain_anything() -> None:
    fields = [{"name": name, "type": "string"} for name in ("id", "name")]
    decoder = AvroDecoder(json.dumps({"type": "record", "name": "R", "fields": fields}))
    document = decoder.document(b"\x02a\x02\xff")
    with pytest.raises(UndecodableError, match="text in it is not UTF-8"):
        decoder.member(document, ["name"])
    assert decoder.member(document, ["id"]) == "a"


@pytest.mark.parametrize("tokens", [[], ["n"], ["n"] * 40])
def test_records_may_have_as_many_levels_as_the_limit(tokens: list[str]) -> None:
    schema = {"type": "record", "name": "N", "fields": [{"name": "n", "type": ["null", "N"]}]}
    assert member(schema, b"\x02" * (DEPTH_MAX - 1) + b"\x00", *tokens) == {}
    with pytest.raises(UndecodableError, match="deeper than 500 levels"):
        member(schema, b"\x02" * DEPTH_MAX + b"\x00", *tokens)


def test_a_schema_may_have_as_many_levels_as_the_limit() -> None:
    opened = '{"type": "array", "items": '
    AvroDecoder(opened * DEPTH_MAX + '"int"' + "}" * DEPTH_MAX)
    with pytest.raises(SchemaUnusableError, match="it is nested deeper than 500 levels"):
        AvroDecoder(opened * (DEPTH_MAX + 1) + '"int"' + "}" * (DEPTH_MAX + 1))


def test_items_without_bytes_cost_nothing_however_many_they_are() -> None:
    nulls = {"type": "array", "items": "null"}
    assert member(nulls, b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01\x00", "0") is None


@pytest.mark.parametrize(
    "text",
    ["no json", "7", '"Other"', '{"type": "record", "name": "R"}', "{}", "[3]",
     '{"type": "fixed", "name": "F", "size": -1}', "[" * 100_000],
)  # fmt: skip
def test_a_text_that_is_no_schema_is_refused(text: str) -> None:
    with pytest.raises(SchemaUnusableError, match="not an Avro schema"):
        AvroDecoder(text)


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_undecodable(body: bytes) -> None:
    decoder = AvroDecoder(json.dumps(ORDER))
    with suppress(UndecodableError):
        decoder.document(body)


PRIMITIVES = {
    "string": st.text(),
    "long": st.integers(-(2**63), 2**63 - 1),
    "int": st.integers(-(2**31), 2**31 - 1),
    "boolean": st.booleans(),
    "double": st.floats(allow_nan=False, allow_infinity=False),
    "float": st.floats(width=32, allow_nan=False, allow_infinity=False),
}


@given(st.data())
def test_what_fastavro_writes_is_read_as_json_would_be(data: st.DataObject) -> None:
    names = data.draw(st.lists(st.sampled_from(sorted(PRIMITIVES)), max_size=5))
    schema = {
        "type": "record",
        "name": "R",
        "fields": [{"name": f"f{at}", "type": ["null", name]} for at, name in enumerate(names)],
    }
    value = {f"f{at}": data.draw(st.none() | PRIMITIVES[name]) for at, name in enumerate(names)}
    body = written(schema, value)
    for at, name in enumerate(names):
        found, wanted = member(schema, body, f"f{at}"), value[f"f{at}"]
        if wanted is None or isinstance(wanted, bool | str):
            assert found == wanted
        elif name == "float":
            assert isinstance(found, str)
            assert (
                fastavro.schemaless_reader(
                    io.BytesIO(written("float", float(found))), "float", None
                )
                == wanted
            )
        else:
            assert found == json.dumps(wanted)
