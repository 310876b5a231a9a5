"""Claim: what the headers of a record say about it, such as its id and its expiry."""

import re
from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from functools import lru_cache
from typing import Final, NamedTuple

from ringfence_client.headers import (
    DUPLICATE_ID,
    DUPLICATE_ID_ALIASES,
    EPOCH,
    EXPIRES_AT,
    GROUP,
    GROUP_BYTES_MAX,
    GROUP_POSITION,
    GROUP_SIZE,
    ID_BYTES_MAX,
    NUMBER,
    NUMBER_MAX,
    PREVIOUS,
    PUBLISHER,
    PUBLISHER_BYTES_MAX,
    REPLY_TO,
    STREAM,
    Headers,
    Reason,
)
from ringfence_service.dedup.field import ContentField, Field, NoField, pieces_of
from ringfence_service.dedup.record import Record, RejectedError
from ringfence_service.kafka.model import UNREADABLE
from ringfence_service.schemas.content import Paths
from ringfence_service.schemas.json_text import tokens_of
from ringfence_state.model import NO_CLAIM, Claim, PartitionId

NOT_PLAIN: Final = frozenset({EXPIRES_AT, GROUP})
"""Headers that take a record off the fast path, whatever the strategy.

The other headers of a group only count beside GROUP.
"""

NOT_PLAIN_BY_PUBLISHER: Final = NOT_PLAIN | {PUBLISHER}
"""The same while any publisher has a session, or an address remembers ids by their publishers."""

NOT_PLAIN_WITH_REPLIES: Final = NOT_PLAIN_BY_PUBLISHER | {REPLY_TO}
"""The same where the route replies."""

NO_ID: Final = bytes(bytearray(b"no id"))
"""In place of the id of a plain record without one; compared by `is`, since an id may be equal."""

_OF_GROUPS: Final = frozenset({GROUP, GROUP_SIZE, GROUP_POSITION})

_STAMP: Final = re.compile(rb"[A-Za-z0-9._-]{1,64}/[A-Za-z0-9._-]{1,249}/[0-9]{1,10}/[0-9]{1,19}")

_DIGITS: Final = re.compile(rb"[0-9]{1,19}")

_MILLISECONDS: Final = re.compile(rb"[0-9]{1,18}")


class GroupClaim(NamedTuple):
    """A record's position in a transaction group: from 1 to `size`."""

    group: bytes
    size: int
    position: int


def read_claim(headers: Headers, ids: AbstractSet[str] = DUPLICATE_ID_ALIASES) -> Claim:
    """Read id and expiry. Of several headers with one name the first counts; null is absent.

    `ids` are the names of headers that hold an id; empty if the route has an id template.
    RejectedError for an invalid expiry, for ids that differ, and for an id that is too long.
    """
    found: dict[str, bytes] = {}
    for name, value in headers:
        if value is not None and (name in ids or name == EXPIRES_AT):
            found.setdefault(name, value)
    if not found:
        return NO_CLAIM
    expires = found.pop(EXPIRES_AT, None)
    if expires is not None and not _MILLISECONDS.fullmatch(expires):
        raise RejectedError(Reason.INVALID_CLAIM, f"{EXPIRES_AT} is not a number of milliseconds")
    distinct = set(found.values())
    if len(distinct) > 1:
        raise RejectedError(Reason.INVALID_CLAIM, f"{' and '.join(sorted(found))} differ")
    claim = Claim(expires_at_ms=None if expires is None else int(expires))
    return named(claim, distinct.pop()) if distinct else claim


def named(claim: Claim, identifier: bytes | None) -> Claim:
    """Return the claim with this id; RejectedError if the id is too long."""
    if identifier is not None and len(identifier) > ID_BYTES_MAX:
        cause = f"the id has {len(identifier)} bytes; at most {ID_BYTES_MAX} are allowed"
        raise RejectedError(Reason.INVALID_CLAIM, cause)
    return claim._replace(identifier=identifier)


def published(claim: Claim, headers: Headers, names: AbstractSet[str]) -> Claim:
    """Return the claim with the publisher's name and numbers, read from the headers in `names`."""
    found: dict[str, bytes] = {}
    for name, value in headers:
        if value is not None and name in names:
            found.setdefault(name, value)
    publisher = found.pop(PUBLISHER, None)
    numbers = {name: _number(name, value) for name, value in found.items()}
    return claim._replace(
        publisher=None if publisher is None else _publisher(publisher),
        number=numbers.get(NUMBER),
        stream=numbers.get(STREAM),
        previous=numbers.get(PREVIOUS),
    )


def is_stamp(identifier: bytes | None) -> bool:
    """Whether an id has the shape of a bridge's stamp; an application's id may look the same."""
    return identifier is not None and _STAMP.fullmatch(identifier) is not None


def read_epoch(headers: Headers) -> tuple[str, int] | None:
    """Return the publisher and its session epoch, 0 without one; None without a publisher."""
    found: dict[str, bytes] = {}
    for name, value in headers:
        if value is not None:
            found.setdefault(name, value)
    if PUBLISHER not in found:
        return None
    return _publisher(found[PUBLISHER]), _number(EPOCH, found.get(EPOCH, b"0"))


def read_membership(headers: Headers) -> GroupClaim | None:
    """Return the group of a record, None without one; RejectedError for an invalid position."""
    found: dict[str, bytes] = {}
    for name, value in headers:
        if value is not None and name in _OF_GROUPS:
            found.setdefault(name, value)
    group = found.pop(GROUP, None)
    if group is None:
        return None
    if len(group) > GROUP_BYTES_MAX:
        cause = f"{GROUP} is longer than {GROUP_BYTES_MAX} bytes"
        raise RejectedError(Reason.INVALID_CLAIM, cause)
    numbers = {name: _number(name, value) for name, value in found.items()}
    size, position = numbers.get(GROUP_SIZE, 0), numbers.get(GROUP_POSITION, 0)
    if not 0 < position <= size:
        cause = f"a record of a group needs {GROUP_SIZE}, and {GROUP_POSITION} from 1 to that size"
        raise RejectedError(Reason.INVALID_CLAIM, cause)
    return GroupClaim(group, size, position)


def _publisher(value: bytes) -> str:
    try:
        name = value.decode()
    except UnicodeDecodeError:
        raise RejectedError(Reason.INVALID_CLAIM, f"{PUBLISHER} is not UTF-8 text") from None
    if not name or len(value) > PUBLISHER_BYTES_MAX:
        cause = f"{PUBLISHER} is empty or longer than {PUBLISHER_BYTES_MAX} bytes"
        raise RejectedError(Reason.INVALID_CLAIM, cause)
    return name


def _number(name: str, value: bytes) -> int:
    if not _DIGITS.fullmatch(value) or int(value) > NUMBER_MAX:
        raise RejectedError(Reason.INVALID_CLAIM, f"{name} is not a number from 0 to {NUMBER_MAX}")
    return int(value)


def stamp_prefix(cluster_id: str, source: PartitionId) -> bytes:
    """Return the stamp of records without an id, except for the offset at its end."""
    return f"{cluster_id}/{source.topic}/{source.partition}/".encode()


def reply_topic(headers: Headers) -> bytes | None:
    """Return the topic that a record names for its reply, or None."""
    return next((value for name, value in headers if name == REPLY_TO and value is not None), None)


def is_plain(headers: Headers, not_plain: AbstractSet[str]) -> bool:
    """Whether no header takes the record off the fast path."""
    return all(name not in not_plain for name, _ in headers)


def plain_ids(
    records: Iterable[Headers | None], not_plain: AbstractSet[str] = NOT_PLAIN
) -> list[bytes | None]:
    """Return the id of each record whose one relevant header is a duplicate id.

    `NO_ID` for a record without any relevant header. None for the others: they need `read_claim`.
    """
    read = DUPLICATE_ID_ALIASES | not_plain
    found: list[bytes | None] = []
    add = found.append
    for headers in records:
        if headers is not None and len(headers) == 1:  # the usual case
            ((name, value),) = headers
            if name != DUPLICATE_ID and name not in DUPLICATE_ID_ALIASES:
                add(None if name in read or headers is UNREADABLE else NO_ID)
            elif value is None:
                add(NO_ID)
            else:
                add(value if len(value) <= ID_BYTES_MAX else None)
        else:
            add(_plain_id(headers or (), read))
    if b"/" in b"".join(filter(None, found)):  # one check for all, since hardly any id has one
        return [None if is_stamp(identifier) else identifier for identifier in found]
    return found


def _plain_id(headers: Headers, read: AbstractSet[str]) -> bytes | None:
    found = NO_ID
    for name, value in headers:
        if name in read:
            if found is not NO_ID or name not in DUPLICATE_ID_ALIASES:
                return None
            found = found if value is None else value
    return found if len(found) <= ID_BYTES_MAX else None


class ClaimReader:
    """Reads the ids of a route's records by its id template."""

    def __init__(self, pieces: Sequence[bytes | Field]) -> None:
        self._pieces = pieces
        fields = [part for each in pieces if isinstance(each, Field) for part in each.parts]
        self.left_out: Paths = tuple(
            (*tokens_of(field.pointer), *tokens_of(path))
            for field in fields
            if isinstance(field, ContentField)
            for path in field.without
        )
        """The members of a value that do not count, since a digest leaves them out."""

    @property
    def needs_value(self) -> bool:
        """Whether a record without a value, a tombstone, has no id."""
        fields = (piece for piece in self._pieces if isinstance(piece, Field))
        return any(all(part.in_value for part in field.parts) for field in fields)

    def of(self, record: Record, headers: Headers) -> bytes | None:
        """Return the id of a record, or None if a field of the template is missing."""
        found = []
        for piece in self._pieces:
            value = piece if isinstance(piece, bytes) else piece.of(record, headers)
            if value is None:
                return None
            found.append(value)
        return b"".join(found)

    def read(self, record: Record, headers: Headers) -> bytes | NoField:
        """Return the id of a record, or why it has none."""
        found = []
        for piece in self._pieces:
            value = piece if isinstance(piece, bytes) else piece.read(record, headers)
            if isinstance(value, NoField):
                return value
            found.append(value)
        return b"".join(found)

    def missing(self, record: Record, headers: Headers) -> Field:
        """Return the first field of the template that a record without an id lacks."""
        fields = (piece for piece in self._pieces if isinstance(piece, Field))
        return next(field for field in fields if field.of(record, headers) is None)

    def why_missing(self, record: Record, headers: Headers) -> str:
        """Return which field of the template a record without an id lacks, and why."""
        return self.missing(record, headers).why_missing(record)

    def plain(
        self,
        messages: Sequence[Record],
        column: Sequence[Headers | None],
        not_plain: AbstractSet[str] = NOT_PLAIN,
    ) -> list[bytes | None]:
        """Return the ids of records that qualify for the fast path, as `plain_ids` does."""
        found: list[bytes | None] = []
        for message, headers in zip(messages, column, strict=True):
            identifier = None
            if headers is not UNREADABLE and is_plain(headers or (), not_plain):
                identifier = self._plain(message, headers or ())
            is_long = identifier is not None and len(identifier) > ID_BYTES_MAX
            found.append(None if is_long else identifier)
        return found

    def _plain(self, record: Record, headers: Headers) -> bytes | None:
        """Return the id, `NO_ID` without one, or None if the document cannot be decoded."""
        found = self.read(record, headers)
        if isinstance(found, bytes):
            return found
        return NO_ID if found is NoField.MISSING else None


def claim_of(
    identifier: ClaimReader | None, record: Record, headers: Headers, names: AbstractSet[str]
) -> Claim:
    """Return the claim of a record: its id, by a template or by headers, and what `names` hold.

    RejectedError as in `read_claim`.
    """
    if identifier is None:
        claim = read_claim(headers)
    else:
        claim, found = read_claim(headers, frozenset()), identifier.read(record, headers)
        if isinstance(found, bytes):
            claim = named(claim, found)
        elif found is NoField.UNREADABLE:
            claim = claim._replace(is_unreadable=True)
    return published(claim, headers, names) if names else claim


def missing_headers(claim: Claim, required: Sequence[str]) -> str:
    """Return the required headers that a record lacks, as a list in text; the number 0 is none."""
    found = {
        PUBLISHER: claim.publisher,
        NUMBER: claim.number or None,
        STREAM: claim.stream,
        PREVIOUS: claim.previous,
    }
    return ", ".join(name for name in required if found[name] is None)


@lru_cache
def identifier_of(template: str) -> ClaimReader | None:
    """Return the reader of an id template; None if it is empty and headers hold the ids."""
    pieces = [each.encode() if isinstance(each, str) else each for each in pieces_of(template)]
    return ClaimReader(pieces) if pieces else None
