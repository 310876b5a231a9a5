"""The audit finds what was planted."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from ringfence_client.headers import DUPLICATE_ID
from tests.support.helpers import rows
from tools.demo.audit import Audit
from tools.demo.books import Books
from tools.demo.flights import Flight, Headers
from tools.demo.plan import Send

FLIGHTS = [Flight(b"key", b"value-%d" % number, b"id-%d" % number) for number in range(5)]
COPIED = 3
REASON = ("ringfence.reason", b"duplicate")


def unseen() -> Audit:
    """An audit of five flights, one of them sent twice."""
    books = Books(FLIGHTS)
    for number in range(5):
        books.enter(Send(number, is_copy=False), now_ms=1_000 + number)
    books.enter(Send(COPIED, is_copy=True), now_ms=2_000)
    return Audit(books)


@pytest.fixture
def audit() -> Audit:
    """It saw all but the fifth come out."""
    audit = unseen()
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


def take_dead(audit: Audit, number: int, added: Headers, before: Headers | None = None) -> None:
    flight = FLIGHTS[number]
    audit.take_dead_letter(flight.key, flight.value, [*(before or []), *flight.headers, *added])


OUT, DEAD = take, take_dead
Moves = list[tuple[Callable[..., None], int, dict[str, Any]]]


@rows(
    ("moves", "found"),
    {
        "a perfect run is faultless": (
            [(OUT, 4, {})],
            {"sent": 6, "accepted": 5, "duplicates": 1, "copies_sent": 1, "is_faultless": True},
        ),
        "a flight that never came out is missing": (
            [],
            {"missing": 1, "accepted": 4, "is_faultless": False},
        ),
        "one that came out twice is doubled, and accepted once": (
            [(OUT, 4, {}), (OUT, 2, {"late_ms": 700})],
            {"doubled": 1, "accepted": 5, "changed": 0, "is_faultless": False},
        ),
        "doubled and missing do not cancel out": (
            [(OUT, 2, {})],
            {"doubled": 1, "missing": 1, "is_faultless": False},
        ),
        "a changed dead letter is found": (
            [(OUT, 4, {}), (DEAD, 3, {"added": [REASON], "before": [("before", b"")]})],
            {"changed": 1},
        ),
        "a message of no flight is unknown": (
            [(OUT, 4, {}), *((OUT, 4, {"headers": h}) for h in ([], [(DUPLICATE_ID, b"id-9")]))],
            {"unknown": 2, "doubled": 0, "is_faultless": False},
        ),
        "another reason is no duplicate, and the last of several counts": (
            [
                (DEAD, 4, {"added": [REASON, ("ringfence.reason", b"expired")]}),
                (DEAD, 4, {"added": []}),
            ],
            {"duplicates": 1, "other_dead_letters": {"expired": 1, "none": 1}},
        ),
    },
)
def test_the_audit_finds_it(audit: Audit, moves: Moves, found: dict[str, object]) -> None:
    for move, number, changes in moves:
        move(audit, number, **changes)
    findings = audit.findings()
    assert {name: getattr(findings, name) for name in found} == found


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


def test_a_copy_that_left_no_trace_is_found(audit: Audit) -> None:
    take(audit, 4)
    found = replace(audit.findings(), duplicates=0)
    assert not found.is_faultless


def test_the_dead_letter_of_the_wrong_flight_is_found_though_the_sums_agree() -> None:
    audit = unseen()
    for number in range(5):
        take(audit, number)
    take_dead(audit, 1, [REASON])
    found = audit.findings()
    assert (found.duplicates, found.miscounted, found.is_faultless) == (1, 2, False)
