"""Refusal trace: who is named for a transaction that failed, and who is not."""

from typing import NamedTuple

import pytest
from confluent_kafka import KafkaError

from ringfence_client.headers import Reason
from ringfence_service.dedup.plan import BatchCounts, OnDelivery, Output
from ringfence_service.dedup.refusal_trace import (
    NamedRecord,
    OutputCounts,
    RefusalTrace,
    Refused,
    UndecidedError,
)
from ringfence_service.kafka.errors import KafkaFailure, Recovery
from ringfence_state.model import PartitionId
from tests.support.helpers import rows, some

SOURCE = PartitionId("orders", 0)
FAULT = KafkaFailure(Recovery.ABORT, of_record=True, fenced=False, cause="of the transaction")
NONE, REPLY, LETTER = OutputCounts(0, 0), OutputCounts(1, 0), OutputCounts(0, 1)
INVALID, BYSTANDER = KafkaError.INVALID_RECORD, KafkaError._INVALID_DIFFERENT_RECORD
TOO_LARGE, PURGED = KafkaError.MSG_SIZE_TOO_LARGE, KafkaError._PURGE_QUEUE


class Place(NamedTuple):
    """Where an output was sent."""

    name: str = "orders.unique"
    number: int = 0

    def topic(self) -> str:
        return self.name

    def partition(self) -> int:
        return self.number


OUTPUT: Output = ("orders.unique", b"value", b"key", 0, None, None, 1, [])
HERE = Place()


def sent(
    trace: RefusalTrace, offset: int, counts: OutputCounts = NONE, outputs: int = 1
) -> list[OnDelivery]:
    """Outputs of one record; returns the callbacks for their reports."""
    watched = trace.watched((SOURCE, offset), [OUTPUT] * outputs, counts)
    assert [each[:4] + each[5:] for each in watched] == [OUTPUT[:4] + OUTPUT[5:]] * outputs
    return [some(each[4]) for each in watched]


def report(trace: RefusalTrace, *codes: int | None, place: Place = HERE) -> None:
    """A report for one output of each record, from offset 0 on."""
    for offset, code in enumerate(codes):
        (take,) = sent(trace, offset)
        take(None if code is None else KafkaError(code), place)


def named(trace: RefusalTrace, fault: KafkaFailure = FAULT) -> list[int]:
    return sorted(offset for _, offset in trace.named(fault))


@rows(
    ("codes", "offsets", "is_ambiguous"),
    {
        "those that the broker names": ([INVALID, BYSTANDER, INVALID], [0, 2], False),
        "one that was alone": ([None, INVALID, None], [1], False),
        "nobody, if all were reported alike": ([INVALID, INVALID], [], True),
        "each that is too large": ([TOO_LARGE, None, TOO_LARGE], [0, 2], False),
        "nobody, if none was refused": ([None, PURGED], [], False),
    },
)
def test_records_are_named_if_it_is_certain(
    codes: list[int | None], offsets: list[int], *, is_ambiguous: bool
) -> None:
    trace = RefusalTrace(frozenset({SOURCE}))
    report(trace, *codes)
    assert trace.is_ambiguous == is_ambiguous
    assert named(trace) == offsets


def test_a_broker_that_named_a_record_means_all_that_it_names() -> None:
    trace = RefusalTrace(frozenset({SOURCE}))
    report(trace, INVALID, BYSTANDER)
    report(trace, INVALID, INVALID, place=Place("other"))
    assert named(trace) == [0, 1]
    assert not trace.is_ambiguous


def test_one_that_was_reported_alone_is_not_certain_while_others_are_not_traced() -> None:
    trace = RefusalTrace(frozenset({SOURCE}), is_whole=False)
    report(trace, INVALID)
    assert not named(trace)


def test_what_is_refused_alone_in_each_of_two_batches_is_certain() -> None:
    trace = RefusalTrace(frozenset({SOURCE}))
    report(trace, INVALID)
    report(trace, None, INVALID, place=Place(number=1))
    assert named(trace) == [0, 1]


@rows(
    ("counts", "refused", "what"),
    {
        "its only output": (NONE, 0, Refused.RECORD),
        "its reply": (REPLY, 1, Refused.REPLY),
        "its output, and not its reply": (REPLY, 0, Refused.RECORD),
        "a dead letter, or itself": (LETTER, 0, Refused.DEAD_LETTER),
        "a reply beside a dead letter": (OutputCounts(1, 1), 1, Refused.REPLY),
    },
)
def test_what_was_refused_of_a_record_is_given_up_first(
    counts: OutputCounts, refused: int, what: Refused
) -> None:
    trace = RefusalTrace(frozenset({SOURCE}), broker_names_records=True)
    reports = sent(trace, 3, counts, outputs=2)
    reports[refused](KafkaError(INVALID), HERE)
    reports[1 - refused](KafkaError(BYSTANDER), HERE)
    named = NamedRecord(what, FAULT._replace(topic=HERE.topic()))
    assert trace.named(FAULT) == {(SOURCE, 3): named}


def test_a_reply_is_given_up_before_the_record_if_both_were_refused() -> None:
    trace = RefusalTrace(frozenset({SOURCE}), broker_names_records=True)
    for take in sent(trace, 3, REPLY, outputs=2):
        take(KafkaError(INVALID), HERE)
    assert trace.named(FAULT)[SOURCE, 3].what is Refused.REPLY


def test_a_record_that_is_too_large_says_so_in_a_transaction_that_failed_for_another() -> None:
    trace = RefusalTrace(frozenset({SOURCE}))
    report(trace, TOO_LARGE)
    failure = trace.named(FAULT)[SOURCE, 0].failure
    assert failure.too_large
    assert failure.cause.startswith("MSG_SIZE_TOO_LARGE")


def test_an_error_of_the_broker_names_no_record() -> None:
    trace = RefusalTrace(frozenset({SOURCE}))
    report(trace, KafkaError.NOT_ENOUGH_REPLICAS)
    assert not named(trace)


@rows(
    ("code", "is_complete"),
    {
        "stored": (None, True),
        "refused": (INVALID, True),
        "refused for another": (BYSTANDER, True),
        "never sent": (PURGED, False),
    },
)
def test_outputs_that_were_never_sent_may_be_refused_later(
    code: int | None, *, is_complete: bool
) -> None:
    trace = RefusalTrace(frozenset({SOURCE}))
    report(trace, code)
    assert trace.is_complete == is_complete


def test_the_records_whose_checks_failed_are_named_with_their_exceptions() -> None:
    trace, failure = RefusalTrace(frozenset({SOURCE})), FAULT._replace(raised=LookupError("no"))
    trace.check()
    trace.failures[SOURCE, 5] = failure
    with pytest.raises(UndecidedError) as undecided:
        trace.check()
    assert undecided.value.fault is failure
    assert trace.named(FAULT) == {(SOURCE, 5): NamedRecord(Refused.RECORD, failure)}


def test_replies_that_could_not_be_sent_are_no_outputs() -> None:
    tally = BatchCounts()
    tally.replies["orders", "sent"], tally.replies["orders", "no-topic"] = 2, 1
    tally.dead_letters["orders", Reason.DUPLICATE] = 3
    assert OutputCounts.of(tally) == (2, 3)
    assert OutputCounts.of(tally).since(OutputCounts(1, 3)) == (1, 0)
