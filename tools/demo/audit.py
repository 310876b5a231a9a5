"""Audit: compares the output with the data set. Pure; it knows neither Kafka nor the service.

A message counts as accepted once, however often it came out. Further outputs are doubled, a message
without an output is missing, and one whose key, value, headers or time differ from the sent ones is
changed.
"""

from array import array
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from ringfence_client.headers import DUPLICATE_ID, DeadLetter, Reason
from tools.demo.books import Books
from tools.demo.flights import Headers


@dataclass(frozen=True, slots=True)
class Findings:
    """The result of the audit; all but the first four must be zero or empty."""

    sent: int
    copies_sent: int
    accepted: int
    duplicates: int
    missing: int
    doubled: int
    changed: int
    unknown: int
    miscounted: int
    other_dead_letters: Mapping[str, int]

    @property
    def is_faultless(self) -> bool:
        """Whether every flight came out once and unchanged, and every copy was rejected."""
        faults = self.missing, self.doubled, self.changed, self.unknown, self.miscounted
        return (
            not any(faults)
            and not self.other_dead_letters
            and self.duplicates == self.copies_sent
            and self.sent == self.accepted + self.duplicates
        )


class Audit:
    """Collects every message of the output and dead-letter topics, in any order."""

    def __init__(self, books: Books) -> None:
        flights = books.flights
        self._flights = flights
        self._books = books
        self._number_of: dict[str | bytes | None, int] = {
            flight.identifier: number for number, flight in enumerate(flights)
        }
        self._outputs = array("L", [0]) * len(flights)
        self._duplicates_of = array("L", [0]) * len(flights)
        self._other_dead_letters: Counter[str] = Counter()
        self._changed = 0
        self._unknown = 0
        self.accepted = 0
        self.duplicates = 0
        self.taken = 0

    def take_output(
        self, key: bytes | None, value: bytes | None, headers: Headers, timestamp_ms: int
    ) -> None:
        """Count a message of the output topic."""
        self.taken += 1
        number = self._find(headers)
        if number is None:
            return
        flight = self._flights[number]
        is_first = not self._outputs[number]
        self._outputs[number] += 1
        self.accepted += is_first
        # A flight's copies follow it on its partition, so the first output must be the first send.
        is_late = is_first and timestamp_ms != self._books.first_sent_ms[number]
        if is_late or (key, value, headers) != (flight.key, flight.value, flight.headers):
            self._changed += 1

    def take_dead_letter(self, key: bytes | None, value: bytes | None, headers: Headers) -> None:
        """Count a message of the dead-letter topic: the original, with headers appended."""
        self.taken += 1
        number = self._find(headers)
        if number is None:
            return
        flight = self._flights[number]
        original = flight.headers
        if value != flight.value or key != flight.key or headers[: len(original)] != original:
            self._changed += 1
        reason = dict(headers).get(DeadLetter.REASON)  # the last of several is the service's
        if reason == Reason.DUPLICATE.encode():
            self.duplicates += 1
            self._duplicates_of[number] += 1
        else:
            self._other_dead_letters[
                reason.decode(errors="replace") if isinstance(reason, bytes) else "none"
            ] += 1

    def findings(self) -> Findings:
        """Return the result, once both topics have been read to their ends."""
        pairs = zip(self._duplicates_of, self._books.copies, strict=True)
        return Findings(
            sent=self._books.sent,
            copies_sent=self._books.copies_sent,
            accepted=self.accepted,
            duplicates=self.duplicates,
            missing=self._outputs.count(0),
            doubled=sum(self._outputs) - self.accepted,
            changed=self._changed,
            unknown=self._unknown,
            miscounted=sum(found != sent for found, sent in pairs),
            other_dead_letters=dict(self._other_dead_letters),
        )

    def _find(self, headers: Headers) -> int | None:
        identifier = next((value for name, value in headers if name == DUPLICATE_ID), None)
        number = self._number_of.get(identifier)
        if number is None:
            self._unknown += 1
        return number
