"""Peer protocol: the messages between instances, and their encoding as JSON by type alone.

A named tuple is a list of its fields; where a field may have one of several types, an object names
it. A value that does not match its type exactly is refused: a field that one side does not know may
be the one that matters.
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

T = TypeVar("T")

_PLAIN: Final = frozenset({str, int, float, bool, NoneType})


class CodecError(ValueError):
    """What was told is no value of the type that was expected."""


class _Codec(NamedTuple):
    """From a value to what JSON can hold, and back."""

    dump: Callable[[Any], Any]
    load: Callable[[object], Any]


def dumps(value: object, kind: Hashable) -> bytes:
    """The text of a value of this type."""
    return json.dumps(_way(kind).dump(value), separators=(",", ":")).encode()


def loads(text: bytes, kind: Hashable) -> object:
    """The value of this type; CodecError where the text tells of none."""
    try:
        told = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise CodecError("it is no JSON") from error
    loaded: object = _way(kind).load(told)
    return loaded


@cache
def _way(kind: Hashable) -> _Codec:
    if kind in _PLAIN:
        return _Codec(_same, lambda told: _plain(told, frozenset({kind})))
    if kind is bytes:
        return _Codec(lambda value: base64.b64encode(value).decode("ascii"), _bytes)
    if kind is datetime:
        return _Codec(datetime.isoformat, _time)
    if isinstance(kind, type) and hasattr(kind, "_fields"):
        hints = get_type_hints(kind)
        fields = _row([_way(hints[name]) for name in kind._fields])
        return _Codec(fields.dump, lambda told: kind(*fields.load(told)))
    return _composed(kind)


def _composed(kind: Hashable) -> _Codec:
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return _union(inner)
    if origin is Literal:
        return _Codec(_same, lambda told: _one_of(told, inner))
    if origin is tuple and inner[1:] == (Ellipsis,):
        return _list(_way(inner[0]))
    if origin is tuple:
        return _row([_way(each) for each in inner])
    if origin is not None and issubclass(origin, Mapping) and inner[0] is str:
        return _table(_way(inner[1]))
    raise TypeError(f"{kind} is no type that can be told in JSON")


def _list(item: _Codec) -> _Codec:
    return _Codec(
        lambda values: [item.dump(value) for value in values],
        lambda told: tuple(item.load(each) for each in _of(list, told)),
    )


def _row(fields: list[_Codec]) -> _Codec:
    def load(told: object) -> tuple[object, ...]:
        items = _of(list, told)
        if len(items) != len(fields):
            raise CodecError(f"{len(items)} fields are told where there are {len(fields)}")
        return tuple(field.load(each) for field, each in zip(fields, items, strict=True))

    return _Codec(
        lambda values: [field.dump(each) for field, each in zip(fields, values, strict=True)], load
    )


def _table(item: _Codec) -> _Codec:
    return _Codec(
        lambda values: {name: item.dump(value) for name, value in values.items()},
        lambda told: {name: item.load(each) for name, each in _of(dict, told).items()},
    )


def _union(kinds: tuple[Any, ...]) -> _Codec:
    plain = frozenset(each for each in kinds if each in _PLAIN)
    named = {each.__name__: each for each in kinds if hasattr(each, "_fields")}
    others = [each for each in kinds if each not in plain and each not in named.values()]
    if len(others) > 1 or (others and (named or plain - {NoneType})):
        raise TypeError(f"nobody could tell apart in JSON what is one of {kinds}")

    def dump(value: object) -> object:
        kind: type = type(value)
        if kind in plain or (kind is int and float in plain):
            return value
        if kind in named.values():
            return {kind.__name__: _way(kind).dump(value)}
        return _way(others[0]).dump(value)

    def load(told: object) -> object:
        if others:
            return None if told is None and plain else _way(others[0]).load(told)
        if not isinstance(told, dict):
            return _plain(told, plain)
        name = next(iter(told), "")
        if len(told) != 1 or name not in named:
            raise CodecError(f"{name[:80] or 'an empty table'} is none of what may stand there")
        return _way(named[name]).load(told[name])

    return _Codec(dump, load)


def _same(value: object) -> object:
    return value


def _plain(told: object, kinds: frozenset[Any]) -> object:
    if type(told) in kinds:
        return told
    if type(told) is int and float in kinds:
        return float(told)
    names = " or ".join(sorted(kind.__name__ for kind in kinds))
    raise CodecError(f"{type(told).__name__} is told where {names} is expected")


def _one_of(told: object, values: tuple[object, ...]) -> object:
    if type(told) in (str, int, bool) and told in values:
        return told
    raise CodecError(f"what is told is none of {', '.join(map(str, values))}")


def _of(kind: type[T], told: object) -> T:
    if type(told) is kind:
        return told
    raise CodecError(f"{type(told).__name__} is told where {kind.__name__} is expected")


def _bytes(told: object) -> bytes:
    try:
        return base64.b64decode(_of(str, told), validate=True)
    except (binascii.Error, ValueError) as error:
        raise CodecError("it is no base64") from error


def _time(told: object) -> datetime:
    try:
        return datetime.fromisoformat(_of(str, told))
    except ValueError as error:
        raise CodecError("it is no time") from error


PATH: Final = "/v1/internal/questions"

FORWARDED: Final = "X-Ringfence-Forwarded"
"""Names the instance that forwards. What bears it is answered here or not at all."""

ACTOR: Final = "X-Ringfence-Actor"
"""For whom an instance asks, percent-encoded; believed where it is signed."""

SIGNATURE: Final = "X-Ringfence-Signature"
"""Of a reply."""

_REASONS: Final = {
    kind.__name__: kind
    for kind in (Unavailable, Busy, TimedOut, NotRestored, NotPossible, NameInUse)
}


class StatusRequest(NamedTuple):
    """Asks an instance how it does."""


class StatusReply(NamedTuple):
    """How an instance does."""

    version: str
    revision: int
    """Of the config topic, as far as it has read that."""
    status: ServiceStatus


class PeerFailure(NamedTuple):
    """Why an instance does not answer: a kind, and a sentence made of nothing that it told."""

    code: str
    sentence: str


class InstanceStatus(NamedTuple):
    """An instance, and how it does; `trouble` tells why that is not known."""

    announced: Registration
    is_own: bool
    status_reply: StatusReply | None
    trouble: PeerFailure | None


class PeerQuery(NamedTuple):
    """What is asked of one instance; after the time nobody waits for the reply."""

    to: str
    query: Query | StatusRequest
    timeout_ms: int


class QueryRefusal(NamedTuple):
    """Why there is no answer."""

    kind: str
    sentence: str
    retry_after_s: int = 1


class OwnedBy(NamedTuple):
    """A partition of an input, or of the topic by-address."""

    topic: str
    partition: int


class QueryReply(NamedTuple):
    """What an instance replies, and for which partitions it spoke."""

    instance: str
    told: Answer | StatusReply | QueryRefusal
    owned: tuple[OwnedBy, ...] = ()
    partitions_total: int = 0
    """Of all instances, as this one knows it."""


def refusal_of(reason: Exception) -> QueryRefusal | None:
    """A reason why there is no answer; None for what is an error of ours."""
    if not isinstance(reason, tuple(_REASONS.values())):
        return None
    return QueryRefusal(type(reason).__name__, str(reason), getattr(reason, "retry_after_s", 1))


def reason_of(refusal: QueryRefusal) -> Exception:
    """The same, to be raised."""
    kind = _REASONS.get(refusal.kind, Unavailable)
    if issubclass(kind, Unavailable):
        return kind(refusal.sentence, refusal.retry_after_s)
    return kind(refusal.sentence)


def owned_by(status: ServiceStatus) -> tuple[OwnedBy, ...]:
    """The partitions that an instance owns."""
    return tuple(OwnedBy(each.topic, each.partition) for each in status.partitions)


def question_text(question: PeerQuery) -> bytes:
    """As it is sent."""
    return dumps(question, PeerQuery)


def question_of(text: bytes) -> PeerQuery:
    """What was asked; CodecError where it is no question that this version knows."""
    question = loads(text, PeerQuery)
    assert isinstance(question, PeerQuery)  # the codec gives what it was asked for
    return question


def reply_text(reply: QueryReply) -> bytes:
    """As it is sent."""
    return dumps(reply, QueryReply)


def reply_of(text: bytes) -> QueryReply:
    """What was replied; CodecError where it is no reply that this version knows."""
    reply = loads(text, QueryReply)
    assert isinstance(reply, QueryReply)  # the codec gives what it was asked for
    return reply
