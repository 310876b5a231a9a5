"""Protobuf sources: makes a file descriptor from the text of a .proto file.

The text may also be a descriptor in Base64. The result has only what decoding needs: options,
services and extensions are left out. The descriptor pool resolves the names of types.
"""

import base64
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from ringfence_service.schemas.errors import SchemaUnusableError

_CAUSE_CHARS_MAX: Final = 200
"""How much of an error's text is kept: it may quote a schema of a million characters."""
_LABELS: Final[Mapping[str, int]] = {"OPTIONAL": 1, "REQUIRED": 2, "REPEATED": 3}
_BASE64: Final = re.compile(r"[A-Za-z0-9+/\s]+={0,2}\s*")
_GROUP: Final = 10
_MESSAGE: Final = 11
_SCALARS: Final[Mapping[str, int]] = {
    "double": 1,
    "float": 2,
    "int64": 3,
    "uint64": 4,
    "int32": 5,
    "fixed64": 6,
    "fixed32": 7,
    "bool": 8,
    "string": 9,
    "bytes": 12,
    "uint32": 13,
    "sfixed32": 15,
    "sfixed64": 16,
    "sint32": 17,
    "sint64": 18,
}
"""Numbers of `FieldDescriptorProto.Type`. The pool finds the number of a named type."""


def file_of(text: str, name: str) -> Any:
    """Return the descriptor of a file; SchemaUnusableError if the text is not a .proto file.

    Some producers register the descriptor in Base64, and some registries return it as such.
    """
    if _BASE64.fullmatch(text):
        return _unpacked(text, name)
    from proto_schema_parser.parser import Parser

    strict = _strict()
    try:
        source = Parser(setup_lexer=strict, setup_parser=strict).parse(text)
        if source.edition is None:
            return _described(source, name)
    except Exception as error:  # noqa: BLE001 - the parser has no error of its own
        cause = f"{type(error).__name__}: {error}"[:_CAUSE_CHARS_MAX]
        raise SchemaUnusableError(f"it is not a .proto file ({cause})") from None
    raise SchemaUnusableError("it is written in an edition of Protobuf, not proto2 or proto3")


def _described(source: Any, name: str) -> Any:
    """Return the descriptor of a syntax tree; ValueError for a number beyond 32 bits."""
    from google.protobuf.descriptor_pb2 import FileDescriptorProto
    from proto_schema_parser import ast

    file = FileDescriptorProto(name=name, syntax=source.syntax or "proto2")
    maker = _Maker(ast, file.syntax)
    for each in source.file_elements:
        match each:
            case ast.Package():
                file.package = each.name
            case ast.Import():
                file.dependency.append(each.name)
            case ast.Message():
                maker.fill(file.message_type.add(), each)
            case ast.Enum():
                maker.fill_enum(file.enum_type.add(), each)
    return file


def _unpacked(text: str, name: str) -> Any:
    from google.protobuf.descriptor_pb2 import FileDescriptorProto
    from google.protobuf.message import DecodeError

    try:
        file = FileDescriptorProto.FromString(base64.b64decode(text))
    except (DecodeError, ValueError):
        raise SchemaUnusableError("it is neither a .proto file nor a descriptor of one") from None
    file.name = name
    for part in (file.service, file.extension, file.public_dependency, file.weak_dependency):
        del part[:]
    return file


def _strict() -> Callable[[Any], None]:
    """Return a function that has a lexer or parser raise; without it they print and go on."""
    from antlr4.error.ErrorListener import ErrorListener

    class Raising(ErrorListener):  # type: ignore[misc]  # it has no types
        def syntaxError(  # noqa: N802 - its name
            self,
            _recognizer: object,
            _symbol: object,
            line: int,
            column: int,
            message: str,
            _error: object,
        ) -> None:
            raise SyntaxError(f"line {line}, column {column}: {message}")

    def set_up(recognizer: Any) -> None:
        recognizer.removeErrorListeners()
        recognizer.addErrorListener(Raising())

    return set_up


class _Maker:
    """Fills descriptors of messages and enums from the syntax tree of one file."""

    def __init__(self, ast: Any, syntax: str) -> None:
        self._ast, self._syntax = ast, syntax

    def fill(self, message: Any, source: Any) -> None:
        """Fill a message."""
        ast = self._ast
        message.name = source.name
        for each in source.elements:
            match each:
                case ast.Field():
                    self._fill_field(message.field.add(), each)
                case ast.MapField():
                    self._fill_map(message, each)
                case ast.OneOf():
                    self._fill_choice(message, each)
                case ast.Group():
                    self._fill_group(message, each)
                case ast.Message():
                    self.fill(message.nested_type.add(), each)
                case ast.Enum():
                    self.fill_enum(message.enum_type.add(), each)
        if self._syntax == "proto3":
            self._fill_presences(message, source)

    def _fill_presences(self, message: Any, source: Any) -> None:
        """Put each `optional` field into a choice of its own, after those of the file."""
        fields = _of(self._ast.Field, source.elements)
        optional = {each.name for each in fields if each.cardinality == "OPTIONAL"}
        for field in message.field:
            if field.name in optional:
                field.proto3_optional = True
                field.oneof_index = len(message.oneof_decl)
                message.oneof_decl.add().name = f"_{field.name}"

    def _fill_choice(self, message: Any, source: Any) -> None:
        number = len(message.oneof_decl)
        message.oneof_decl.add().name = source.name
        for each in _of(self._ast.Field, source.elements):
            self._fill_field(message.field.add(), each)
            message.field[-1].oneof_index = number

    def fill_enum(self, enum: Any, source: Any) -> None:
        """Fill an enum."""
        enum.name = source.name
        for each in _of(self._ast.EnumValue, source.elements):
            enum.value.add(name=each.name, number=_number(each.number))
        numbers = [each.number for each in enum.value]
        if len(set(numbers)) < len(numbers):
            enum.options.allow_alias = True

    def _fill_field(self, field: Any, source: Any) -> None:
        label = _LABELS[_label(source)]
        field.name, field.number, field.label = source.name, _number(source.number), label
        self._fill_type(field, source.type)

    def _fill_type(self, field: Any, name: str) -> None:
        scalar = _SCALARS.get(name)
        if scalar is None:
            field.type_name = name
        else:
            field.type = scalar

    def _fill_map(self, message: Any, source: Any) -> None:
        """Add what a map stands for: a repeated message of a key and a value."""
        entry = message.nested_type.add()
        entry.name = f"{_camel(source.name)}Entry"
        entry.options.map_entry = True
        for number, (name, kind) in enumerate(
            (("key", source.key_type), ("value", source.value_type)), 1
        ):
            field = entry.field.add(name=name, number=number, label=1)
            self._fill_type(field, kind)
        field = message.field.add()
        field.name, field.number, field.label = source.name, _number(source.number), 3
        field.type, field.type_name = _MESSAGE, entry.name

    def _fill_group(self, message: Any, source: Any) -> None:
        self.fill(message.nested_type.add(), source)
        field = message.field.add()
        field.name, field.number = source.name.lower(), _number(source.number)
        field.label, field.type = _LABELS[_label(source)], _GROUP
        field.type_name = source.name


def _label(source: Any) -> str:
    return "OPTIONAL" if source.cardinality is None else str(source.cardinality.value)


def _of(kind: Any, elements: Iterable[Any]) -> Iterator[Any]:
    return (each for each in elements if isinstance(each, kind))


def _number(value: Any) -> int:
    return value if isinstance(value, int) else int(str(value), 0)


def _camel(name: str) -> str:
    return re.sub(r"(?:^|_)([a-z0-9]?)", lambda found: found[1].upper(), name)
