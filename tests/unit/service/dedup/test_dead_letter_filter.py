"""What a dead letter tells of itself, and which ones a filter lets through."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringfence_client.headers import DeadLetter, Headers
from ringfence_service.dedup.dead_letter import SourcePosition, parse_headers
from ringfence_service.queries.dead_letters import (
    DeadLetterFilter,
    DeadLetterPosition,
    DeadLetterView,
    letter_of,
    matches,
    view_of,
)
from ringfence_state.model import OFFSET_MAX
from tests.support.helpers import some

PLACE = DeadLetterPosition("orders.dlq", 2, 11)


def ours(**changes: str) -> list[tuple[str, bytes | None]]:
    """The headers that stand after the original ones."""
    known = {
        "reason": "duplicate",
        "cause": "its id was accepted already",
        "topic": "orders",
        "partition": "3",
        "offset": "42",
        "timestamp": "1500000000000",
        "address": "a",
        "strategy": "ring",
        "id": "x",
        "original": "orders-3@7",
    }
    return [(f"ringfence.{name}", text.encode()) for name, text in {**known, **changes}.items()]


def view(headers: Headers, key: bytes | None = b"k", time_ms: int = 1_000) -> DeadLetterView:
    return view_of(PLACE, time_ms, key, b"v", headers)


OWN: list[tuple[str, bytes | None]] = [("a", b"1"), ("b", None), ("a", b"2"), ("c", b"")]


def test_the_original_headers_come_back_in_their_order_with_repeats_and_nulls() -> None:
    letter = some(letter_of(view([*OWN, *ours()])))
    assert letter.headers == tuple(OWN)
    assert (letter.source, letter.offset(), letter.timestamp()) == (
        ("orders", 3),
        42,
        (1, 1_500_000_000_000),
    )


def test_of_several_sets_the_last_is_ours_and_those_before_it_belong_to_the_record() -> None:
    earlier = ours(reason="expired", topic="elsewhere", redrives="4")
    seen = view([*OWN, *earlier, *ours(redrives="1")])
    assert (seen.reason, seen.redrives) == ("duplicate", 1)
    assert seen.source == SourcePosition("orders", 3, 42, 1_500_000_000_000)
    assert list(seen.headers) == [*OWN, *earlier]


def test_what_somebody_added_after_our_set_is_kept() -> None:
    headers = [*OWN, *ours(), ("mirror", b"m")]
    assert list(view(headers).headers) == [*OWN, ("mirror", b"m")]
    assert "mirror" not in parse_headers(headers).envelope


@pytest.mark.parametrize(
    "headers",
    [
        [],
        OWN,
        [("ringfence.reason", b"duplicate")],
        ours(partition="minus one"),
        ours(partition="-1"),
        ours(partition=str(2**31)),
        ours(offset=str(OFFSET_MAX + 1)),
        ours(offset="0" * 20),
        ours(offset="9" * 5000),
        ours(offset="\N{SUPERSCRIPT TWO}"),
        ours(topic=""),
    ],
)
def test_a_record_that_does_not_tell_its_place_is_foreign(headers: Headers) -> None:
    seen = view(headers)
    assert seen.source is None
    assert seen.reason is None
    assert seen.headers == tuple(headers)
    assert letter_of(seen) is None


def test_the_largest_numbers_of_an_origin_are_a_place_too() -> None:
    partition, offset = 2**31 - 1, OFFSET_MAX
    seen = view(ours(partition=str(partition), offset=str(offset)))
    assert some(seen.source)[1:3] == (partition, offset)


def test_a_letter_without_a_readable_time_has_none() -> None:
    letter = some(letter_of(view(ours(timestamp=""))))
    assert letter.timestamp_ms == -1


names = st.one_of(st.sampled_from([name.value for name in DeadLetter]), st.text(max_size=5))
headers = st.lists(st.tuples(names, st.none() | st.binary(max_size=5)), max_size=12)


@given(headers)
def test_no_headers_break_anything_and_what_is_not_ours_is_never_lost(
    anything: list[tuple[str, bytes | None]],
) -> None:
    found = parse_headers(anything)
    if found.source is None:
        assert list(found.original) == anything
    kept = [each for each in anything if not each[0].startswith("ringfence.")]
    assert [each for each in found.original if not each[0].startswith("ringfence.")] == kept


@given(headers)
def test_what_we_add_is_what_is_taken_off_again(own: list[tuple[str, bytes | None]]) -> None:
    assert list(parse_headers([*own, *ours()]).original) == own


@pytest.mark.parametrize(
    ("wanted", "is_meant"),
    [
        (DeadLetterFilter(), True),
        (DeadLetterFilter(address="a"), True),
        (DeadLetterFilter(address="b"), False),
        (DeadLetterFilter(reasons=("expired", "duplicate")), True),
        (DeadLetterFilter(reasons=("expired",)), False),
        (DeadLetterFilter(from_ms=1_000), True),
        (DeadLetterFilter(from_ms=1_001), False),
        (DeadLetterFilter(to_ms=1_001), True),
        (DeadLetterFilter(to_ms=1_000), False),
        (DeadLetterFilter(key=b"k"), True),
        (DeadLetterFilter(key=b""), False),
        (DeadLetterFilter(headers=(("a", b"2"),)), True),
        (DeadLetterFilter(headers=(("a", b"1"), ("a", b"2"))), True),
        (DeadLetterFilter(headers=(("b", b""),)), False),
        (DeadLetterFilter(headers=(("ringfence.reason", b"duplicate"),)), False),
        (DeadLetterFilter(source=("orders", 3, 42)), True),
        (DeadLetterFilter(source=("orders", 3, 43)), False),
        (DeadLetterFilter(address="a", key=b"other"), False),
    ],
)
def test_a_filter_lets_through_what_fits_all_of_it(
    wanted: DeadLetterFilter,
    is_meant: bool,  # noqa: FBT001
) -> None:
    assert matches(view([*OWN, *ours()]), wanted) is is_meant


def test_a_foreign_record_has_neither_address_nor_reason() -> None:
    assert matches(view(OWN), DeadLetterFilter(key=b"k"))
    assert not matches(view(OWN), DeadLetterFilter(reasons=("duplicate",)))
    assert not matches(view(OWN), DeadLetterFilter(address="a"))
    assert not matches(view(OWN), DeadLetterFilter(source=("orders", 3, 42)))


@pytest.mark.parametrize(
    ("criteria", "looks"),
    [
        (DeadLetterFilter(), False),
        (DeadLetterFilter(("orders.dlq",), "a", ("expired",), 1, 2), False),
        (DeadLetterFilter(key=b""), True),
        (DeadLetterFilter(headers=(("a", b"1"),)), True),
    ],
)
def test_a_filter_by_key_or_header_finds_out_something_about_them(
    criteria: DeadLetterFilter, *, looks: bool
) -> None:
    assert criteria.looks_into_payload is looks
