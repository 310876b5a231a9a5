"""Field: what a template reads from a record: the key, a header, the digest of the value, a member.

A JSON pointer (RFC 6901) names a member of JSON, or of a payload whose schema is in a registry. The
text of a member is the text of a string, or the literal of a number or boolean. A literal of JSON
is taken as written in the record, so that equal bytes always give equal text.
Invariants: a field never changes a record, and no content of a record appears in an error. The
fields of an escaped template never give the same text for two records that differ in one of them.
"""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import ClassVar, Final

from ringfence_client.headers import Headers
from ringfence_service.config.templates import (
    DIGEST,
    FIELD,
    FieldName,
    choices_of,
    is_escaped,
    unmarked,
)
from ringfence_service.dedup.record import Record
from ringfence_service.schemas.canonical_json import canonical
from ringfence_service.schemas.documents import documents
from ringfence_service.schemas.errors import UndecodableError
from ringfence_service.schemas.json_text import member_of, parsed, tokens_of


class NoField(Enum):
    """Why a record has no text for a field."""

    MISSING = "it does not have the field"
    UNREADABLE = "the document that would have it cannot be decoded"


class UnrenderableError(ValueError):
    """The record lacks a field; the message names it and says why."""

    absence = NoField.MISSING


class UnreadableError(UnrenderableError):
    """The document that would have the field cannot be decoded; the message says why."""

    absence = NoField.UNREADABLE


class Field(ABC):
    """One field of a template."""

    __slots__ = ()

    @property
    def in_value(self) -> bool:
        """Whether it is read from the value of a record."""
        return False

    @property
    def parts(self) -> tuple["Field", ...]:
        """The fields that are read from a record for this one: itself, if it is a simple one."""
        return (self,)

    @property
    @abstractmethod
    def name(self) -> str:
        """The field as it is written in a template."""

    @abstractmethod
    def of(self, record: Record, headers: Headers) -> bytes | None:
        """Return the field of a record, or None if the record lacks it."""

    def read(self, record: Record, headers: Headers) -> bytes | NoField:
        """Return the field of a record, or why there is none."""
        found = self.of(record, headers)
        return NoField.MISSING if found is None else found

    def why_missing(self, record: Record) -> str:  # noqa: ARG002 - of a member it depends on it
        """Return why a record lacks the field."""
        return f"the record has nothing for {self.name}"

    def text(self, record: Record, headers: Headers) -> str:
        """Return the field as text; UnrenderableError if there is none."""
        found = self.of(record, headers)
        if found is None:
            raise UnrenderableError(self.why_missing(record))
        try:
            return found.decode()
        except UnicodeDecodeError:
            raise UnrenderableError(f"{self.name} is not UTF-8 text in this record") from None


@dataclass(frozen=True, slots=True)
class KeyField(Field):
    """The key of a record."""

    @property
    def name(self) -> str:
        """The field as it is written in a template."""
        return "{key}"

    def of(self, record: Record, headers: Headers) -> bytes | None:  # noqa: ARG002 - as every field
        """Return the key."""
        return record.key()


@dataclass(frozen=True, slots=True)
class HeaderField(Field):
    """A header by its name."""

    header: str

    @property
    def name(self) -> str:
        """The field as it is written in a template."""
        return f"{{header:{self.header}}}"

    def of(self, record: Record, headers: Headers) -> bytes | None:  # noqa: ARG002 - as every field
        """Return the first value that is not null."""
        for name, value in headers:
            if name == self.header and value is not None:
                return value
        return None


@dataclass(frozen=True, slots=True)
class DigestField(Field):
    """The SHA-256 of the value, in hexadecimal."""

    @property
    def name(self) -> str:
        """The field as it is written in a template."""
        return "{sha256:value}"

    @property
    def in_value(self) -> bool:
        """Whether it is read from the value of a record."""
        return True

    def of(self, record: Record, headers: Headers) -> bytes | None:  # noqa: ARG002 - as every field
        """Return the digest; None for a record without a value."""
        value = record.value()
        return None if value is None else hashlib.sha256(value).hexdigest().encode()


class DocumentField(Field):
    """A field that is found in the JSON, or in a payload with a schema, of the value or the key."""

    __slots__ = ()

    in_key: bool
    """Whether it is read from the key."""

    @property
    def in_value(self) -> bool:
        """Whether it is read from the value of a record."""
        return not self.in_key

    def of(self, record: Record, headers: Headers) -> bytes | None:  # noqa: ARG002 - as every field
        """Return the text of the field as UTF-8, or None."""
        return self.of_document(self.document_of(record))

    def of_document(self, document: bytes | None) -> bytes | None:
        """Return the text of the field of a key or value, or None."""
        try:
            return self._found(document)
        except UnrenderableError:
            return None

    def read(self, record: Record, headers: Headers) -> bytes | NoField:  # noqa: ARG002 - as every field
        """Return the text of the field, or why there is none."""
        try:
            return self._found(self.document_of(record))
        except UnrenderableError as error:
            return error.absence

    def why_missing(self, record: Record) -> str:
        """Return why: the document cannot be decoded, or does not have the field."""
        try:
            self._found(self.document_of(record))
        except UnrenderableError as error:
            return str(error)
        return f"{self.name} is empty in this record"

    def document_of(self, record: Record) -> bytes | None:
        """Return the key or value that has the field, or None."""
        return record.key() if self.in_key else record.value()

    @property
    def _where(self) -> str:
        return "key" if self.in_key else "value"

    def _found(self, document: bytes | None) -> bytes:
        if document is None:
            raise UnrenderableError(
                f"the record has no {self._where}, and so nothing for {self.name}"
            )
        try:
            return self._text(document)
        except UndecodableError as error:
            raise UnreadableError(self._undecodable(error)) from None

    @abstractmethod
    def _text(self, document: bytes) -> bytes:
        """Return the field of a document; raise UnrenderableError or UndecodableError."""

    def _undecodable(self, error: UndecodableError) -> str:
        """Return why a key or value has no members."""
        return f"the {self._where} {error}"


@dataclass(frozen=True, slots=True)
class MemberField(DocumentField):
    """A member of the value or the key, by its JSON pointer (RFC 6901)."""

    pointer: str
    in_key: bool

    kind: ClassVar[str]
    """The name of the field without `key-` and the pointer."""

    @property
    def name(self) -> str:
        """The field as it is written in a template."""
        return f"{{{'key-' if self.in_key else ''}{self.kind}:{self.pointer}}}"

    def _text(self, document: bytes) -> bytes:
        member = self._member(document)
        if isinstance(member, bool):
            return b"true" if member else b"false"
        if isinstance(member, str):  # a number too: it was read as text
            try:
                return member.encode()
            except UnicodeEncodeError:
                cause = f"{self.name} has an unpaired surrogate in this record"
                raise UnrenderableError(cause) from None
        kind = "nothing" if member is None else _KINDS[type(member)]
        raise UnrenderableError(f"the {self._where} has {kind} at {self.name}")

    @abstractmethod
    def _member(self, document: bytes) -> object:
        """Return the member of a key or value, or None; or raise UndecodableError."""


@dataclass(frozen=True, slots=True)
class JsonField(MemberField):
    """A member of JSON."""

    kind: ClassVar[str] = "json"

    def _member(self, document: bytes) -> object:
        return member_of(parsed(document), tokens_of(self.pointer))


@dataclass(frozen=True, slots=True)
class SchemaField(MemberField):
    """A member of Avro, Protobuf or JSON whose schema is in a registry."""

    kind: ClassVar[str] = "schema"

    def _member(self, document: bytes) -> object:
        return documents().document(document).member(tokens_of(self.pointer))

    def _undecodable(self, error: UndecodableError) -> str:
        return f"{self.name} finds nothing: the {self._where} {error}"


_KINDS: Final[Mapping[type, str]] = {
    dict: "an object",
    list: "an array",
    float: "a number that is not finite",
}


@dataclass(frozen=True, slots=True)
class ContentField(DocumentField):
    """The SHA-256 of a member of a JSON value, in hexadecimal: that of its canonical text.

    So two members with equal content have one digest, whatever the order of their members, their
    white space and the way in which their numbers and characters are written.
    """

    pointer: str
    without: tuple[str, ...] = ()
    """JSON pointers of the members that do not count; they begin at the digested member."""
    in_key: bool = field(default=False, init=False)

    @property
    def name(self) -> str:
        """The field as it is written in a template."""
        less = f" without {' '.join(self.without)}" if self.without else ""
        return f"{{{DIGEST}:{self.pointer}{less}}}"

    def _text(self, document: bytes) -> bytes:
        text = canonical(document, tokens_of(self.pointer), map(tokens_of, self.without))
        if text is None:
            raise UnrenderableError(f"the value has nothing at {self.name}")
        return hashlib.sha256(text).hexdigest().encode()


@dataclass(frozen=True, slots=True)
class FirstField(Field):
    """The first of several fields that a record has and that is not empty.

    A publisher that has moved to another name may still write the earlier one, and leave it empty.
    """

    choices: tuple[Field, ...]

    @property
    def in_value(self) -> bool:
        """Whether any of them is read from the value of a record."""
        return any(each.in_value for each in self.choices)

    @property
    def parts(self) -> tuple[Field, ...]:
        """The fields that it looks for."""
        return tuple(part for each in self.choices for part in each.parts)

    @property
    def name(self) -> str:
        """The field as it is written in a template."""
        return f"{{{' or '.join(each.name[1:-1] for each in self.choices)}}}"

    def of(self, record: Record, headers: Headers) -> bytes | None:
        """Return the first that the record has, or None."""
        found = (each.of(record, headers) for each in self.choices)
        return next(filter(None, found), None)

    def read(self, record: Record, headers: Headers) -> bytes | NoField:
        """Return the first that the record has, or why it has none of them."""
        absence = NoField.MISSING
        for each in self.choices:
            found = each.read(record, headers)
            if found is NoField.UNREADABLE:
                absence = found
            elif isinstance(found, bytes) and found:
                return found
        return absence

    def why_missing(self, record: Record) -> str:
        """Return why each of them is missing."""
        return "; ".join(each.why_missing(record) for each in self.choices)


class ChangedField(Field):
    """A field that is written in another way than the record has it."""

    __slots__ = ()

    inner: Field
    """The field as the record has it."""

    @property
    def in_value(self) -> bool:
        """Whether it is read from the value of a record."""
        return self.inner.in_value

    @property
    def parts(self) -> tuple[Field, ...]:
        """The field as the record has it."""
        return self.inner.parts

    def of(self, record: Record, headers: Headers) -> bytes | None:
        """Return the field in its other form, or None if the record lacks it."""
        return self.of_field(self.inner.of(record, headers))

    def of_field(self, field: bytes | None) -> bytes | None:
        """Return the other form of a field, or None for None."""
        return None if field is None else self._changed(field)

    def read(self, record: Record, headers: Headers) -> bytes | NoField:
        """Return the field in its other form, or why there is none."""
        found = self.inner.read(record, headers)
        return self._changed(found) if isinstance(found, bytes) else found

    def why_missing(self, record: Record) -> str:
        """Return why the record lacks the field."""
        return self.inner.why_missing(record)

    @abstractmethod
    def _changed(self, field: bytes) -> bytes:
        """Return the other form of a field."""


@dataclass(frozen=True, slots=True)
class FilteredField(ChangedField):
    """A field in small letters, without white space at its ends, or both.

    Bytes that are not UTF-8 text stay as they are.
    """

    filters: tuple[str, ...]
    """The last one is applied first."""
    inner: Field

    @property
    def name(self) -> str:
        """The field as it is written in a template."""
        return f"{{{':'.join((*self.filters, self.inner.name[1:-1]))}}}"

    def _changed(self, field: bytes) -> bytes:
        try:
            text = field.decode()
        except UnicodeDecodeError:
            return field
        for name in reversed(self.filters):
            text = _FILTERS[name](text)
        return text.encode()


_FILTERS: Final[Mapping[str, Callable[[str], str]]] = {"lower": str.lower, "trim": str.strip}


@dataclass(frozen=True, slots=True)
class EscapedField(ChangedField):
    """A field that another one follows: a backslash marks what is no end of it."""

    inner: Field
    stop: bytes
    """The character after the field. A backslash comes before it, and is doubled, in the field."""

    @property
    def name(self) -> str:
        """The field as it is written in a template."""
        return self.inner.name

    def of(self, record: Record, headers: Headers) -> bytes | None:
        """Return the escaped field, or None if the record lacks it."""
        field = self.inner.of(record, headers)
        if field is None or (self.stop not in field and b"\\" not in field):
            return field  # the usual case, which each record of a route pays
        return self._changed(field)

    def _changed(self, field: bytes) -> bytes:
        return field.replace(b"\\", b"\\\\").replace(self.stop, b"\\" + self.stop)


_BETWEEN: Final = "|"
"""Stands after a field where a template has nothing that could end it."""


def pieces_of(template: str) -> list[str | Field]:
    """Return the literals and fields of a template; of several fields only the last is as it is.

    A literal that begins with a backslash, or with {topic}, which may begin with anything, cannot
    end a field.
    """
    parts: list[str | Field] = [
        field_of(part) if index % 2 else part
        for index, part in enumerate(FIELD.split(unmarked(template)))
    ]
    if is_escaped(template):
        for at in range(1, len(parts) - 2, 2):
            inner, after = parts[at], parts[at + 1]
            assert isinstance(inner, Field)  # fields and literals take turns
            assert isinstance(after, str)
            literal = _BETWEEN + after if after[:1] in {"", "\\", "{"} else after
            parts[at : at + 2] = [EscapedField(inner, literal[0].encode()), literal]
    return [part for part in parts if part != ""]


UNNAMED: Final = "\0"
"""Stands for a field that compiled code does not read."""


def compiled_name(field: Field | None) -> str | None:
    """Return a field as compiled code names it: a header's name, "" for the key, None for none."""
    if field is None:
        return None
    if isinstance(field, HeaderField) and "\0" not in field.header:
        return field.header
    return "" if isinstance(field, KeyField) else UNNAMED


def field_of(text: str) -> Field:
    """Return the field that a placeholder names; `FIELD` has matched it."""
    choices = [_field(name) for name in choices_of(text)]
    return choices[0] if len(choices) == 1 else FirstField(tuple(choices))


def _field(name: FieldName) -> Field:
    match name.kind:
        case "key":
            found: Field = KeyField()
        case "sha256:value":
            found = DigestField()
        case "header":
            found = HeaderField(name.argument)
        case _ if name.kind == DIGEST:
            found = ContentField(name.argument, name.without)
        case kind:
            of_kind = SchemaField if kind.endswith(SchemaField.kind) else JsonField
            found = of_kind(name.argument, in_key=kind.startswith("key-"))
    return FilteredField(name.filters, found) if name.filters else found
