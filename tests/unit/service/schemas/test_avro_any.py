"""Avro data of any schema: each member is what a slow and obvious model says."""

import base64
import json
import math
import struct
import uuid
from contextlib import suppress
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringfence_service.schemas import avro
from ringfence_service.schemas.avro import AvroDecoder
from ringfence_service.schemas.errors import SchemaUnusableError, UndecodableError
from ringfence_service.schemas.number_text import decimal_text, single_text

LEAVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
DECIMAL: dict[str, Any] = {"logicalType": "decimal", "precision": 9, "scale": 2}


class Schemas:
    """Makes schemas; those with a name may be used again, also within themselves."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.names: dict[str, Any] = {}

    def any(self, levels: int, *, in_union: bool = False) -> Any:  # noqa: C901 - a case for each type
        kinds = ["leaf", "leaf", "named", "enum", "fixed", "decimal"]
        if levels:
            kinds += ["record", "record", "array", "map"] + ["union"] * (not in_union)
        match self.random.choice(kinds):
            case "named" if self.names:
                return self.random.choice(sorted(self.names))
            case "enum":
                return self.named({"type": "enum", "symbols": ["A", "B", "C"]})
            case "fixed":
                logical: dict[str, Any] = self.random.choice([{}, {"logicalType": "uuid"}, DECIMAL])
                size = 16 if logical.get("logicalType") == "uuid" else self.random.randrange(4)
                return self.named({"type": "fixed", "size": size, **logical})
            case "decimal":
                return {"type": "bytes", **DECIMAL}
            case "array":
                return {"type": "array", "items": self.any(levels - 1)}
            case "map":
                return {"type": "map", "values": self.any(levels - 1)}
            case "union":
                others = [self.any(levels - 1, in_union=True) for _ in range(2)]
                return ["null", *others]
            case "record":
                made = self.named({"type": "record", "fields": []})
                for at in range(self.random.randrange(5)):
                    kind = self.any(levels - 1)
                    if isinstance(kind, str) and kind not in LEAVES:
                        kind = ["null", kind]  # which may be this record: so it ends
                    made["fields"].append({"name": f"f{at}", "type": kind})
                return made
            case _:
                return self.random.choice(LEAVES)

    def named(self, schema: dict[str, Any]) -> dict[str, Any]:
        name = f"N{len(self.names)}"
        self.names[name] = schema
        return {"name": name} | schema if schema["type"] != "record" else self._record(name, schema)

    @staticmethod
    def _record(name: str, schema: dict[str, Any]) -> dict[str, Any]:
        schema["name"] = name
        return schema


def zigzag(number: int) -> bytes:
    number = number * 2 if number >= 0 else -number * 2 - 1
    written = bytearray()
    while number > 0x7F:
        written.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*written, number])


class Values:
    """Makes values of a schema: their bytes, and what a pointer should find in them."""

    def __init__(self, random: Random, names: dict[str, Any]) -> None:
        self.random, self.names = random, names

    def any(self, schema: Any, levels: int) -> tuple[bytes, Any]:
        random = self.random
        if isinstance(schema, str) and schema not in LEAVES:
            schema = self.names[schema]
        if isinstance(schema, list):
            number = random.randrange(len(schema)) if levels > 0 else 0
            written, found = self.any(schema[number], levels - 1)
            return zigzag(number) + written, found
        kind = schema if isinstance(schema, str) else schema["type"]
        match kind:
            case "record":
                parts = [self.any(each["type"], levels - 1) for each in schema["fields"]]
                names = [each["name"] for each in schema["fields"]]
                found = dict(zip(names, (found for _, found in parts), strict=True))
                return b"".join(written for written, _ in parts), found
            case "array":
                return self._blocks(
                    [self.any(schema["items"], levels - 1) for _ in self._some(levels)]
                )
            case "map":
                keys = [random.choice(["", "a", "é", "0", "a/b"]) for _ in self._some(levels)]
                parts = [self.any(schema["values"], levels - 1) for _ in keys]
                entries = [
                    (zigzag(len(key.encode())) + key.encode() + written, None)
                    for key, (written, _) in zip(keys, parts, strict=True)
                ]
                found = dict(zip(keys, (found for _, found in parts), strict=True))
                return self._blocks(entries)[0], found
            case _:
                return self._leaf(kind, schema)

    def _some(self, levels: int) -> range:
        return range(self.random.choice([0, 1, 2, 5]) if levels > 0 else 0)

    def _blocks(self, parts: list[tuple[bytes, Any]]) -> tuple[bytes, Any]:
        written, left = b"", parts
        while left:
            size = self.random.randint(1, len(left))
            block, left = b"".join(each for each, _ in left[:size]), left[size:]
            is_sized = self.random.random() < 0.5
            head = zigzag(-size) + zigzag(len(block)) if is_sized else zigzag(size)
            written += head + block
        return written + b"\0", [found for _, found in parts]

    def _leaf(self, kind: str, schema: Any) -> tuple[bytes, Any]:
        random = self.random
        found: Any
        logical = schema.get("logicalType") if isinstance(schema, dict) else None
        match kind:
            case "null":
                return b"", None
            case "boolean":
                found = random.random() < 0.5
                return bytes([found]), found
            case "int" | "long":
                number = random.choice([0, -1, 63, 64, -65, random.randrange(-(2**31), 2**31)])
                return zigzag(number), str(number)
            case "float":
                (single,) = struct.unpack("<f", random.randbytes(4))
                found = single_text(single) if math.isfinite(single) else float
                return struct.pack("<f", single), found
            case "double":
                (double,) = struct.unpack("<d", random.randbytes(8))
                return struct.pack("<d", double), repr(double) if math.isfinite(double) else float
            case "enum":
                number = random.randrange(len(schema["symbols"]))
                return zigzag(number), schema["symbols"][number]
            case "string":
                text = "".join(random.choice("aé0") for _ in range(random.choice([0, 3, 80])))
                return zigzag(len(text.encode())) + text.encode(), text
        size = schema["size"] if kind == "fixed" else random.choice([0, 1, 8, 70])
        raw = random.randbytes(size)
        if logical == "uuid":
            found = str(uuid.UUID(bytes=raw))
        elif logical == "decimal":
            found = decimal_text(int.from_bytes(raw, signed=True), 2)
        else:
            found = base64.b64encode(raw).decode()
        return (raw if kind == "fixed" else zigzag(size) + raw), found


def all_within(found: Any, pointer: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], Any]]:
    """Every pointer into a value, some that name nothing, and what each should find."""
    below: list[tuple[str, Any]] = []
    if isinstance(found, dict):
        below = list(found.items())
    elif isinstance(found, list):
        below = [(str(index), each) for index, each in enumerate(found)]
    listed = [(pointer, found), ((*pointer, "none"), None), ((*pointer, "07"), None)]
    for token, each in below:
        listed += all_within(each, (*pointer, token))
    return listed


def plain(found: object) -> object:
    """What is found, of which a container shows its kind alone, as does a number without text."""
    for kind in (dict, list, float):
        if isinstance(found, kind):
            return kind
    return found


@given(st.randoms(use_true_random=False))
def test_each_pointer_finds_what_an_obvious_reader_would(random: Random) -> None:
    schemas = Schemas(random)
    schema = {"type": "record", "name": "R", "fields": [{"name": "r", "type": schemas.any(4)}]}
    text = json.dumps(schema)
    decoder = AvroDecoder(text)
    for _ in range(3):
        body, found = Values(random, schemas.names).any(schema, 6)
        wanted = all_within(found)
        random.shuffle(wanted)
        document = decoder.document(body)
        for pointer, expected in wanted[:30]:
            found = decoder.member(document, pointer)
            assert plain(found) == plain(expected), (text, pointer)


def cause_of(decoder: AvroDecoder, body: bytes, pointer: tuple[str, ...] | None = None) -> str:
    """Why a decoder cannot read a body; empty if it can."""
    try:
        document = decoder.document(body)
        if pointer is not None:
            decoder.member(document, pointer)
    except UndecodableError as error:
        return str(error)
    return ""


@given(st.randoms(use_true_random=False))
def test_whether_a_payload_can_be_read_does_not_depend_on_the_pointers(random: Random) -> None:
    schemas = Schemas(random)
    schema = {"type": "record", "name": "R", "fields": [{"name": "r", "type": schemas.any(4)}]}
    body, found = Values(random, schemas.names).any(schema, 6)
    bodies = [body, body[:-1], body + b"\0", *(changed(random, body) for _ in range(5))]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(avro, "DEPTH_MAX", random.randrange(6))
        patch.setattr(avro, "CONTAINERS_MIN", random.randrange(10))
        patch.setattr(avro, "CONTAINERS_PER_BYTE", random.randrange(3))
        plain, asked = AvroDecoder(json.dumps(schema)), AvroDecoder(json.dumps(schema))
        for pointer, _ in all_within(found)[:30]:
            cause_of(asked, body, pointer)
        for each in bodies:
            assert cause_of(asked, each) == cause_of(plain, each)


@given(st.randoms(use_true_random=False))
def test_any_bytes_and_any_text_have_a_value_or_a_cause(random: Random) -> None:
    schemas = Schemas(random)
    schema = {"type": "record", "name": "R", "fields": [{"name": "r", "type": schemas.any(4)}]}
    decoder, text = AvroDecoder(json.dumps(schema)), json.dumps(schema).encode()
    body, found = Values(random, schemas.names).any(schema, 6)
    for _ in range(10):
        other = changed(random, body)
        for pointer, _ in all_within(found)[:10]:
            cause_of(decoder, other, pointer)
        with suppress(SchemaUnusableError):
            cause_of(AvroDecoder(changed(random, text).decode(errors="replace")), body, ("r",))


def changed(random: Random, data: bytes) -> bytes:
    """Data of which one byte is another, is missing, or comes twice."""
    at = random.randrange(len(data) + 1)
    between = random.choice([b"", random.randbytes(1), b"\xff\xff\xff\xff\x0f", data[at : at + 1]])
    return data[:at] + between + data[at + random.randrange(2) :]
