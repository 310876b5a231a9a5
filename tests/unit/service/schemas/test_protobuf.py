"""Protobuf messages by the .proto file that wrote them, and by their indexes."""

import base64
from contextlib import suppress
from typing import Any

import pytest
from google.protobuf import json_format
from google.protobuf.message_factory import GetMessageClass
from hypothesis import given
from hypothesis import strategies as st

from ringfence_service.schemas import protobuf
from ringfence_service.schemas.errors import SchemaUnusableError, UndecodableError
from ringfence_service.schemas.proto_source import file_of
from ringfence_service.schemas.protobuf import ProtobufDecoder
from tests.support.helpers import rows

COMMON = 'syntax = "proto3"; package common; message Id { string text = 1; }'
SHOP = """
syntax = "proto3";
package shop;
import "common.proto";
import "confluent/meta.proto";
import "google/protobuf/wrappers.proto";
import "google/protobuf/timestamp.proto";
// A comment; and an option that nobody needs.
option java_package = "x";
message Order {
  option deprecated = true;
  message Line { string sku = 1; map<string, Line> parts = 2; }
  message Note { string text = 1; }
  string order_id = 1 [json_name = "orderId", deprecated = true];
  common.Id by = 2;
  map<string, Line> lines = 3;
  optional int64 number = 4;
  oneof payment { string card = 5; Line goods = 6; }
  repeated Kind kinds = 7;
  reserved 8, 9;
  map<int32, string> numbered = 10;
  google.protobuf.StringValue wrapped = 11;
  float single = 12;
  double double = 13;
  bytes raw = 14;
  bool sent = 15;
  uint64 big = 16;
  google.protobuf.Timestamp at = 17;
  Kind kind = 18;
  map<bool, sint32> flags = 19;
  repeated fixed64 sizes = 20;
  message Late { string text = 1; }
}
enum Kind { option allow_alias = true; NEW = 0; OLD = 1; AGED = 1; }
message Other { string id = 1; message Inner { string id = 1; } }
service Orders { rpc Get (Order) returns (Other); }
"""
DECODER = ProtobufDecoder(SHOP, {"common.proto": COMMON})


def order(**values: object) -> Any:
    """A message of the type, which `DECODER` knows by its indexes."""
    message = GetMessageClass(DECODER._pool.FindMessageTypeByName("shop.Order"))()
    return json_format.ParseDict(values, message)


def member(message: Any, *tokens: str) -> object:
    return DECODER.member(DECODER.document(b"\0" + message.SerializeToString()), tokens)


FULL = order(
    order_id="A-1",
    by={"text": "me"},
    lines={"a/b": {"sku": "s", "parts": {"x": {"sku": "p"}}}},
    number=0,
    goods={"sku": ""},
    kinds=["OLD", 5],
    numbered={"-3": "minus three", "4": ""},
    wrapped="",
    single=0.1,
    double=1e300,
    raw="/wA=",
    sent=True,
    big=2**64 - 1,
    at="2026-01-01T00:00:00Z",
    flags={"true": -1},
    sizes=[7, 2**64 - 1],
)


@rows(
    ("tokens", "found"),
    {
        "text": (["order_id"], "A-1"),
        "not the name in JSON": (["orderId"], None),
        "of another file": (["by", "text"], "me"),
        "in a map": (["lines", "a/b", "sku"], "s"),
        "in a map of a map": (["lines", "a/b", "parts", "x", "sku"], "p"),
        "not in a map": (["lines", "none", "sku"], None),
        "0 that was set": (["number"], "0"),
        "a choice that was not taken": (["card"], None),
        "text without presence that is empty": (["goods", "sku"], None),
        "an enum": (["kinds", "0"], "OLD"),
        "an enum's number without a name": (["kinds", "1"], "5"),
        "beyond the end": (["kinds", "2"], None),
        "no index": (["kinds", "00"], None),
        "a number as a key": (["numbered", "-3"], "minus three"),
        "empty text in a map": (["numbered", "4"], ""),
        "another form of a number": (["numbered", "04"], None),
        "a wrapper": (["wrapped"], ""),
        "single precision": (["single"], "0.1"),
        "double precision": (["double"], "1e+300"),
        "bytes": (["raw"], "/wA="),
        "a boolean": (["sent"], True),
        "a large number": (["big"], "18446744073709551615"),
        "a member of a known type": (["at", "seconds"], "1767225600"),
        "an enum that was not set": (["kind"], None),
        "a boolean as a key": (["flags", "true"], "-1"),
        "a boolean that is no key": (["flags", "false"], None),
        "a repeated number": (["sizes", "1"], "18446744073709551615"),
        "in text": (["order_id", "x"], None),
        "nothing": (["none"], None),
    },
)
def test_a_member_has_the_text_that_json_would_have(tokens: list[str], found: object) -> None:
    assert member(FULL, *tokens) == found


def test_messages_lists_and_maps_are_containers() -> None:
    assert [member(FULL, name) for name in ("by", "kinds", "lines")] == [{}, [], {}]
    assert member(FULL) == {}


@pytest.mark.parametrize("number", ["NaN", "Infinity"])
def test_a_number_that_json_lacks_is_none(number: str) -> None:
    assert isinstance(member(order(double=number), "double"), float)
    assert isinstance(member(order(single=number), "single"), float)


@rows(
    ("indexes", "tokens"),
    {
        "the first": (b"\0", ["order_id"]),
        "the second": (b"\x02\x02", ["id"]),
        "within the first": (b"\x04\x00\x00", ["sku"]),
        "beside another": (b"\x04\x00\x02", ["text"]),
        "behind maps": (b"\x04\x00\x04", ["text"]),
        "behind maps that are counted": (b"\x04\x00\x0a", ["text"]),
        "within the second": (b"\x04\x02\x00", ["id"]),
    },
)
def test_the_indexes_say_of_which_type_a_message_is(indexes: bytes, tokens: list[str]) -> None:
    document = DECODER.document(indexes + b"\x0a\x01x")
    assert DECODER.member(document, tokens) == "x"


@rows(
    ("body", "cause"),
    {
        "nothing": (b"", "it ends within the indexes of its message"),
        "no index": (b"\x02", "it ends within the indexes of its message"),
        "no such message": (b"\x02\x08", "its indexes name no message of its schema"),
        "what a map stands for": (
            b"\x04\x00\x06",
            "its indexes name no message of its schema",
        ),
        "a negative index": (b"\x02\x01", "its indexes name no message of its schema"),
        "many indexes": (b"\xfe\xff\x03", "its indexes have an impossible count"),
        "a negative count": (b"\x01", "its indexes have an impossible count"),
        "an endless number": (b"\xff" * 20, "its indexes have too many bytes"),
        "no message": (b"\0\x0a\xff", "its bytes are not a message of its schema"),
        "no UTF-8": (b"\0\x0a\x01\xff", "its bytes are not a message of its schema"),
        "too deep": (b"\0" + b"\x32\x80\x01" * 9, "its bytes are not a message of its schema"),
    },
)
def test_other_bytes_are_undecodable(body: bytes, cause: str) -> None:
    with pytest.raises(UndecodableError, match=cause):
        DECODER.member(DECODER.document(body), ["order_id"])


@pytest.mark.parametrize(
    "text",
    [
        "no file",
        "bm8gZmlsZQ==",
        "abc",
        'syntax = "proto3"; message A { Unknown x = 1; }',
        'syntax = "proto3"; message A { int32 a = 1; int32 b = 1; }',
        'edition = "2023"; message A { int32 a = 1; }',
        'syntax = "proto3"; message A { int32 a = ',
        'syntax = "proto3"; message A { int32 a = 99999999999; }',
        'syntax = "proto3"; message A { int32 a = 4294967297; }',
        'syntax = "proto3"; message A { int32 a = 536870912; }',
        'syntax = "proto3"; enum E { A = 0; B = 99999999999; }',
        'syntax = "proto3"; enum E { A = 0; B = ' + "9" * 5000 + "; }",
        'syntax = "proto3"; ' + "message A { " * 2000 + "}" * 2000,
        base64.b64encode(b"\x22\x80\x01" * 2000).decode(),
    ],
)
def test_a_text_that_is_no_file_is_refused(text: str) -> None:
    with pytest.raises(SchemaUnusableError):
        ProtobufDecoder(text, {})


def test_a_file_that_an_import_needs_and_nobody_has_is_missed() -> None:
    with pytest.raises(SchemaUnusableError, match="resolve"):
        ProtobufDecoder(SHOP, {})


def test_files_that_import_each_other_are_refused() -> None:
    text = 'syntax = "proto3"; import "b.proto"; message A { string id = 1; }'
    other = 'syntax = "proto3"; import "schema.proto"; message B { A a = 1; }'
    with pytest.raises(SchemaUnusableError):
        ProtobufDecoder(text, {"b.proto": other})


def test_files_that_all_import_each_other_are_read_once_each(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read: list[str] = []

    def counted(text: str, name: str) -> Any:
        read.append(name)
        return file_of(text, name)

    monkeypatch.setattr(protobuf, "file_of", counted)
    imports = [f'import "{at}.proto";' for at in range(20)]
    texts = {f"{at}.proto": f'syntax = "proto3"; {"".join(imports[:at])}' for at in range(20)}
    text = f'syntax = "proto3"; {"".join(reversed(imports))} message A {{ string id = 1; }}'
    decoder = ProtobufDecoder(text, texts)
    assert decoder.member(decoder.document(b"\0\x0a\1x"), ["id"]) == "x"
    assert sorted(read) == sorted(["schema.proto", *texts])


def test_a_descriptor_of_a_file_is_taken_for_the_file() -> None:
    file = file_of(SHOP, "any.proto")
    text = base64.b64encode(file.SerializeToString()).decode()
    decoder = ProtobufDecoder(text, {"common.proto": COMMON})
    document = decoder.document(b"\0" + FULL.SerializeToString())
    assert decoder.member(document, ["by", "text"]) == "me"


def test_proto2_has_presence_groups_and_required_fields() -> None:
    text = """
    syntax = "proto2";
    message Order {
      required string id = 1;
      optional int32 n = 2 [default = 7];
      optional group Part = 3 { optional string sku = 4; }
    }
    """
    decoder = ProtobufDecoder(text, {})
    document = decoder.document(b"\0\x0a\x00\x1b\x22\x01s\x1c")
    assert decoder.member(document, ["id"]) == ""
    assert decoder.member(document, ["n"]) is None
    assert decoder.member(document, ["part", "sku"]) == "s"


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_undecodable(body: bytes) -> None:
    with suppress(UndecodableError):
        document = DECODER.document(body)
        for tokens in (["order_id"], ["lines", "x", "sku"], ["numbered", "1"], ["kinds", "0"]):
            DECODER.member(document, tokens)


@given(
    st.text(min_size=1),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False, allow_infinity=False).filter(bool),
    st.floats(width=32, allow_nan=False, allow_infinity=False).filter(bool),
    st.binary(min_size=1),
)
def test_what_is_written_is_read_as_the_json_of_protobuf(
    text: str, number: int, double: float, single: float, raw: bytes
) -> None:
    message = order()
    message.order_id, message.number, message.raw = text, number, raw
    message.double, message.single = double, single
    json = json_format.MessageToDict(message, preserving_proto_field_name=True)
    assert member(message, "order_id") == json["order_id"]
    assert member(message, "number") == json["number"]
    assert member(message, "raw") == json["raw"]
    assert member(message, "double") == repr(json["double"])
    assert float(str(member(message, "single"))) == pytest.approx(single, rel=1e-7, abs=1e-45)
