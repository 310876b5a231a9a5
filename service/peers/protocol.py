"""Peer protocol: the messages between instances, and their JSON encoding, derived from the types.

A named tuple becomes a list of its fields; in a union, an object names the type. A value that does
not match its type exactly is refused: a field that one side does not know may be the one that
matters.
"""

import base64
import binascii
import json
from collections.abc import Callable, Hashable, Mapping
from datetime import datetime
from functools import cache
from types import NoneType, UnionType
from typing import (
    Any,
    Final,
    Literal,
    NamedTuple,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from service.metadata.instances import Registration
from service.queries.errors import Busy, NameInUse, NotPossible, NotRestored, TimedOut, Unavailable
from service.queries.registry import Answer, Query
from service.queries.status import ServiceStatus
from state.model import PartitionId

T = TypeVar("T")

_PLAIN: Final = frozenset({str, int, float, bool, NoneType})


class CodecError(ValueError):
    """The text is not the encoding of a value of the expected type."""


class _Codec(NamedTuple):
    """Converts values of one type to JSON values and back."""

    dump: Callable[[Any], Any]
    load: Callable[[object], Any]


def dumps(value: object, kind: Hashable) -> bytes:
    """Encode a value of this type."""
    return json.dumps(_codec(kind).dump(value), separators=(",", ":")).encode()


def loads(text: bytes, kind: Hashable) -> object:
    """Decode a value of this type; CodecError if the text is not one."""
    try:
        decoded = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise CodecError("it is not JSON") from error
    value: object = _codec(kind).load(decoded)
    return value


@cache
def _codec(kind: Hashable) -> _Codec:
    if kind in _PLAIN:
        return _Codec(_same, lambda value: _plain(value, frozenset({kind})))
    if kind is bytes:
        return _Codec(lambda value: base64.b64encode(value).decode("ascii"), _bytes)
    if kind is datetime:
        return _Codec(datetime.isoformat, _time)
    if isinstance(kind, type) and hasattr(kind, "_fields"):
        hints = get_type_hints(kind)
        fields = _row([_codec(hints[name]) for name in kind._fields])
        return _Codec(fields.dump, lambda items: kind(*fields.load(items)))
    return _composed(kind)


def _composed(kind: Hashable) -> _Codec:
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return _union(inner)
    if origin is Literal:
        return _Codec(_same, lambda value: _one_of(value, inner))
    if origin is tuple and inner[1:] == (Ellipsis,):
        return _list(_codec(inner[0]))
    if origin is tuple:
        return _row([_codec(each) for each in inner])
    if origin is not None and issubclass(origin, Mapping) and inner[0] is str:
        return _table(_codec(inner[1]))
    raise TypeError(f"{kind} has no encoding in JSON")


def _list(item: _Codec) -> _Codec:
    return _Codec(
        lambda values: [item.dump(value) for value in values],
        lambda items: tuple(item.load(each) for each in _of(list, items)),
    )


def _row(fields: list[_Codec]) -> _Codec:
    def load(value: object) -> tuple[object, ...]:
        items = _of(list, value)
        if len(items) != len(fields):
            raise CodecError(f"it has {len(items)} fields, expected {len(fields)}")
        return tuple(field.load(each) for field, each in zip(fields, items, strict=True))

    return _Codec(
        lambda values: [field.dump(each) for field, each in zip(fields, values, strict=True)], load
    )


def _table(item: _Codec) -> _Codec:
    return _Codec(
        lambda values: {name: item.dump(value) for name, value in values.items()},
        lambda members: {name: item.load(each) for name, each in _of(dict, members).items()},
    )


def _union(kinds: tuple[Any, ...]) -> _Codec:
    plain = frozenset(each for each in kinds if each in _PLAIN)
    named = {each.__name__: each for each in kinds if hasattr(each, "_fields")}
    others = [each for each in kinds if each not in plain and each not in named.values()]
    if len(others) > 1 or (others and (named or plain - {NoneType})):
        raise TypeError(f"the types {kinds} cannot be distinguished in JSON")

    def dump(value: object) -> object:
        kind: type = type(value)
        if kind in plain or (kind is int and float in plain):
            return value
        if kind in named.values():
            return {kind.__name__: _codec(kind).dump(value)}
        return _codec(others[0]).dump(value)

    def load(value: object) -> object:
        if others:
            return None if value is None and plain else _codec(others[0]).load(value)
        if not isinstance(value, dict):
            return _plain(value, plain)
        name = next(iter(value), "")
        if len(value) != 1 or name not in named:
            raise CodecError(f"{name[:80] or 'an empty object'} is not an expected type")
        return _codec(named[name]).load(value[name])

    return _Codec(dump, load)


def _same(value: object) -> object:
    return value


def _plain(value: object, kinds: frozenset[Any]) -> object:
    if type(value) in kinds:
        return value
    if type(value) is int and float in kinds:
        return float(value)
    names = " or ".join(sorted(kind.__name__ for kind in kinds))
    raise CodecError(f"it is {type(value).__name__}, expected {names}")


def _one_of(value: object, allowed: tuple[object, ...]) -> object:
    if type(value) in (str, int, bool) and value in allowed:
        return value
    raise CodecError(f"it is none of {', '.join(map(str, allowed))}")


def _of(kind: type[T], value: object) -> T:
    if type(value) is kind:
        return value
    raise CodecError(f"it is {type(value).__name__}, expected {kind.__name__}")


def _bytes(value: object) -> bytes:
    try:
        return base64.b64decode(_of(str, value), validate=True)
    except (binascii.Error, ValueError) as error:
        raise CodecError("it is not base64") from error


def _time(value: object) -> datetime:
    try:
        return datetime.fromisoformat(_of(str, value))
    except ValueError as error:
        raise CodecError("it is not a time") from error


PATH: Final = "/v1/internal/questions"

FORWARDED: Final = "X-Ringfence-Forwarded"
"""Names the instance that forwards a query. A query with this header is not forwarded again."""

ACTOR: Final = "X-Ringfence-Actor"
"""The user on whose behalf an instance asks, percent-encoded; trusted if the request is signed."""

SIGNATURE: Final = "X-Ringfence-Signature"
"""The signature of a reply."""

_REASONS: Final = {
    kind.__name__: kind
    for kind in (Unavailable, Busy, TimedOut, NotRestored, NotPossible, NameInUse)
}


class StatusRequest(NamedTuple):
    """Asks an instance for its status."""


class StatusReply(NamedTuple):
    """The status of an instance."""

    version: str
    revision: int
    """Of the newest settings document that it has read."""
    status: ServiceStatus


class PeerFailure(NamedTuple):
    """Why an instance does not answer: a code, and a sentence that quotes nothing it has sent."""

    code: str
    sentence: str


class InstanceStatus(NamedTuple):
    """An instance and its status; `trouble` says why the status is not known."""

    announced: Registration
    is_own: bool
    status_reply: StatusReply | None
    trouble: PeerFailure | None


class PeerQuery(NamedTuple):
    """A query to one instance; after the timeout the sender no longer waits for the reply."""

    to: str
    query: Query | StatusRequest
    timeout_ms: int


class QueryRefusal(NamedTuple):
    """Why there is no answer."""

    kind: str
    sentence: str
    retry_after_s: int = 1


class QueryReply(NamedTuple):
    """The reply of an instance, and the partitions that it owns."""

    instance: str
    outcome: Answer | StatusReply | QueryRefusal
    owned: tuple[PartitionId, ...] = ()
    partitions_total: int = 0
    """Of all instances, as far as this one knows."""


def refusal_of(reason: Exception) -> QueryRefusal | None:
    """Return the refusal for an expected error; None for a bug in Ringfence."""
    if not isinstance(reason, tuple(_REASONS.values())):
        return None
    return QueryRefusal(type(reason).__name__, str(reason), getattr(reason, "retry_after_s", 1))


def reason_of(refusal: QueryRefusal) -> Exception:
    """Return the exception to raise for a refusal."""
    kind = _REASONS.get(refusal.kind, Unavailable)
    if issubclass(kind, Unavailable):
        return kind(refusal.sentence, refusal.retry_after_s)
    return kind(refusal.sentence)


def owned_by(status: ServiceStatus) -> tuple[PartitionId, ...]:
    """Return the partitions that an instance owns."""
    return tuple(PartitionId(each.topic, each.partition) for each in status.partitions)


def encode_query(query: PeerQuery) -> bytes:
    """Return the body of the request."""
    return dumps(query, PeerQuery)


def decode_query(text: bytes) -> PeerQuery:
    """Return the query in a request; CodecError if this version does not know it."""
    query = loads(text, PeerQuery)
    assert isinstance(query, PeerQuery)  # `loads` returns a value of the given type
    return query


def encode_reply(reply: QueryReply) -> bytes:
    """Return the body of the response."""
    return dumps(reply, QueryReply)


def decode_reply(text: bytes) -> QueryReply:
    """Return the reply in a response; CodecError if this version does not know it."""
    reply = loads(text, QueryReply)
    assert isinstance(reply, QueryReply)  # `loads` returns a value of the given type
    return reply
