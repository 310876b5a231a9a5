"""Hostile schemas and payloads: each costs steps and memory in proportion to what was sent."""

import json
import sys
import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from types import FrameType
from typing import Any, Final

import pytest

from ringfence_service.dedup.field import JsonField
from ringfence_service.schemas.documents import Documents
from ringfence_service.schemas.errors import UndecodableError
from ringfence_service.schemas.registry import RegisteredSchema
from tests.fakes.schema_registry import FakeSchemas, SteppedLookups, payload
from tests.support.helpers import rows

STEPS_PER_BYTE: Final = 100
STEPS_MIN: Final = 500_000
"""10,000 containers of up to 50 lines each."""
MEMORY_PER_BYTE: Final = 200
MEMORY_MIN: Final = 1_000_000
HUGE: Final = b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7f"
"""2^62 - 1 as a count of Avro."""


class TooManySteps(BaseException):
    """More lines were run than the limit permits; no handler of an `Exception` takes it."""


def within_steps(limit: int, run: Callable[[], object]) -> object:
    """Run something, of which no more lines of the decoders than the limit may be run."""
    left = limit

    def on_line(_frame: FrameType, event: str, _arg: object) -> Any:
        nonlocal left
        left -= event == "line"
        if left < 0:
            raise TooManySteps
        return on_line

    def on_call(frame: FrameType, _event: str, _arg: object) -> Any:
        return on_line if "/ringfence_service/schemas/" in frame.f_code.co_filename else None

    before = sys.gettrace()
    sys.settrace(on_call)
    try:
        return run()
    finally:
        sys.settrace(before)


def within_memory(limit: int, run: Callable[[], object]) -> object:
    """Run something that may take so many bytes of memory at once."""
    tracemalloc.start()
    try:
        found = run()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak <= limit, f"{peak} bytes where {limit} are the limit"
    return found


def documents_of(schema: RegisteredSchema) -> Documents:
    """Documents of a registry with one schema."""
    return Documents(SteppedLookups(FakeSchemas(_1=schema), float), waits=True)


def record(name: str, **fields: object) -> dict[str, Any]:
    listed = [{"name": field, "type": kind} for field, kind in fields.items()]
    return {"type": "record", "name": name, "fields": listed}


def doubling(levels: int, leaf: object) -> Any:
    """A record of two records, each of two records, and so on: 2^levels leaves."""
    made: Any = record("R0", leaf=leaf)
    for level in range(1, levels + 1):
        made = record(f"R{level}", a=made, b=f"R{level - 1}")
    return made


def doubling_by_name(levels: int, leaf: object) -> Any:
    """The same with one definition after another, in a union."""
    after = (record(f"R{at}", a=f"R{at - 1}", b=f"R{at - 1}") for at in range(1, levels + 1))
    return [record("R0", leaf=leaf), *after]


def wide(fields: int, kind: object, **others: object) -> Any:
    return record("W", **{f"f{at}": kind for at in range(fields)}, **others)


def chain(levels: int) -> Any:
    """Records of one field, of which each may be met again below all of them."""
    names = [f"C{at}" for at in range(levels)]
    made: Any = {"type": "array", "items": names}
    for name in reversed(names):
        made = record(name, only=made)
    return made


def array(items: object) -> Any:
    return {"type": "array", "items": items}


def avro(schema: object, body: bytes, *pointers: str) -> tuple[RegisteredSchema, bytes, Any]:
    text = schema if isinstance(schema, str) else json.dumps(schema)
    return RegisteredSchema("AVRO", text), body, pointers


BRANCHES: Final = [f"B{at}" for at in range(30)]
NULLS_1000: Final = b"\xd0\x0f" + b"\1" * 1000 + b"\0"
"""An array of 1,000 booleans, or of records that need one byte."""

AVRO: Final = {
    "records that double": avro(doubling(40, "null"), b"", "/a/b/a", "/b", "/a/b/leaf"),
    "records that double, with a byte": avro(doubling(40, "int"), b"\2" * 9, "/a/b/a"),
    "records that double by name": avro(doubling_by_name(2000, "null"), b"\xa0\x1f", "/a"),
    "sizes that double": avro(
        doubling_by_name(2000, {"type": "fixed", "name": "F", "size": 9}), b"\xa0\x1f", "/a"
    ),
    "an array of records that double": avro(array(doubling(30, "null")), HUGE + b"\0", "/7/a/b"),
    "an array of records that need a byte": avro(
        array(wide(5000, "null", last="boolean")), NULLS_1000, "/999/f7", "/5/last", "/5/f4999"
    ),
    "a map of wide records": avro(
        {"type": "map", "values": wide(5000, "null", last="boolean")},
        b"\xd0\x0f" + b"\2a\1" * 1000 + b"\0",
        "/a/f2500",
        "/b/f4",
    ),
    "an array of nulls": avro(array("null"), HUGE + b"\0", "/0", "/999999999"),
    "many arrays of nulls": avro(array(array("null")), b"\x90\x4e" + (HUGE + b"\0") * 5000),
    "a map of nulls": avro({"type": "map", "values": "null"}, HUGE + b"\0" * 2000, "/a"),
    "a map of nulls, complete": avro(
        {"type": "map", "values": "null"}, b"\xa0\x1f" + b"\0" * 2001, "/a"
    ),
    "an array of all memory": avro(array("int"), HUGE + b"\2" * 1000, "/0"),
    "a block of a negative count": avro(array("null"), b"\xff" * 9 + b"\1" + HUGE + b"\0", "/3"),
    "text of all memory": avro("string", HUGE + b"abc", ""),
    "a fixed value of all memory": avro({"type": "fixed", "name": "F", "size": 2**62}, b"a", ""),
    "a fixed value of more digits": avro(
        f'{{"type": "fixed", "name": "F", "size": {"9" * 4000}}}', b"a", ""
    ),
    "an array of huge fixed values": avro(
        array({"type": "fixed", "name": "F", "size": 2**62}), HUGE, "/0"
    ),
    "a number without an end": avro("long", b"\xff" * 20_000, ""),
    "a decimal": avro({"type": "record", "name": "R", "fields": [
        {"name": "d", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9}},
    ]}, b"\xa0\x9c\1" + b"\x7f" * 10_000, "/d"),
    "records without an end": avro(record("R", r="R"), b"", "/r/r"),
    "records without an end that double": avro(record("R", a="R", b="R"), b"", "/b"),
    "a chain that is met again": avro(chain(150), b"\xa0\x1f" + b"\0\0" * 2000 + b"\0", "/only"),
    "deep records": avro(record("R", r=["null", "R"]), b"\2" * 20_000, "/r/r/r"),
    "deep arrays": avro(record("R", r=array("R")), b"\2" * 20_000, "/r/0/r"),
    "branches that lead to each other": avro(
        [record(name, x=BRANCHES if at == 29 else "null") for at, name in enumerate(BRANCHES)],
        b"\x3a" * 20,
        *("/x" * tokens for tokens in range(1, 20)),
    ),
    "a schema of brackets": avro("[" * 20_000, b"", ""),
    "a schema of deep arrays": avro(
        '{"type":"array","items":' * 2000 + '"int"' + "}" * 2000, b"", ""
    ),
    "a long namespace": avro(
        {**record("R", **{f"f{at}": "R" for at in range(500)}), "namespace": "n" * 20_000}, b"", ""
    ),
    "names of the largest length": avro(
        {**record("R", a=record("S"), **{f"f{at}": "S" for at in range(500)}),
         "namespace": "n" * 990},
        b"", "/f499", "/f3",
    ),
    "symbols that are a number": avro({"type": "enum", "name": "E", "symbols": 7}, b"\0", ""),
    "symbols that are an object": avro(
        {"type": "enum", "name": "E", "symbols": {"a": 1}}, b"\0", ""
    ),
    "fields with an object as name": avro(
        {"type": "record", "name": "R", "fields": [{"name": {}, "type": "int"}]}, b"\0", "/a"
    ),
}  # fmt: skip


def read(schema: RegisteredSchema, body: bytes, pointers: tuple[str, ...]) -> list[object]:
    """What the pointers find; None where that is nothing, or the payload cannot be read."""
    documents = documents_of(schema)
    found: list[object] = []
    sent = payload(1, body)
    for pointer in pointers or ("",):
        try:
            found.append(documents.document(sent).member(tuple(pointer.split("/")[1:])))
        except UndecodableError:
            found.append(None)
    return found


@rows(("schema", "body", "pointers"), AVRO)
def test_what_avro_data_costs_is_in_proportion_to_what_was_sent(
    schema: RegisteredSchema, body: bytes, pointers: tuple[str, ...]
) -> None:
    size = (len(body) + len(schema.text)) * max(1, len(pointers))
    within_steps(STEPS_MIN + STEPS_PER_BYTE * size, lambda: read(schema, body, pointers))
    within_memory(MEMORY_MIN + MEMORY_PER_BYTE * size, lambda: read(schema, body, pointers))


PROTO: Final = """
syntax = "proto2";
message A {
  optional string id = 1;
  repeated A within = 2;
  repeated int64 packed = 3 [packed = true];
  map<int32, A> named = 4;
  optional group G = 5 { optional A within = 1; optional G g = 5; }
}
"""
PROTOBUF: Final = {
    "empty messages": b"\0" + b"\x12\0" * 10_000,
    "deep messages": b"\0" + b"".join(b"\x12" + bytes([n]) for n in range(120, 0, -2)),
    "deep groups": b"\0" + b"\x2b" * 10_000,
    "deep groups that nobody knows": b"\0" + b"\x7b" * 10_000 + b"\x7c" * 10_000,
    "groups that end twice": b"\0" + b"\x2b\x2c\x2c" * 5_000,
    "packed numbers": b"\0\x1a\x90\x4e" + b"\1" * 10_000,
    "packed numbers that end early": b"\0\x1a\xff\xff\xff\xff\x07" + b"\1" * 100,
    "text of all memory": b"\0\x0a\xff\xff\xff\xff\xff\xff\xff\xff\x7f",
    "entries of one key": b"\0" + b"\x22\0" * 10_000,
    "entries of many keys": b"\0" + b"".join(b"\x22\2\x08" + bytes([n]) for n in range(128)),
    "unknown fields": b"\0" + b"\xc2\x3e\1a" * 5_000,
    "a number without an end": b"\0\x18" + b"\xff" * 10_000,
    "many indexes": b"\xa0\x9c\1" + b"\0" * 20_000,
    "an index of all memory": b"\2" + b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7f",
    "as many indexes as bytes without an end": b"\xc8\1" + b"\xff" * 200,
}


@rows(("body",), {name: (body,) for name, body in PROTOBUF.items()})
def test_what_a_protobuf_message_costs_is_in_proportion_to_its_length(body: bytes) -> None:
    schema = RegisteredSchema("PROTOBUF", PROTO)
    documents = documents_of(schema)
    pointers = ("id",), ("within", "9999", "id"), ("packed", "7"), ("named", "7", "id"), ("g", "g")
    with suppress(UndecodableError):
        documents.document(payload(1, b"\0"))  # reads the schema, with a parser of its own cost

    def run() -> None:
        for pointer in pointers:
            with suppress(UndecodableError):
                documents.document(payload(1, body)).member(pointer)

    size = (len(body) + len(PROTO)) * len(pointers)
    within_steps(STEPS_MIN + STEPS_PER_BYTE * size, run)
    within_memory(MEMORY_MIN + MEMORY_PER_BYTE * size, run)


def test_values_that_need_no_bytes_are_found_among_any_number_of_them() -> None:
    schema, body, _ = AVRO["an array of records that double"]
    assert read(schema, body, ("", "/7/a/b", "/7/a/none", "/1000")) == [[], {}, None, {}]
    schema, body, pointers = AVRO["an array of records that need a byte"]
    assert read(schema, body, pointers) == [None, True, None]


def test_more_containers_than_the_limit_permits_are_refused() -> None:
    schema, body, _ = AVRO["a chain that is met again"]
    documents = documents_of(schema)
    cause = "more than 26012 records, arrays and maps in 4003 bytes"
    with pytest.raises(UndecodableError, match=cause):
        documents.document(payload(1, body))


def test_json_of_any_kind_costs_memory_in_proportion_to_its_length() -> None:
    schema = RegisteredSchema("JSON", "")
    for body in (
        b"[" * 50_000,
        b"[" + b"[]," * 20_000 + b"[]]",
        b'{"a":' * 10_000,
        b"[" + b"1," * 20_000 + b"1]",
        b"[" + b'{"a":1},' * 20_000 + b"1]",
        b'{"a": ' + b"9" * 50_000 + b"}",
        b'{"a": 1e' + b"9" * 50_000 + b"}",
        b'"' + b"\\u00e9" * 10_000 + b'"',
        b'{"a": "' + b"\\" * 50_001 + b'"}',
    ):
        limit = MEMORY_MIN + MEMORY_PER_BYTE * len(body)
        within_memory(limit, partial(read, schema, body, ("/a", "/0")))
        within_memory(limit, partial(JsonField("/a", in_key=True).of_document, body))
