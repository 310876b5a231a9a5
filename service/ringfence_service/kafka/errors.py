"""Kafka errors: classification of each error by what it means for its transaction.

An error caused by the record dead-letters the record. An error of the broker is waited out and
never dead-letters anything. Fencing ends the producer, and state is read from the broker again.
"""

from collections.abc import Callable
from enum import Enum
from typing import Final, NamedTuple, TypeVar

from confluent_kafka import KafkaError, KafkaException

from ringfence_client.headers import Reason
from ringfence_service.config.kafka_properties import RECEIVE
from ringfence_state.model import Rejection

Failure = TypeVar("Failure", bound=BaseException)


class Recovery(Enum):
    """How to recover from a failure."""

    RETRY = "repeat the call"
    ABORT = "abort, drop the draft, read the batch again"
    REBUILD = "the outcome is unknown: new producer and consumer, state from the broker"


class KafkaFailure(NamedTuple):
    """A classified error of a Kafka client."""

    remedy: Recovery
    of_record: bool
    fenced: bool
    cause: str
    of_group: bool = False
    """Our generation or member id is outdated, or the group is rebalancing."""
    raised: Exception | None = None
    """The exception of the record's checks; None if the broker refused the record."""
    waits_for: str | None = None
    """What has to happen first, if that is not up to the broker."""
    denied: bool = False
    """Authentication or authorization failed: only an administrator can change that."""
    too_large: bool = False
    """The record is larger than its topic or the client allows."""
    topic: str | None = None
    """The topic that refused the record, if that is known."""


def rejection_of(failure: KafkaFailure) -> Rejection:
    """Return the rejection of a record that the broker refused with this failure."""
    cause = f"the broker refused it: {failure.cause}"
    if not failure.too_large:
        return Rejection(Reason.REFUSED, cause)
    return Rejection(Reason.TOO_LARGE, f"{cause}; raise max.message.bytes of the topic")


CLIENT_ERROR: Final = KafkaException
"""What calls of the client raise."""
ClientError = KafkaError
"""What the client reports of a record that was not delivered."""
BYSTANDER: Final = KafkaError._INVALID_DIFFERENT_RECORD  # noqa: SLF001 - the binding's name
"""Code for a record that was not stored because the broker refused others of its batch."""


class KafkaFailureError(Exception):
    """A failure that ends the current operation."""

    def __init__(self, fault: KafkaFailure) -> None:
        super().__init__(fault.cause)
        self.fault = fault


NOT_A_MEMBER: Final = KafkaFailure(
    Recovery.ABORT,
    of_record=False,
    fenced=False,
    cause="this instance is not a member of the group",
)
REBALANCED: Final = NOT_A_MEMBER._replace(cause="the group was rebalanced")
ASTRAY: Final = NOT_A_MEMBER._replace(remedy=Recovery.REBUILD, cause="the consumer finds no broker")
CROWDED: Final = NOT_A_MEMBER._replace(
    cause="its addresses or groups need more memory than one transaction may use"
)
OUTDATED: Final = NOT_A_MEMBER._replace(cause="the settings changed in the meantime")
UNCOMPRESSED: Final = NOT_A_MEMBER._replace(
    cause="a record fits its topic only when it is compressed: it is read again and compressed"
)
DOUBTED: Final = NOT_A_MEMBER._replace(
    cause="the leader or the id of a topic changed: its id is checked before anything is committed"
)
PRECAUTIONS: Final = frozenset({REBALANCED, OUTDATED, DOUBTED, UNCOMPRESSED})
"""Reasons for aborts that occur in normal operation: the batch is read again at once."""

_RECORD_ERRORS: Final = frozenset(
    {
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.INVALID_TIMESTAMP,
        KafkaError.INVALID_RECORD,
        KafkaError.INVALID_MSG,
    }
)
_FENCED_ERRORS: Final = frozenset(
    {
        KafkaError._FENCED,  # noqa: SLF001 - the binding's own name for it
        KafkaError.PRODUCER_FENCED,
        KafkaError.INVALID_PRODUCER_EPOCH,
        KafkaError.FENCED_INSTANCE_ID,
        KafkaError.TRANSACTION_COORDINATOR_FENCED,
    }
)


_GROUP_ERRORS: Final = frozenset(
    {
        KafkaError.ILLEGAL_GENERATION,
        KafkaError.REBALANCE_IN_PROGRESS,
        KafkaError.UNKNOWN_MEMBER_ID,
    }
)

_DENIALS: Final = frozenset(
    {
        KafkaError._AUTHENTICATION,  # noqa: SLF001 - the binding's own name for it
        KafkaError.SASL_AUTHENTICATION_FAILED,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    }
)

UNREADABLE_BATCH: Final[int] = KafkaError._BAD_COMPRESSION  # noqa: SLF001 - its name
"""A consumer's error for a batch that it refuses to unpack, and cannot pass."""

REFUSALS: Final = frozenset(
    {
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
    }
)
"""Errors with which a broker refuses a consumer; they are delivered among the messages."""

# The broker's own reason for not storing records never reaches the client's caller.
_UNDELIVERED: Final = "; are enough replicas in sync?"
_HINTS: Final = {
    KafkaError._MSG_TIMED_OUT: _UNDELIVERED,  # noqa: SLF001
    KafkaError.CONCURRENT_TRANSACTIONS: "; if it stays so, are enough replicas in sync?",
    UNREADABLE_BATCH: f'; raise "{RECEIVE}" in [kafka.consumer]',
}


def fault_of(error: KafkaError) -> KafkaFailure:
    """Classify an error of a producer or a consumer."""
    code = error.code()
    # A static member that was replaced gets one fatal error, which lacks its own code.
    is_fatal = error.fatal() or code == KafkaError._FATAL  # noqa: SLF001 - the binding's name
    fenced = code in _FENCED_ERRORS or (is_fatal and "fenced" in error.str().lower())
    if is_fatal or fenced:
        remedy = Recovery.REBUILD
    elif error.txn_requires_abort():
        remedy = Recovery.ABORT
    elif error.retriable() or code == KafkaError._TIMED_OUT:  # noqa: SLF001 - as above
        remedy = Recovery.RETRY
    else:
        remedy = Recovery.ABORT
    of_member = fenced and (code == KafkaError.FENCED_INSTANCE_ID or "consumer" in error.str())
    hint = _HINTS.get(code, "")
    if code == KafkaError._TIMED_OUT and error.txn_requires_abort():  # noqa: SLF001
        hint = _UNDELIVERED  # records in flight timed out, not a response
    cause = f"{error.name()}: {error.str()}{hint}"
    return KafkaFailure(
        remedy,
        of_record=code in _RECORD_ERRORS,
        fenced=fenced,
        cause=cause,
        of_group=of_member or code in _GROUP_ERRORS,
        denied=code in _DENIALS,
        too_large=code == KafkaError.MSG_SIZE_TOO_LARGE,
    )


def waited_for(cause: str, explain: Callable[[str], str | None], where: str = "the broker") -> str:
    """Return what a process waits for that met this cause, as far as `explain` knows it."""
    return explain(cause) or f"{where}, which answered {cause}; see its log and the user's ACLs"


def without_frames(error: Failure) -> Failure:
    """Remove the tracebacks of an error and of its causes, and return it.

    An exception that is being handled while a call of the Kafka client fails is never freed (the
    binding, 2.16). Its frames would keep their variables alive: a client, with its threads.
    """
    link: BaseException | None = error
    while link is not None and link.__traceback__ is not None:
        link.__traceback__ = None
        link = link.__cause__ or link.__context__
    return error
