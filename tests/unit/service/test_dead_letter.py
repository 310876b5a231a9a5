"""The envelope: after the record's own headers, and the last of several sets."""

from ringfence.headers import Reason
from service.dead_letter import ID_CHARS_MAX, envelope
from service.rejection import RejectedError
from tests.unit.service.deciding import NOW_MS, SOURCE, record, told

OLD = [("h", b"1"), ("ringfence.reason", b"expired"), ("h", None)]


def test_the_envelope_tells_everything_that_is_known() -> None:
    rejection = RejectedError(Reason.DUPLICATE, "seen", "orders-0@3")
    letter = envelope(record(7), OLD, SOURCE, "addr", b"id", rejection)
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
    rejection = RejectedError(Reason.NO_ADDRESS, "c")
    letter = told(envelope(record(7), [], SOURCE, None, None, rejection))
    absent = {"address", "strategy", "id", "original"}
    assert not {f"ringfence.{name}" for name in absent} & letter.keys()


def test_the_empty_id_is_told_and_a_long_one_is_cut() -> None:
    for identifier, text in [(b"", ""), (b"x" * 9999, "x" * ID_CHARS_MAX), (b"\xff", "hex:ff")]:
        rejection = RejectedError(Reason.EXPIRED, "late")
        letter = told(envelope(record(7), [], SOURCE, "a", identifier, rejection))
        assert letter["ringfence.id"] == text
