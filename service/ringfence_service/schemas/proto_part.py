"""Parts of Protobuf messages: message types with only the fields on the way to one member.

The Protobuf library allocates memory for all fields of each message that it reads, and a message
of two bytes may have a type of thousands of fields. A part of a type has the field that a pointer
names, and the others of its `oneof`, since the last of them in a message removes the rest. All
other fields of a message are unknown to the part, and are skipped.
What always holds: a member of a part is that of the whole message. A part is made once for a type
and a pointer, in time and memory in proportion to the type.
"""

from typing import Any, Final

WRAPPERS: Final = frozenset(
    f"google.protobuf.{kind}Value"
    for kind in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)
"""Messages that are read as the value in them. It is their only field."""
_PACKAGE: Final = "ringfence_parts"


class Parts:
    """The parts of the message types of a descriptor pool, to which they are added."""

    def __init__(self, pool: Any) -> None:
        from google.protobuf import message_factory

        self._pool = pool
        self._class_of = message_factory.GetMessageClass
        self._names: dict[tuple[str, tuple[str, ...]], str] = {}
        """Full name of a part, which is also that of its file, by type and tokens."""
        self._files: dict[str, Any] = {}
        """What the parts of a file's types have of that file, by its name."""

    def class_of(self, message: Any, tokens: tuple[str, ...]) -> Any:
        """Return a new class that reads what the tokens of a pointer name in a message type."""
        return self._class_of(self._pool.FindMessageTypeByName(self._part(message, tokens)))

    def _part(self, message: Any, tokens: tuple[str, ...]) -> str:
        """Return the full name of a part of a message type."""
        named = message.fields_by_name.get(tokens[0]) if tokens else None
        key = ("", ()) if named is None else (message.full_name, tokens)
        found = self._names.get(key)
        if found is None:
            file = self._made(message, named, tokens[1:])
            found = file.name = f"{_PACKAGE}.Part{len(self._names)}"
            file.message_type[0].name = found.rpartition(".")[2]
            self._pool.AddSerializedFile(file.SerializeToString())
            self._names[key] = found
        return found

    def _made(self, message: Any, named: Any, rest: tuple[str, ...]) -> Any:
        """Return a file of a part with the field that is named and what `rest` names below it."""
        from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto

        file = FileDescriptorProto(package=_PACKAGE)
        part = file.message_type.add()
        if named is None:
            return file
        source = DescriptorProto()
        message.CopyToProto(source)
        file.MergeFrom(self._of_file(message.file))
        _inherit(part.options, message)
        choice = named.containing_oneof
        if choice is not None:
            part.oneof_decl.add().CopyFrom(source.oneof_decl[choice.index])
        for each in [named] if choice is None else choice.fields:
            field = part.field.add()
            field.CopyFrom(source.field[each.index])
            field.type = each.type  # a group in a file of an edition is copied as a message
            if choice is not None:
                field.oneof_index = 0
            self._refer(file, field, each, rest if each.number == named.number else ())
        return file

    def _refer(self, file: Any, field: Any, described: Any, rest: tuple[str, ...]) -> None:
        """Have a field of a part refer to its enum, or to a part of its message type."""
        kind = described.message_type
        if described.enum_type is not None:
            _import(file, described.enum_type.file.name)
        elif kind is None:
            return
        elif kind.full_name in WRAPPERS:
            _import(file, kind.file.name)
        elif kind.GetOptions().map_entry:
            entry = file.message_type[0].nested_type.add()
            kind.CopyToProto(entry)
            field.type_name = entry.name
            value = kind.fields_by_name["value"]
            self._refer(file, entry.field[value.index], value, rest[1:])
        else:
            name = self._part(kind, rest[1:] if described.is_repeated else rest)
            field.type_name = f".{name}"
            _import(file, name)

    def _of_file(self, file: Any) -> Any:
        """Return the syntax of a file, and the features that its types inherit."""
        from google.protobuf.descriptor_pb2 import FileDescriptorProto

        found = self._files.get(file.name)
        if found is None:
            source = FileDescriptorProto()
            file.CopyToProto(source)
            found = FileDescriptorProto(syntax=source.syntax or "proto2")
            if source.HasField("edition"):
                found.edition = source.edition
            _inherit_features(found.options, source.options)
            self._files[file.name] = found
        return found


def _inherit(options: Any, message: Any) -> None:
    """Add the features of a message type and of those around it."""
    if message.containing_type is not None:
        _inherit(options, message.containing_type)
    _inherit_features(options, message.GetOptions())


def _inherit_features(options: Any, source: Any) -> None:
    if source.HasField("features"):
        options.features.MergeFrom(source.features)


def _import(file: Any, path: str) -> None:
    if path not in file.dependency:
        file.dependency.append(path)
