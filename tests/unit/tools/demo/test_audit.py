"""The audit finds what was planted."""

from dataclasses import replace
from typing import Any

import pytest

from ringfence.headers import DUPLICATE_ID
from tools.demo.audit import Audit, Findings
from tools.demo.books import Books
from tools.demo.flights import Flight, Headers
from tools.demo.plan import Send

FLIGHTS = [Flight(b"key", b"value-%d" % number, b"id-%d" % number) for number in range(5)]
COPIED = 3
REASON = ("ringfence.reason", b"duplicate")


@pytest.fixture
def audit() -> Audit:
    """An audit of five flights, one of them sent twice, that saw all but the fifth come out."""
    books = Books(FLIGHTS)
    for number in range(5):
        books.enter(Send(number, is_copy=False), now_ms=1_000 + number)
    books.enter(Send(COPIED, is_copy=True), now_ms=2_000)
    audit = Audit(books)
    for number in range(4):
        take(audit, number)
    take_dead(audit, COPIED, [REASON])
    return audit


def take(audit: Audit, number: int, *, late_ms: int = 0, **changes: Any) -> None:
    flight = FLIGHTS[number]
    message: dict[str, Any] = {
        "key": flight.key,
        "value": flight.value,
        "headers": flight.headers,
        **changes,
    }
    audit.take_output(**message, timestamp_ms=1_000 + number + late_ms)


def take_dead(audit: Audit, number: int, added: Headers) -> None:
    flight = FLIGHTS[number]
    audit.take_dead_letter(flight.key, flight.value, [*flight.headers, *added])


def test_a_perfect_run_is_faultless(audit: Audit) -> None:
    take(audit, 4)
    found = audit.findings()
    assert found.is_faultless
    assert (found.sent, found.accepted, found.duplicates, found.copies_sent) == (6, 5, 1, 1)


def test_a_flight_that_never_came_out_is_missing(audit: Audit) -> None:
    found = audit.findings()
    assert (found.missing, found.accepted, found.is_faultless) == (1, 4, False)


def test_a_flight_that_came_out_twice_is_doubled_and_counts_as_accepted_once(audit: Audit) -> None:
    take(audit, 4)
    take(audit, 2, late_ms=700)
    found = audit.findings()
    assert (found.doubled, found.accepted, found.changed, found.is_faultless) == (1, 5, 0, False)


def test_doubled_and_missing_do_not_cancel_out(audit: Audit) -> None:
    take(audit, 2)
    found = audit.findings()
    assert (found.doubled, found.missing, found.is_faultless) == (1, 1, False)


@pytest.mark.parametrize(
    "change",
    [
        {"key": b"other"},
        {"key": None},
        {"value": b"value-4 "},
        {"value": None},
        {"headers": [(DUPLICATE_ID, b"id-4"), ("more", b"")]},
        {"late_ms": 1},
    ],
    ids=str,
)
def test_a_change_of_key_value_headers_or_time_is_found(
    audit: Audit, change: dict[str, Any]
) -> None:
    take(audit, 4, **change)
    found = audit.findings()
    assert (found.changed, found.missing, found.is_faultless) == (1, 0, False)


def test_a_changed_dead_letter_is_found(audit: Audit) -> None:
    take(audit, 4)
    audit.take_dead_letter(b"key", b"value-3", [("before", b""), *FLIGHTS[3].headers, REASON])
    assert audit.findings().changed == 1


def test_a_message_of_no_flight_is_unknown(audit: Audit) -> None:
    take(audit, 4)
    take(audit, 4, headers=[])
    take(audit, 4, headers=[(DUPLICATE_ID, b"id-9")])
    found = audit.findings()
    assert (found.unknown, found.doubled, found.is_faultless) == (2, 0, False)


def test_a_copy_that_left_no_trace_is_found(audit: Audit) -> None:
    take(audit, 4)
    found = replace(audit.findings(), duplicates=0)
    assert not found.is_faultless


def test_the_dead_letter_of_the_wrong_flight_is_found_though_the_sums_agree() -> None:
    books = Books(FLIGHTS)
    for number in range(5):
        books.enter(Send(number, is_copy=False), now_ms=1_000 + number)
    books.enter(Send(COPIED, is_copy=True), now_ms=2_000)
    audit = Audit(books)
    for number in range(5):
        take(audit, number)
    take_dead(audit, 1, [REASON])
    found = audit.findings()
    assert (found.duplicates, found.miscounted, found.is_faultless) == (1, 2, False)


def test_another_reason_is_no_duplicate_and_the_last_of_several_reasons_counts(
    audit: Audit,
) -> None:
    take_dead(audit, 4, [REASON, ("ringfence.reason", b"expired")])
    take_dead(audit, 4, [])
    found: Findings = audit.findings()
    assert found.duplicates == 1
    assert found.other_dead_letters == {"expired": 1, "none": 1}
    assert not found.is_faultless
