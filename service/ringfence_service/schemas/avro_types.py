"""Avro types: what the text of a schema says about the data.

Each type has the *step* that passes over a value of it, and each type without parts also has a
function that reads one. Types are made once for a schema, in time and memory in proportion to its
text, although a schema may use a type by its name any number of times.
"""

import json
import struct
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ringfence_service.schemas.errors import UndecodableError
from ringfence_service.schemas.json_text import is_too_deep
from ringfence_service.schemas.limits import DECIMAL_BYTES_MAX, DEPTH_MAX, NAME_CHARS_MAX
from ringfence_service.schemas.number_text import decimal_text

Reader = Callable[[bytes, int], object]
"""Reads the value at a position of data that was found to be complete."""
Step = tuple[int, Any]
"""A code and what it needs; see the codes."""

SIZED: Final = 0
"""A value whose number of bytes is that of its type; with the number."""
NUMBER: Final = 1
"""A number of as many bytes as it needs; with nothing."""
LENGTH: Final = 2
"""Bytes after their number; with nothing."""
RECORD: Final = 3
"""A record; with its name or None, its steps, and 1 if it counts as a container."""
ARRAY: Final = 4
"""An array; with its name or None, the step of an item, and index and step of those that differ."""
MAP: Final = 5
"""A map; with its name or None, and the step of an entry."""
UNION: Final = 6
"""One of several; with their steps. This and the codes below lead to another step."""
ENTRY: Final = 7
"""The key of an entry; with the steps that follow some keys, and the one that follows others."""
PLACE: Final = 8
"""A value to be remembered; with its name, its reader and its step."""

SHORT: Final = "it ends too early"
_SIZE_MAX: Final = 2**31
"""More bytes than a record of Kafka can have. A larger size means the same."""
_DOUBLE: Final = struct.Struct("<d")
_SINGLE: Final = struct.Struct("<f")
_LONG_BYTES_MAX: Final = 10
"""Bytes of the longest number of Avro: 64 bits, with seven in each byte."""
_LONG_OR_NEGATIVE: Final = 0x81
"""Bits of the first byte of a number that has more bytes, or is below 0."""
_UUID_BYTES: Final = 16
"""Size of a fixed type that may be a UUID, which has 128 bits."""
_SCALE_MAX: Final = 1000
"""Largest scale of a decimal: its text has as many digits, however short the payload is.

A decimal with a larger one is read as bytes.
"""


@dataclass(slots=True, eq=False)
class LeafType:
    """A type without parts."""

    skip: Step
    read: Reader


@dataclass(slots=True, eq=False)
class UnionType:
    """One of several types."""

    branches: "Sequence[Type]"
    skip: Step


@dataclass(slots=True, eq=False)
class RecordType:
    """A record, whose fields may have its own type."""

    fields: "list[tuple[str, Type]]"
    skip: Step


@dataclass(slots=True, eq=False)
class ArrayType:
    """An array."""

    items: "Type"
    skip: Step


@dataclass(slots=True, eq=False)
class MapType:
    """A map, whose keys are strings."""

    values: "Type"
    skip: Step


Type = LeafType | UnionType | RecordType | ArrayType | MapType


def types_of(texts: Sequence[str]) -> tuple[Type, bool]:
    """Return the type of the last text, which may name types of those before it.

    The second value is whether it is `bytes`: serializers write the value of such a schema alone,
    without its length. ValueError, TypeError or another error of Python if one is not a schema.
    """
    names: dict[str, Type] = {}
    for text in texts:
        if is_too_deep(text.encode()):
            raise ValueError(f"it is nested deeper than {DEPTH_MAX} levels")
        schema = json.loads(text)
        made = _Compiler(names).type_of(schema, "")
    kind = schema.get("type") if isinstance(schema, dict) else schema
    return made, kind == "bytes"


def joined(steps: Sequence[Step]) -> list[Step]:
    """Return the steps of values that follow each other, those of known size in one."""
    found: list[Step] = []
    for step in steps:
        if step[0] != SIZED:
            found.append(step)
        elif found and found[-1][0] == SIZED:
            found[-1] = sized(found[-1][1] + step[1])
        elif step[1]:
            found.append(step)
    return found


def sized(size: int) -> Step:
    """Return the step over a number of bytes."""
    return SIZED, min(size, _SIZE_MAX)


def long_at(data: bytes, at: int) -> tuple[int, int]:
    """Return a number and the position after it; IndexError if the data ends within it."""
    byte = data[at]
    at += 1
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), at
    number, shift = byte & 0x7F, 7
    while byte & 0x80:
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        shift += 7
        if shift > 7 * _LONG_BYTES_MAX:
            raise UndecodableError("a number in it has too many bytes")
    return (number >> 1) ^ -(number & 1), at


def bytes_at(data: bytes, at: int) -> tuple[bytes, int]:
    """Return bytes after their number, and the position after them."""
    length = data[at]
    if length & _LONG_OR_NEGATIVE:
        length, at = long_at(data, at)
        at -= 1
    else:
        length >>= 1  # of one byte, as nearly all are
    end = at + 1 + length
    if length < 0 or end > len(data):
        raise UndecodableError(SHORT)
    return data[at + 1 : end], end


class Single(float):
    """A number of single precision, whose text is shorter than that of the same double."""


def _null(_data: bytes, _at: int) -> object:
    return None


def _boolean(data: bytes, at: int) -> object:
    if data[at] > 1:
        raise UndecodableError("a boolean in it is neither 0 nor 1")
    return data[at] == 1


def _long(data: bytes, at: int) -> object:
    return long_at(data, at)[0]


def _single(data: bytes, at: int) -> object:
    return Single(_SINGLE.unpack_from(data, at)[0])


def _double(data: bytes, at: int) -> object:
    return _DOUBLE.unpack_from(data, at)[0]


def _bytes(data: bytes, at: int) -> bytes:
    return bytes_at(data, at)[0]


def _string(data: bytes, at: int) -> object:
    try:
        return _bytes(data, at).decode()
    except UnicodeDecodeError:
        raise UndecodableError("text in it is not UTF-8") from None


_PRIMITIVES: Final[Mapping[str, LeafType]] = {
    "null": LeafType((SIZED, 0), _null),
    "boolean": LeafType((SIZED, 1), _boolean),
    "int": LeafType((NUMBER, None), _long),
    "long": LeafType((NUMBER, None), _long),
    "float": LeafType((SIZED, _SINGLE.size), _single),
    "double": LeafType((SIZED, _DOUBLE.size), _double),
    "bytes": LeafType((LENGTH, None), _bytes),
    "string": LeafType((LENGTH, None), _string),
}


def _number(value: bytes, scale: int) -> str:
    if len(value) > DECIMAL_BYTES_MAX:
        raise UndecodableError(f"a decimal in it has more than {DECIMAL_BYTES_MAX} bytes")
    return decimal_text(int.from_bytes(value, signed=True), scale)


def _scale_of(schema: Mapping[str, Any]) -> int | None:
    """Return the scale of a decimal; None for other types, and for one that Avro says to ignore."""
    scale, precision = schema.get("scale", 0), schema.get("precision")
    is_decimal = schema.get("logicalType") == "decimal" and isinstance(precision, int)
    return scale if is_decimal and isinstance(scale, int) and 0 <= scale <= _SCALE_MAX else None


class _Compiler:
    """Makes types; adds those with a name to `names`, and finds them there."""

    def __init__(self, names: dict[str, Type]) -> None:
        self._names = names

    def type_of(self, schema: object, space: str) -> Type:
        """Return a type in a namespace; ValueError and others if it is not a type.

        It takes at most one frame of Python for each level of the text.
        """
        if isinstance(schema, str):
            return self._named(schema, space)
        if isinstance(schema, list):
            branches: list[Type] = []
            for each in schema:  # a comprehension would take another frame
                branches.append(self.type_of(each, space))  # noqa: PERF401
            return UnionType(branches, (UNION, tuple(each.skip for each in branches)))
        if not isinstance(schema, dict):
            raise TypeError("a type is neither a name, a list nor an object")
        match schema["type"]:
            case "record" | "error":
                return self._record(schema, space)
            case "array":
                items = self.type_of(schema["items"], space)
                return ArrayType(items, (ARRAY, (None, items.skip, ())))
            case "map":
                values = self.type_of(schema["values"], space)
                return MapType(values, (MAP, (None, (ENTRY, ({}, values.skip)))))
            case kind:
                return self._leaf(kind, schema, space) or self.type_of(kind, space)

    def _leaf(self, kind: object, schema: Mapping[str, Any], space: str) -> LeafType | None:
        match kind:
            case "enum":
                return self._defined(schema, space, _enum(schema["symbols"]))
            case "fixed":
                return self._defined(schema, space, _fixed(schema))
            case "bytes" if (scale := _scale_of(schema)) is not None:
                return _decimal(scale)
            case _:
                return None

    def _named(self, name: str, space: str) -> Type:
        if name in _PRIMITIVES:
            return _PRIMITIVES[name]
        full = _checked(name if "." in name or not space else f"{space}.{name}")
        known = self._names.get(full) or self._names.get(name)
        if known is None:
            raise ValueError(f"it does not define {name}")
        return known

    def _defined(self, schema: Mapping[str, Any], space: str, made: LeafType) -> LeafType:
        self._names[_full_name(schema, space)] = made
        return made

    def _record(self, schema: Mapping[str, Any], space: str) -> RecordType:
        name = _full_name(schema, space)
        steps: list[Step] = []
        made = RecordType([], (RECORD, (None, steps, 1)))
        self._names[name] = made  # first, since its fields may name it
        inner = name.rpartition(".")[0]
        for each in schema["fields"]:
            made.fields.append((str(each["name"]), self.type_of(each["type"], inner)))
        steps += joined([kind.skip for _, kind in made.fields])
        if not steps:
            made.skip = sized(0)
        elif len(steps) == 1 and steps[0][0] == SIZED:
            made.skip = steps[0]
        return made


def _full_name(schema: Mapping[str, Any], space: str) -> str:
    name: str = schema["name"]
    if "." in name:
        return _checked(name)
    within = schema.get("namespace", space)
    return _checked(f"{within}.{name}" if within else name)


def _checked(name: str) -> str:
    if len(name) > NAME_CHARS_MAX:
        raise ValueError(f"the name of a type has more than {NAME_CHARS_MAX} characters")
    return name


def _enum(symbols: Sequence[str]) -> LeafType:
    count = len(symbols)

    def read(data: bytes, at: int) -> object:
        number, _ = long_at(data, at)
        if not 0 <= number < count:
            raise UndecodableError("an enum in it has a symbol that its schema lacks")
        return symbols[number]

    return LeafType((NUMBER, None), read)


def _fixed(schema: Mapping[str, Any]) -> LeafType:
    size: Any = schema["size"]
    scale = _scale_of(schema)
    if not isinstance(size, int) or size < 0:
        raise ValueError("the size of a fixed type is no number")
    is_uuid = schema.get("logicalType") == "uuid" and size == _UUID_BYTES

    def read(data: bytes, at: int) -> object:
        value = data[at : at + size]
        if is_uuid:
            return str(uuid.UUID(bytes=value))
        return value if scale is None else _number(value, scale)

    return LeafType(sized(size), read)


def _decimal(scale: int) -> LeafType:
    return LeafType((LENGTH, None), lambda data, at: _number(_bytes(data, at), scale))
