"""Field: what a template reads from a record: its key, a header, a digest, or a member of its JSON.

A member is named by a JSON pointer (RFC 6901). Its text is the text of a string, or the literal of
a number or boolean as it stands in the record, so that equal bytes always give equal text.
Invariant: a field never changes a record, and no content of a record appears in an error.
"""

import hashlib
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Final, NoReturn

from ringfence.headers import Headers
from service.dedup.record import Record

FIELD: Final = re.compile(r"\{(key|sha256:value|header:[^{}]+|(?:key-)?json:[^{}]*)\}")
"""A field as it is written in a template; group 1 is its name."""

_INDEX: Final = re.compile(r"0|[1-9][0-9]{0,8}")


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
class JsonField(Field):
    """A member of the JSON in the value or the key, by its JSON pointer (RFC 6901)."""

    pointer: str
    in_key: bool

    @property
    def name(self) -> str:
        """The field as it is written in a template."""
        return f"{{{'key-' if self.in_key else ''}json:{self.pointer}}}"

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
        """Return why: no JSON, no such member, or a member that is no string, number or boolean."""
        try:
            self._found(record.key() if self.in_key else record.value())
        except UnrenderableError as error:
            return str(error)
        raise AssertionError(self.name)  # the record has it

    def _found(self, document: bytes | None) -> bytes:
        where = "key" if self.in_key else "value"
        if document is None:
            raise UnrenderableError(f"the record has no {where}, and so nothing for {self.name}")
        member = _resolved(_parsed(document, where), self.pointer)
        if isinstance(member, bool):
            return b"true" if member else b"false"
        if isinstance(member, str):  # a number too: it was read as the text that stands there
            try:
                return member.encode()
            except UnicodeEncodeError:
                cause = f"{self.name} has an unpaired surrogate in this record"
                raise UnrenderableError(cause) from None
        kind = "nothing" if member is None else _KINDS[type(member)]
        raise UnrenderableError(f"the {where} has {kind} at {self.name}")


_KINDS: Final[Mapping[type, str]] = {dict: "an object", list: "an array"}


def field_of(name: str) -> Field:
    """Return the field of this name, which `FIELD` has matched."""
    if name == "key":
        return KeyField()
    if name == "sha256:value":
        return DigestField()
    kind, _, rest = name.partition(":")
    return HeaderField(rest) if kind == "header" else JsonField(rest, in_key=kind == "key-json")


def _parsed(document: bytes, where: str) -> object:
    """Return the JSON of a key or value, with numbers as the text that stands there."""
    try:
        return _JSON.decode(document.decode())
    except UnicodeDecodeError:
        raise UnrenderableError(f"the {where} is not JSON: it is not UTF-8 text") from None
    except json.JSONDecodeError as error:
        cause = f"the {where} is not JSON from character {error.pos} on"
        raise UnrenderableError(cause) from None
    except RecursionError:
        raise UnrenderableError(f"the {where} is JSON that is nested too deeply") from None


def _resolved(document: object, pointer: str) -> object:
    """Return the member that a pointer names, or None."""
    found = document
    for token in pointer.split("/")[1:]:
        name = token.replace("~1", "/").replace("~0", "~")
        if isinstance(found, dict):
            found = found.get(name)
        elif isinstance(found, list) and _INDEX.fullmatch(name):
            found = next(islice(found, int(name), None), None)
        else:
            return None
    return found


def _refuse_constant(_name: str) -> NoReturn:
    raise json.JSONDecodeError("no JSON", "", 0)  # NaN and Infinity, which Python would take


_JSON: Final = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=_refuse_constant)
