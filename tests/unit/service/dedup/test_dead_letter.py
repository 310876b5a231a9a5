"""The envelope: after the record's own headers, and the last of several sets."""

import hashlib

import pytest

from ringfence_client.headers import Headers, Reason
from ringfence_service.dedup.dead_letter import (
    EARLIER_SETS_MAX,
    ID_CHARS_MAX,
    DeadLetterEnvelope,
    parse_headers,
    shown_id,
    stored_id_of,
)
from ringfence_state.model import IMPORTED, Origin, Rejection, repetition_of
from ringfence_state.segment import remembered
from tests.support.deciding import NOW_MS, SOURCE, record, told

OLD = [("h", b"1"), ("ringfence.reason", b"expired"), ("h", None)]


def test_the_envelope_tells_everything_that_is_known() -> None:
    rejection = Rejection(Reason.DUPLICATE, "seen", "orders-0@3")
    letter = DeadLetterEnvelope(SOURCE, "addr", "ring").letter(record(7), OLD, b"id", rejection)
    assert list(letter[:3]) == OLD
    assert told(letter) == {
        "ringfence.reason": "duplicate",
        "ringfence.cause": "seen",
        "ringfence.topic": "orders",
        "ringfence.partition": "1",
        "ringfence.offset": "7",
        "ringfence.timestamp": str(NOW_MS - 1000),
        "ringfence.address": "addr",
        "ringfence.strategy": "ring",
        "ringfence.id": "id",
        "ringfence.original": "orders-0@3",
    }


def test_what_is_not_known_is_left_out() -> None:
    rejection = Rejection(Reason.NO_ADDRESS, "c")
    letter = told(DeadLetterEnvelope(SOURCE, None).letter(record(7), [], None, rejection))
    absent = {"address", "strategy", "id", "original"}
    assert not {f"ringfence.{name}" for name in absent} & letter.keys()


def test_an_empty_id_is_written_and_a_long_one_is_cut() -> None:
    end = "…sha256:" + hashlib.sha256(b"x" * 9999).hexdigest()
    cut = "x" * (ID_CHARS_MAX - len(end)) + end
    for identifier, text in [(b"", ""), (b"x" * 9999, cut), (b"\xff", "hex:ff")]:
        rejection = Rejection(Reason.EXPIRED, "late")
        letter = told(DeadLetterEnvelope(SOURCE, "a").letter(record(7), [], identifier, rejection))
        assert letter["ringfence.id"] == text


@pytest.mark.parametrize("accepted_at", [3, IMPORTED])
def test_a_duplicate_on_the_fast_path_has_the_same_dead_letter(accepted_at: int) -> None:
    origin, copy = Origin("orders", 0, accepted_at, NOW_MS), record(7)
    envelope = DeadLetterEnvelope(SOURCE, "addr", "ring")
    fast = envelope.repetition(OLD, 7, NOW_MS - 1000, b"id", origin)
    assert fast == envelope.letter(copy, OLD, b"id", repetition_of(origin))


def rounds(count: int, own: list[tuple[str, bytes | None]]) -> list[tuple[str, bytes | None]]:
    """The headers after so many rounds of a consumer that copies dead letters to the input."""
    headers = own
    for offset in range(count):
        why = Rejection(Reason.EXPIRED, f"round {offset}")
        envelope = DeadLetterEnvelope(SOURCE, "a")
        headers = list(envelope.letter(record(offset), headers, b"id", why))
    return headers


def causes(headers: Headers) -> list[bytes | None]:
    return [value for name, value in headers if name == "ringfence.cause"]


def test_a_dead_letter_keeps_the_first_and_the_last_sets_of_earlier_ones() -> None:
    own: list[tuple[str, bytes | None]] = [("a", b"1"), ("ringfence.duplicate", b"x-0@1")]
    kept = EARLIER_SETS_MAX + 1
    for count in range(1, 12):
        headers = rounds(count, own)
        first, *last = causes(headers)
        assert first == b"round 0"
        assert last == [b"round %d" % n for n in range(max(1, count - kept + 1), count)]
        assert headers[:2] == own
        assert parse_headers(headers).envelope["ringfence.offset"] == str(count - 1)
    assert len(rounds(50, own)) == len(rounds(kept, own))


def test_what_is_no_set_of_ours_is_never_removed_and_what_stands_between_stays() -> None:
    alone: list[tuple[str, bytes | None]] = [("ringfence.reason", b"mine")] * 9
    assert rounds(1, alone)[:9] == alone
    headers = [*alone]
    for offset in range(9):
        headers = [*rounds(1, headers), ("hop", b"%d" % offset)]
    assert headers[:9] == alone
    assert [value for name, value in headers if name == "hop"] == [b"%d" % n for n in range(9)]


@pytest.mark.parametrize(
    "identifier", [b"x" * 1025, b"\xff" * 600, "é".encode() * 5_000, b"hex:" * 400]
)
def test_what_a_cut_id_shows_is_enough_to_find_it(identifier: bytes) -> None:
    assert stored_id_of(shown_id(identifier)) == remembered(identifier)


@pytest.mark.parametrize(
    "text", ["x" * 1024, "x" * 952 + "…sha256:" + "X" * 64, "…sha256:" + "a" * 64]
)
def test_other_texts_are_no_cut_ids(text: str) -> None:
    assert stored_id_of(text) is None
