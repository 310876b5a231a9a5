"""Avro: reads binary data by the schema with which it was written.

For each type of a schema there is a function that reads a value at a position. Hostile data costs
time and memory in proportion to its length, and never ends the process: Python bounds the depth.
Only the requested member becomes text.
"""

import json
import math
import struct
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from service.schemas.errors import SchemaUnusableError, UndecodableError
from service.schemas.json_text import member_of
from service.schemas.number_text import bytes_text, decimal_text, double_text, single_text

Reader = Callable[[bytes, int], tuple[object, int]]
"""Reads a value of the data at a position; returns it with the position after it."""

_SHORT: Final = "it ends too early"
_DOUBLE: Final = struct.Struct("<d")
_SINGLE: Final = struct.Struct("<f")
_LONG_BYTES_MAX: Final = 10
_LONG_OR_NEGATIVE: Final = 0x81
"""Bits of the first byte of a number that has more bytes, or is below 0."""
_UUID_BYTES: Final = 16
_SCALE_MAX: Final = 1000


class AvroDecoder:
    """Decodes the data of one schema."""

    def __init__(self, text: str, references: Sequence[str] = ()) -> None:
        """`references` are the texts of the schemas that this one names, each before its users.

        SchemaUnusableError if a text is not an Avro schema.
        """
        names: dict[str, Reader] = {}
        try:
            for each in references:
                _Compiler(names).reader(json.loads(each), "")
            schema = json.loads(text)
            self._read = _Compiler(names).reader(schema, "")
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
            cause = f"it is not an Avro schema ({type(error).__name__}: {error})"
            raise SchemaUnusableError(cause) from None
        kind = schema.get("type") if isinstance(schema, dict) else schema
        self._is_bytes = kind == "bytes"
        """Serializers write the value of such a schema alone, without its length."""

    def document(self, body: bytes) -> object:
        """Return the value in Python's types; UndecodableError if the body is not one."""
        if self._is_bytes:
            return body
        try:
            value, end = self._read(body, 0)
        except (IndexError, struct.error):
            raise UndecodableError(_SHORT) from None
        except UnicodeDecodeError:
            raise UndecodableError("text in it is not UTF-8") from None
        except RecursionError:
            raise UndecodableError("it is nested too deeply") from None
        if end != len(body):
            raise UndecodableError("more bytes follow than its schema describes")
        return value

    def member(self, document: object, tokens: Sequence[str]) -> object:
        """Return what the tokens of a JSON pointer name, as `Decoder.member` describes it."""
        return _text(member_of(document, tokens))


def _text(found: object) -> object:
    """Return bytes and finite numbers as text, and any other value as it is."""
    match found:
        case bool():
            return found
        case int():
            return str(found)
        case float() if math.isfinite(found):
            return single_text(found) if isinstance(found, _Single) else double_text(found)
        case float():
            return float(found)
        case bytes():
            return bytes_text(found)
        case _:
            return found


def _long(data: bytes, at: int) -> tuple[int, int]:
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


def _null(_data: bytes, at: int) -> tuple[object, int]:
    return None, at


def _boolean(data: bytes, at: int) -> tuple[object, int]:
    if data[at] > 1:
        raise UndecodableError("a boolean in it is neither 0 nor 1")
    return data[at] == 1, at + 1


class _Single(float):
    """A number of single precision, whose text is shorter than that of the same double."""


def _single(data: bytes, at: int) -> tuple[object, int]:
    (number,) = _SINGLE.unpack_from(data, at)
    return _Single(number), at + 4


def _double(data: bytes, at: int) -> tuple[object, int]:
    (number,) = _DOUBLE.unpack_from(data, at)
    return number, at + 8


def _bytes(data: bytes, at: int) -> tuple[bytes, int]:
    length = data[at]
    if length & _LONG_OR_NEGATIVE:
        length, at = _long(data, at)
        at -= 1
    else:
        length >>= 1  # of one byte, as nearly all are
    end = at + 1 + length
    if length < 0 or end > len(data):
        raise UndecodableError(_SHORT)
    return data[at + 1 : end], end


def _string(data: bytes, at: int) -> tuple[str, int]:
    text, at = _bytes(data, at)
    return text.decode(), at


_PRIMITIVES: Final[Mapping[str, Reader]] = {
    "null": _null,
    "boolean": _boolean,
    "int": _long,
    "long": _long,
    "float": _single,
    "double": _double,
    "bytes": _bytes,
    "string": _string,
}


def _number(value: bytes, scale: int) -> str:
    return decimal_text(int.from_bytes(value, signed=True), scale)


def _scale_of(schema: Mapping[str, Any]) -> int | None:
    """Return the scale of a decimal; None for other types, and for one that Avro says to ignore."""
    scale, precision = schema.get("scale", 0), schema.get("precision")
    is_decimal = schema.get("logicalType") == "decimal" and isinstance(precision, int)
    return scale if is_decimal and isinstance(scale, int) and 0 <= scale <= _SCALE_MAX else None


class _Compiler:
    """Makes the readers of types; adds those of named types to `names`, and finds them there."""

    def __init__(self, names: dict[str, Reader]) -> None:
        self._names = names

    def reader(self, schema: object, space: str) -> Reader:
        """Return the reader of a type in a namespace; ValueError and others if it is not a type."""
        if isinstance(schema, str):
            return self._named(schema, space)
        if isinstance(schema, list):
            return _union([self.reader(each, space) for each in schema])
        if not isinstance(schema, dict):
            raise TypeError("a type is neither a name, a list nor an object")
        return self._complex(schema, space)

    def _complex(self, schema: Mapping[str, Any], space: str) -> Reader:
        kind = schema["type"]
        match kind:
            case "record" | "error":
                made = self._record(schema, space)
            case "enum":
                made = self._defined(schema, space, _enum(schema["symbols"]))
            case "fixed":
                made = self._defined(schema, space, _fixed(schema))
            case "array":
                made = _array(self.reader(schema["items"], space))
            case "map":
                made = _map(self.reader(schema["values"], space))
            case "bytes" if (scale := _scale_of(schema)) is not None:
                made = _decimal(scale)
            case _:
                made = self.reader(kind, space)
        return made

    def _named(self, name: str, space: str) -> Reader:
        if name in _PRIMITIVES:
            return _PRIMITIVES[name]
        full = name if "." in name or not space else f"{space}.{name}"
        known = self._names.get(full) or self._names.get(name)
        if known is None:
            raise ValueError(f"it does not define {name}")
        return known

    def _defined(self, schema: Mapping[str, Any], space: str, reader: Reader) -> Reader:
        self._names[_full_name(schema, space)] = reader
        return reader

    def _record(self, schema: Mapping[str, Any], space: str) -> Reader:
        name = _full_name(schema, space)
        fields: list[tuple[str, Reader]] = []

        def read(data: bytes, at: int) -> tuple[object, int]:
            record: dict[str, object] = {}
            for field, reader in fields:
                record[field], at = reader(data, at)
            return record, at

        self._names[name] = read  # first, since its fields may name it
        inner = name.rpartition(".")[0]
        fields += [(each["name"], self.reader(each["type"], inner)) for each in schema["fields"]]
        return read


def _full_name(schema: Mapping[str, Any], space: str) -> str:
    name: str = schema["name"]
    if "." in name:
        return name
    within = schema.get("namespace", space)
    return f"{within}.{name}" if within else name


def _union(branches: Sequence[Reader]) -> Reader:
    def read(data: bytes, at: int) -> tuple[object, int]:
        number, at = _long(data, at)
        if not 0 <= number < len(branches):
            raise UndecodableError("a union in it names a type that it does not have")
        return branches[number](data, at)

    return read


def _enum(symbols: Sequence[str]) -> Reader:
    def read(data: bytes, at: int) -> tuple[object, int]:
        number, at = _long(data, at)
        if not 0 <= number < len(symbols):
            raise UndecodableError("an enum in it has a symbol that its schema lacks")
        return symbols[number], at

    return read


def _fixed(schema: Mapping[str, Any]) -> Reader:
    size: Any = schema["size"]
    scale = _scale_of(schema)
    if not isinstance(size, int) or size < 0:
        raise ValueError("the size of a fixed type is no number")
    is_uuid = schema.get("logicalType") == "uuid" and size == _UUID_BYTES

    def read(data: bytes, at: int) -> tuple[object, int]:
        end = at + size
        if end > len(data):
            raise UndecodableError(_SHORT)
        value = data[at:end]
        if is_uuid:
            return str(uuid.UUID(bytes=value)), end
        return value if scale is None else _number(value, scale), end

    return read


def _decimal(scale: int) -> Reader:
    def read(data: bytes, at: int) -> tuple[object, int]:
        value, at = _bytes(data, at)
        return _number(value, scale), at

    return read


def _count(data: bytes, at: int) -> tuple[int, int]:
    """Return how many items a block has, 0 for the last one, and the position of the first."""
    count, at = _long(data, at)
    if count < 0:
        _, at = _long(data, at)  # its size in bytes
    return abs(count), at


def _array(reader: Reader) -> Reader:
    def read(data: bytes, at: int) -> tuple[object, int]:
        items: list[object] = []
        count, at = _count(data, at)
        while count:
            for _ in range(count):
                before = at
                value, at = reader(data, at)
                items.append(value)
                if at == before:
                    break  # items without bytes are all alike; their number may be anything
            count, at = _count(data, at)
        return items, at

    return read


def _map(reader: Reader) -> Reader:
    def read(data: bytes, at: int) -> tuple[object, int]:
        members: dict[str, object] = {}
        count, at = _count(data, at)
        while count:
            for _ in range(count):
                key, at = _string(data, at)
                members[key], at = reader(data, at)
            count, at = _count(data, at)
        return members, at

    return read
