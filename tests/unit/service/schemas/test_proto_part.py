"""Parts of Protobuf messages: each member is that of the whole message."""

import base64
import resource
from collections.abc import Iterator
from random import Random
from typing import Any, Final

import pytest
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.descriptor_pb2 import Edition, FeatureSet
from google.protobuf.message_factory import GetMessageClass
from hypothesis import given
from hypothesis import strategies as st

from ringfence_service.schemas.errors import UndecodableError
from ringfence_service.schemas.proto_part import Parts
from ringfence_service.schemas.proto_source import file_of
from ringfence_service.schemas.protobuf import ProtobufDecoder

PROTO3: Final = """
syntax = "proto3";
package shop;
import "other.proto";
import "google/protobuf/wrappers.proto";
message Order {
  string id = 1;
  optional int32 number = 2;
  oneof payment { string card = 3; Order goods = 4; Kind kind = 5; other.Note note = 6; }
  repeated Order orders = 7;
  map<string, Order> named = 8;
  map<int32, Kind> kinds = 9;
  map<bool, other.Note> notes = 10;
  repeated Kind listed = 11;
  google.protobuf.StringValue wrapped = 12;
  repeated sint64 sizes = 13;
  double double = 14;
  fixed32 fixed = 15;
  Within within = 16;
  message Within { enum Kind { A = 0; B = 7; } Kind kind = 1; bytes raw = 2; Order order = 3; }
}
enum Kind { NEW = 0; OLD = 1; }
"""
OTHER: Final = """
syntax = "proto2";
package other;
message Note {
  optional string text = 1;
  optional Closed closed = 2;
  repeated Closed several = 3;
  optional group Part = 4 { optional string sku = 1; optional Note note = 2; }
  repeated group Parts = 5 { optional Closed closed = 1; }
  oneof choice { Closed first = 6; string second = 7; group Third = 8 { optional int32 n = 1; } }
  required bool sent = 9;
  map<string, Closed> by = 10;
}
enum Closed { NONE = 0; ONE = 1; TWO = 2; }
"""


def of_editions() -> str:
    """A descriptor of a file whose features say what has presence and which enums are closed."""
    file = file_of(OTHER.replace("required", "optional"), "other.proto")
    file.syntax = "editions"
    file.edition = Edition.EDITION_2023
    file.options.features.field_presence = FeatureSet.IMPLICIT
    file.enum_type[0].options.features.enum_type = FeatureSet.CLOSED
    implicit = [each for each in file.message_type[0].field if each.name == "text"]
    implicit[0].options.features.field_presence = FeatureSet.EXPLICIT
    for each in file.message_type[0].field:
        if (
            each.type_name.endswith("Closed")
            and each.label == 1
            and not each.HasField("oneof_index")
        ):
            each.options.features.field_presence = FeatureSet.EXPLICIT
    within = file.message_type[0].nested_type[0]
    within.field[0].options.features.field_presence = FeatureSet.EXPLICIT
    return base64.b64encode(file.SerializeToString()).decode()


DECODERS: Final = {
    "proto3": ProtobufDecoder(PROTO3, {"other.proto": OTHER}),
    "proto2": ProtobufDecoder(OTHER, {}),
    "editions": ProtobufDecoder(of_editions(), {}),
}


def number(value: int) -> bytes:
    written = bytearray()
    while value > 0x7F:
        written.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*written, value])


def message_of(random: Random, described: Any, levels: int) -> bytes:
    """Bytes of a message: any fields in any order, several times, some with unknown numbers."""
    fields = list(described.fields)
    written = b""
    for _ in range(random.choice([0, 1, 4, 8])):
        if random.random() < 0.1:
            unknown = number(1000 << 3 | 2) + b"\2ab", number(1000 << 3 | 3) + number(1000 << 3 | 4)
            written += random.choice(unknown)
        else:
            written += field_of(random, random.choice(fields), levels)
    return written


def field_of(random: Random, field: Any, levels: int) -> bytes:
    kinds = FieldDescriptor
    if field.message_type is not None:
        inner = message_of(random, field.message_type, levels - 1) if levels else b""
        if field.type == kinds.TYPE_GROUP:
            return number(field.number << 3 | 3) + inner + number(field.number << 3 | 4)
        return number(field.number << 3 | 2) + number(len(inner)) + inner
    if field.type in {kinds.TYPE_STRING, kinds.TYPE_BYTES}:
        return number(field.number << 3 | 2) + random.choice([b"\0", b"\1a", b"\1b", b"\2\xc3\xa9"])
    if field.type == kinds.TYPE_DOUBLE:
        return number(field.number << 3 | 1) + random.choice([bytes(8), random.randbytes(8)])
    if field.type == kinds.TYPE_FIXED32:
        return number(field.number << 3 | 5) + random.choice([bytes(4), random.randbytes(4)])
    values = [number(random.choice([0, 0, 1, 2, 7, 9, 2**32 + 1, 2**64 - 1])) for _ in range(3)]
    if field.is_repeated and random.random() < 0.5:
        packed = b"".join(values)
        return number(field.number << 3 | 2) + number(len(packed)) + packed
    return number(field.number << 3) + values[0]


def pointer_of(random: Random, described: Any) -> Iterator[str]:
    """The tokens of a pointer that may name a member, or nothing."""
    while described is not None and random.random() < 0.8:
        field = random.choice(list(described.fields))
        yield random.choice([field.name] * 9 + ["none"])
        described = field.message_type
        if field.is_repeated:
            yield random.choice(["0", "1", "00", "a", "é", "", "true", "-1"])
            if described is not None and described.GetOptions().map_entry:
                described = described.fields_by_name["value"].message_type


def plain(found: object) -> object:
    return type(found) if isinstance(found, dict | list | float) else found


@pytest.mark.parametrize("name", DECODERS)
@given(random=st.randoms(use_true_random=False))
def test_each_pointer_finds_what_it_would_find_in_the_whole_message(
    name: str, random: Random
) -> None:
    decoder = DECODERS[name]
    root = decoder._root((0,))
    body = message_of(random, root.message, 4)
    document = decoder.document(b"\0" + body)
    for _ in range(10):
        pointer = tuple(pointer_of(random, root.message))
        found = plain(decoder.member(document, pointer))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(decoder, "_roots", {})
            patch.setattr(
                Parts, "class_of", lambda _parts, message, _tokens: GetMessageClass(message)
            )
            assert found == plain(decoder.member(decoder.document(b"\0" + body), pointer)), pointer


WIDE: Final = 2_000
ROWS: Final = 40_000


def test_a_message_takes_no_memory_for_fields_that_no_pointer_names() -> None:
    wide = "".join(f"int64 f{at} = {at + 1};" for at in range(WIDE))
    messages = f"message A {{ string id = 1; repeated W w = 2; }} message W {{ {wide} }}"
    decoder = ProtobufDecoder(f'syntax = "proto3"; {messages}', {})
    body = b"\0\x0a\1x" + b"\x12\0" * ROWS
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert decoder.member(decoder.document(body), ("id",)) == "x"
    assert decoder.member(decoder.document(body), ("w", str(ROWS - 1))) == {}
    assert decoder.member(decoder.document(body), ("w", str(ROWS - 1), "f7")) is None
    taken_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert taken_kib < 100 * 1024  # 8 bytes for each field of each message would be 640 MB


def test_what_no_pointer_names_may_contain_anything() -> None:
    decoder = DECODERS["proto3"]
    document = decoder.document(b"\0\x0a\1a\x1a\1\xff")
    assert decoder.member(document, ("id",)) == "a"
    with pytest.raises(UndecodableError):
        decoder.member(document, ("card",))


def test_a_part_is_made_once_for_all_types_that_lead_to_it() -> None:
    roots = "".join(f"message R{at} {{ Big big = 1; }}" for at in range(200))
    choices = "".join(f"string c{at} = {at + 1};" for at in range(500))
    text = f'syntax = "proto3"; message Big {{ oneof all {{ {choices} }} }} {roots}'
    decoder = ProtobufDecoder(text, {})
    for at in range(200):
        document = decoder.document(b"\2" + number((at + 1) * 2) + b"\x0a\3\x0a\1x")
        assert decoder.member(document, ("big", "c0")) == "x"
    assert len(decoder._parts._names) == 201
