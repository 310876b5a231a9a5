"""Messages: what one instance asks of another over HTTP, and what that replies.

Whatever a loop can be asked can be asked of another instance; besides, how that one does. The
names stay: instances of two versions talk to each other while one is replaced by the other.
"""

from typing import Final, NamedTuple

from service.control import Busy, NameInUse, NotPossible, NotRestored, TimedOut, Unavailable
from service.fleet import codec
from service.instances import Announcement
from service.queries.table import Answer, Query
from service.status import Status

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


class RollCall(NamedTuple):
    """Asks an instance how it does."""


class Roll(NamedTuple):
    """How an instance does."""

    version: str
    revision: int
    """Of the config topic, as far as it has read that."""
    status: Status


class Trouble(NamedTuple):
    """Why an instance does not answer: a kind, and a sentence made of nothing that it told."""

    code: str
    sentence: str


class Attendance(NamedTuple):
    """An instance, and how it does; `trouble` tells why that is not known."""

    announced: Announcement
    is_own: bool
    roll: Roll | None
    trouble: Trouble | None


class Question(NamedTuple):
    """What is asked of one instance; after the time nobody waits for the reply."""

    to: str
    query: Query | RollCall
    timeout_ms: int


class Refusal(NamedTuple):
    """Why there is no answer."""

    kind: str
    sentence: str
    retry_after_s: int = 1


class Place(NamedTuple):
    """A partition of an input, or of the topic by-address."""

    topic: str
    partition: int


class Reply(NamedTuple):
    """What an instance replies, and for which partitions it spoke."""

    instance: str
    told: Answer | Roll | Refusal
    owned: tuple[Place, ...] = ()
    partitions_total: int = 0
    """Of all instances, as this one knows it."""


def refusal_of(reason: Exception) -> Refusal | None:
    """A reason why there is no answer; None for what is an error of ours."""
    if not isinstance(reason, tuple(_REASONS.values())):
        return None
    return Refusal(type(reason).__name__, str(reason), getattr(reason, "retry_after_s", 1))


def reason_of(refusal: Refusal) -> Exception:
    """The same, to be raised."""
    kind = _REASONS.get(refusal.kind, Unavailable)
    if issubclass(kind, Unavailable):
        return kind(refusal.sentence, refusal.retry_after_s)
    return kind(refusal.sentence)


def owned_by(status: Status) -> tuple[Place, ...]:
    """The partitions that an instance owns."""
    return tuple(Place(each.topic, each.partition) for each in status.partitions)


def question_text(question: Question) -> bytes:
    """As it is sent."""
    return codec.dumps(question, Question)


def question_of(text: bytes) -> Question:
    """What was asked; CodecError where it is no question that this version knows."""
    question = codec.loads(text, Question)
    assert isinstance(question, Question)  # the codec gives what it was asked for
    return question


def reply_text(reply: Reply) -> bytes:
    """As it is sent."""
    return codec.dumps(reply, Reply)


def reply_of(text: bytes) -> Reply:
    """What was replied; CodecError where it is no reply that this version knows."""
    reply = codec.loads(text, Reply)
    assert isinstance(reply, Reply)  # the codec gives what it was asked for
    return reply
