"""Peer protocol: the messages between instances, as JSON.

A named tuple becomes a list of its fields; where several types are possible, an object names the
type. A value that does not match its type exactly is refused: a field that one side does not know
may be the one that matters.
"""

from collections.abc import Iterable
from functools import cache
from typing import Any, Final, NamedTuple, get_args

from pydantic import BaseModel, ConfigDict, ValidationError, create_model

from ringfence_service.metadata.instances import Registration
from ringfence_service.queries.errors import (
    Busy,
    NameInUse,
    NotPossible,
    NotRestored,
    TimedOut,
    Unavailable,
)
from ringfence_service.queries.registry import Answer, Query
from ringfence_service.queries.status import ServiceStatus
from ringfence_state.model import PartitionId

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
    return tuple(each.source for each in status.partitions)


class CodecError(ValueError):
    """The text is not a message that this version knows."""


def encode_query(query: PeerQuery) -> bytes:
    """Return the body of the request."""
    return _encode(_query_body(), query._asdict(), "query")


def decode_query(text: bytes) -> PeerQuery:
    """Return the query in a request; CodecError if this version does not know it."""
    return PeerQuery(**_decode(_query_body(), text, "query"))


def encode_reply(reply: QueryReply) -> bytes:
    """Return the body of the response."""
    return _encode(_reply_body(), reply._asdict(), "outcome")


def decode_reply(text: bytes) -> QueryReply:
    """Return the reply in a response; CodecError if this version does not know it."""
    return QueryReply(**_decode(_reply_body(), text, "outcome"))


_CONFIG: Final = ConfigDict(
    strict=True,
    extra="forbid",
    ser_json_bytes="base64",
    val_json_bytes="base64",
    ser_json_inf_nan="constants",
)


# The models are built when they are first needed: most starts of the service need none.
@cache
def _query_body() -> type[BaseModel]:
    query = _one_of("AnyQuery", (*get_args(Query), StatusRequest))
    return create_model(
        "QueryBody", __config__=_CONFIG, to=(str, ...), query=(query, ...), timeout_ms=(int, ...)
    )


@cache
def _reply_body() -> type[BaseModel]:
    outcome = _one_of("AnyOutcome", (*get_args(Answer), StatusReply, QueryRefusal))
    return create_model(
        "ReplyBody",
        __config__=_CONFIG,
        instance=(str, ...),
        outcome=(outcome, ...),
        owned=(tuple[PartitionId, ...], ...),
        partitions_total=(int, ...),
    )


def _one_of(name: str, kinds: Iterable[Any]) -> type[BaseModel]:
    """Return a model that holds one value, in the field that is named like its type."""
    fields: dict[str, Any] = {kind.__name__: (kind | None, None) for kind in kinds}
    return create_model(name, __config__=_CONFIG, **fields)


def _encode(body: type[BaseModel], fields: dict[str, Any], several: str) -> bytes:
    """Encode a message; `several` is the field of which several types are possible."""
    value, model = fields[several], body.model_fields[several].annotation
    assert model is not None  # one of `_one_of`
    fields[several] = model.model_construct(**{type(value).__name__: value})
    return body.model_construct(**fields).model_dump_json(exclude_unset=True).encode()


def _decode(body: type[BaseModel], text: bytes, several: str) -> dict[str, Any]:
    """Return the fields of a message; CodecError if the text is not one."""
    try:
        fields = dict(body.model_validate_json(text))
    except ValidationError as error:
        (first, *_) = error.errors(include_url=False, include_input=False, include_context=False)
        where = ".".join(map(str, first["loc"]))[:80]
        raise CodecError(f"{where or 'the text'}: {first['msg']}") from error
    found = [value for _, value in fields[several] if value is not None]
    if len(found) != 1:
        raise CodecError(f"{several}: it has {len(found)} values, expected one")
    return {**fields, several: found[0]}
