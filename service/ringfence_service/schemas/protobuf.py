"""Protobuf: reads messages by the .proto file in the registry.

A field is named as in the file. A field without presence that has its default, such as an empty
string, counts as not set: the payload is the same in both cases, and an unset id is not an id.

For each pointer the Protobuf library reads a message with a type that has only the fields on the
way to the member (`proto_part.py`), so everything else is skipped as an unknown field.
What always holds: a payload takes time and memory in proportion to its length, however many fields
its schema has, and a pointer finds the same in every process.
"""

import math
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any, Final, NamedTuple, cast

from ringfence_service.schemas.errors import SchemaUnusableError, UndecodableError
from ringfence_service.schemas.json_text import item_of
from ringfence_service.schemas.number_text import bytes_text, double_text, single_text
from ringfence_service.schemas.proto_part import WRAPPERS, Parts
from ringfence_service.schemas.proto_source import file_of

_CAUSE_CHARS_MAX: Final = 200
"""How much of an error's text is kept: it may quote a schema of a million characters."""
_OWN: Final = "schema.proto"
_FIRST: Final = (0,)
"""The indexes of the first type of a file, which nearly all payloads have."""
_KNOWN: Final = "google/protobuf/"
"""The Protobuf library contains the files below this path."""
# Numbers of `FieldDescriptorProto.Type`.
_DOUBLE: Final = 1
_FLOATS: Final = frozenset({_DOUBLE, 2})
_STRING: Final = 9
_MESSAGES: Final = frozenset({10, 11})
_AS_THEY_ARE: Final = _MESSAGES | {8, _STRING}
_BYTES: Final = 12
"""The number of the field type `bytes` in descriptor.proto, as the numbers beside it."""
_ENUM: Final = 14


class ProtobufDecoder:
    """Decodes the messages of one .proto file."""

    def __init__(self, text: str, references: Mapping[str, str]) -> None:
        """`references` has the texts of the imported files by path.

        SchemaUnusableError if a text is not a .proto file.
        """
        from google.protobuf import message
        from google.protobuf.descriptor_pool import DescriptorPool

        self._errors = (message.DecodeError, ValueError, RecursionError)
        self._pool = DescriptorPool()
        self._parts = Parts(self._pool)
        self._roots: dict[tuple[int, ...], _Root] = {}
        self._file = file_of(text, _OWN)
        try:
            self._add(self._file, references, {_OWN})
        except (TypeError, KeyError, ValueError, RecursionError) as error:
            cause = f"{type(error).__name__}: {error}"[:_CAUSE_CHARS_MAX]
            raise SchemaUnusableError(f"it is not a .proto file ({cause})") from None

    def _add(self, file: Any, references: Mapping[str, str], added: set[str]) -> None:
        """Add a file to the pool, after those that it imports."""
        found = []
        for path in file.dependency:
            if path not in added:
                imported = _imported(path, references)
                if imported is None:
                    continue  # of options only, or else the pool misses a type
                added.add(path)
                self._add(imported, references, added)
            found.append(path)
        del file.dependency[:]
        file.dependency.extend(found)
        self._pool.AddSerializedFile(file.SerializeToString())

    def document(self, body: bytes) -> object:
        """Return the type of a message and its bytes; UndecodableError if it names no type.

        The body begins with the indexes of the message type: their count and then each index, as
        zigzag numbers. A single 0 stands for the first type of the file.
        """
        try:
            indexes, at = _indexes(body)
        except IndexError:
            raise UndecodableError("it ends within the indexes of its message") from None
        return self._roots.get(indexes) or self._root(indexes), body[at:]

    def _root(self, indexes: tuple[int, ...]) -> "_Root":
        names, messages = [self._file.package] * bool(self._file.package), self._file.message_type
        for index in indexes:
            # Java counts messages alone; other clients also count what maps stand for.
            own = [each for each in messages if not each.options.map_entry]
            counted = own if index < len(own) else messages
            if not 0 <= index < len(counted) or counted[index].options.map_entry:
                raise UndecodableError("its indexes name no message of its schema")
            names.append(counted[index].name)
            messages = counted[index].nested_type
        found = _Root(self._pool.FindMessageTypeByName(".".join(names)), {})
        self._roots[indexes] = found
        return found

    def member(self, document: object, tokens: Sequence[str]) -> object:
        """Return what the tokens of a pointer name: text, a boolean, a container, or None.

        UndecodableError if the bytes are not a message, or are none on the way to the member.
        """
        root, body = cast("tuple[_Root, bytes]", document)
        pointer = tuple(tokens)
        make = root.classes.get(pointer)
        if make is None:
            make = root.classes[pointer] = self._parts.class_of(root.message, pointer)
        try:
            found: object = make.FromString(body)
        except self._errors:
            raise UndecodableError("its bytes are not a message of its schema") from None
        for token in tokens:
            if isinstance(found, _Items):
                found = found.item(token)
            elif hasattr(found, "DESCRIPTOR"):
                found = _field(found, token)
            else:
                return None
        if found is None or isinstance(found, str | bool):
            return found
        if isinstance(found, _Items):
            return {} if found.is_map else []
        return {} if hasattr(found, "DESCRIPTOR") else found


class _Root(NamedTuple):
    """A message type that payloads name, and the classes that read it by pointers."""

    message: Any
    classes: dict[tuple[str, ...], Any]


class _Items:
    """The values of a repeated field or of a map."""

    def __init__(self, values: Any, field: Any, key: Any = None) -> None:
        self._values, self._field, self._key = values, field, key

    @property
    def is_map(self) -> bool:
        return self._key is not None

    def item(self, token: str) -> object:
        """Return the value at an index, or of a key written as in JSON; None if there is none."""
        if self._key is None:
            found = item_of(self._values, token)
            return None if found is None else _value(found, self._field)
        if self._key.type == _STRING:
            # `get` is left alone: of a map of messages it may make one.
            return _value(self._values[token], self._field) if token in self._values else None
        for key in self._values:
            name = _value(key, self._key)
            if (str(name).lower() if isinstance(name, bool) else name) == token:
                return _value(self._values[key], self._field)
        return None


def _field(message: Any, name: str) -> object:
    """Return a field of a message; None if the message has no such field or it is not set."""
    field = message.DESCRIPTOR.fields_by_name.get(name)
    if field is None:
        return None
    value = getattr(message, name)
    if field.is_repeated:
        kind = field.message_type
        if kind is not None and kind.GetOptions().map_entry:
            return _Items(value, kind.fields_by_name["value"], kind.fields_by_name["key"])
        return _Items(value, field)
    is_set = message.HasField(name) if field.has_presence else value != field.default_value
    return _value(value, field) if is_set else None


def _value(value: Any, field: Any) -> object:
    """Return a single value: text, a boolean, a message, or a number that is not finite."""
    kind = field.type
    if kind in _MESSAGES and field.message_type.full_name in WRAPPERS:
        return _value(value.value, field.message_type.fields_by_name["value"])
    if kind in _AS_THEY_ARE or (kind in _FLOATS and not math.isfinite(value)):
        found: object = value
    elif kind == _BYTES:
        found = bytes_text(value)
    elif kind == _ENUM:
        named = field.enum_type.values_by_number.get(value)
        found = str(value) if named is None else named.name
    elif kind in _FLOATS:
        found = double_text(value) if kind == _DOUBLE else single_text(value)
    else:
        found = str(value)
    return found


def _imported(path: str, references: Mapping[str, str]) -> Any:
    """Return the descriptor of an imported file; None if neither source has the file."""
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

    if path in references:
        return file_of(references[path], path)
    if not path.startswith(_KNOWN):
        return None
    name = path.removeprefix(_KNOWN).removesuffix(".proto")
    try:
        module = import_module(f"google.protobuf.{name}_pb2")
    except ImportError:
        return None
    return FileDescriptorProto.FromString(module.DESCRIPTOR.serialized_pb)


def _indexes(body: bytes) -> tuple[tuple[int, ...], int]:
    """Return the indexes at the beginning of a body, and the position after them."""
    if body[0] == 0:
        return _FIRST, 1
    count, at = _zigzag(body, 0)
    if count == 0:
        return _FIRST, at
    if not 0 < count <= len(body):
        raise UndecodableError("its indexes have an impossible count")
    found = []
    for _ in range(count):
        index, at = _zigzag(body, at)
        found.append(index)
    return tuple(found), at


def _zigzag(body: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = body[at]
        at += 1
        number |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), at
        if shift > 63:
            raise UndecodableError("its indexes have too many bytes")
