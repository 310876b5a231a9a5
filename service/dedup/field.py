"""Field: what a template reads from a record: the key, a header, the digest of the value, a member.

A JSON pointer (RFC 6901) names a member of JSON, or of a payload whose schema is in a registry. The
text of a member is the text of a string, or the literal of a number or boolean. A literal of JSON
is taken as written in the record, so that equal bytes always give equal text.
Invariant: a field never changes a record, and no content of a record appears in an error.
"""

import hashlib
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Final

from ringfence.headers import Headers
from service.dedup.record import Record
from service.schemas.documents import documents
from service.schemas.errors import UndecodableError
from service.schemas.json_text import member_of, parsed, tokens_of

FIELD: Final = re.compile(r"\{(key|sha256:value|header:[^{}]+|(?:key-)?(?:json|schema):[^{}]*)\}")
"""Matches a field in a template; group 1 is the name of the field."""


class UnrenderableError(ValueError):
    """The record lacks a field; the message names it and says why."""


class Field(ABC):
    """One field of a template."""

    __slots__ = ()

    @property
    def in_value(self) -> bool:
        """Whether it is read from the value of a record."""
        return False

    @property
    @abstractmethod
    def name(self) -> str:
        """The field as it is written in a template."""

    @abstractmethod
    def of(self, record: Record, headers: Headers) -> bytes | None:
        """Return the field of a record, or None if the record lacks it."""

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


@dataclass(frozen=True, slots=True)
class MemberField(Field):
    """A member of the value or the key, by its JSON pointer (RFC 6901)."""

    pointer: str
    in_key: bool

    kind: ClassVar[str]
    """The name of the field without `key-` and the pointer."""

    @property
    def name(self) -> str:
        """The field as it is written in a template."""
        return f"{{{'key-' if self.in_key else ''}{self.kind}:{self.pointer}}}"

    @property
    def in_value(self) -> bool:
        """Whether it is read from the value of a record."""
        return not self.in_key

    def of(self, record: Record, headers: Headers) -> bytes | None:  # noqa: ARG002 - as every field
        """Return the text of the member as UTF-8."""
        return self.of_document(record.key() if self.in_key else record.value())

    def of_document(self, document: bytes | None) -> bytes | None:
        """Return the text of the member of a key or value, or None."""
        try:
            return self._found(document)
        except UnrenderableError:
            return None

    def why_missing(self, record: Record) -> str:
        """Return why: not decodable, no such member, or not a string, number or boolean."""
        try:
            self._found(record.key() if self.in_key else record.value())
        except UnrenderableError as error:
            return str(error)
        raise AssertionError(self.name)  # the record has it

    def _found(self, document: bytes | None) -> bytes:
        where = "key" if self.in_key else "value"
        if document is None:
            raise UnrenderableError(f"the record has no {where}, and so nothing for {self.name}")
        try:
            member = self._member(document)
        except UndecodableError as error:
            raise UnrenderableError(self._undecodable(where, error)) from None
        if isinstance(member, bool):
            return b"true" if member else b"false"
        if isinstance(member, str):  # a number too: it was read as text
            try:
                return member.encode()
            except UnicodeEncodeError:
                cause = f"{self.name} has an unpaired surrogate in this record"
                raise UnrenderableError(cause) from None
        kind = "nothing" if member is None else _KINDS[type(member)]
        raise UnrenderableError(f"the {where} has {kind} at {self.name}")

    @abstractmethod
    def _member(self, document: bytes) -> object:
        """Return the member of a key or value, or None; or raise UndecodableError."""

    def _undecodable(self, where: str, error: UndecodableError) -> str:
        """Return why a key or value has no members."""
        return f"the {where} {error}"


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

    def _undecodable(self, where: str, error: UndecodableError) -> str:
        return f"{self.name} finds nothing: the {where} {error}"


_KINDS: Final[Mapping[type, str]] = {
    dict: "an object",
    list: "an array",
    float: "a number that is not finite",
}


UNNAMED: Final = "\0"
"""Stands for a field that compiled code does not read."""


def compiled_name(field: Field | None) -> str | None:
    """Return a field as compiled code names it: a header's name, "" for the key, None for none."""
    if field is None:
        return None
    if isinstance(field, HeaderField) and "\0" not in field.header:
        return field.header
    return "" if isinstance(field, KeyField) else UNNAMED


def field_of(name: str) -> Field:
    """Return the field of this name, which `FIELD` has matched."""
    if name == "key":
        return KeyField()
    if name == "sha256:value":
        return DigestField()
    kind, _, rest = name.partition(":")
    if kind == "header":
        return HeaderField(rest)
    of_kind = SchemaField if kind.endswith(SchemaField.kind) else JsonField
    return of_kind(rest, in_key=kind.startswith("key-"))
