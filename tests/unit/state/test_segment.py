"""Runs on the wire: what is written is read again, and nothing else is."""

import hashlib
import struct
from array import array
from collections.abc import Callable

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ringfence_state.keys import SEGMENTS, UnknownFormatError, address_of, prefix
from ringfence_state.model import Origin, PartitionId
from ringfence_state.segment import (
    EVICTED,
    SEGMENT_IDS_MAX,
    Digest,
    Segment,
    SegmentEntry,
    SegmentSummary,
    decode,
    encode,
    evicted,
    key,
    put,
    remembered,
    row_of,
    summary,
)
from tests.support.helpers import rows

NUMBERS = st.integers(0, 2**62)
INT64 = st.integers(-(2**63), 2**63 - 1)
ADDRESSES = st.text(max_size=20)


@st.composite
def runs(draw: st.DrawFn) -> Segment:
    topics = st.text("abc._-é", min_size=1, max_size=9)
    sources = draw(st.lists(st.builds(PartitionId, topics, st.integers(0, 2**31)), max_size=3))
    ids = draw(st.lists(st.binary(max_size=64), max_size=20)) if sources else []

    def column(values: st.SearchStrategy[int]) -> list[int]:
        return draw(st.lists(values, min_size=len(ids), max_size=len(ids)))

    return Segment(
        first=draw(NUMBERS),
        floor=draw(NUMBERS),
        capacity=draw(st.integers(0, EVICTED - 1)),
        sources=tuple(sources),
        ids=tuple(ids),
        source_indexes=array("H", column(st.integers(0, max(len(sources) - 1, 0)))),
        offsets=array("q", column(st.one_of(INT64, st.integers(0, 300)))),
        times_ms=array("q", column(st.one_of(INT64, st.integers(0, 70_000)))),
        has_evicted=draw(st.booleans()),
    )


def told(run: Segment) -> tuple[object, ...]:
    columns = (tuple(run.source_indexes), tuple(run.offsets), tuple(run.times_ms))
    return (run.first, run.floor, run.capacity, run.has_evicted, run.sources, run.ids, *columns)


def small(offsets: list[int] | None = None) -> Segment:
    offsets = offsets if offsets is not None else [5, 9, 4000]
    count = len(offsets)
    return Segment(
        first=7,
        floor=2,
        capacity=10,
        sources=(PartitionId("orders", 1), PartitionId("orders", 300)),
        ids=tuple(b"id-%d" % n for n in range(count)),
        source_indexes=[n % 2 for n in range(count)],
        offsets=offsets,
        times_ms=[1_700_000_000_000 + n for n in range(count)],
    )


@given(runs())
@example(small()._replace(ids=(b"id", b"i" * 300, b"id3")))
def test_a_run_is_read_as_it_was_written(run: Segment) -> None:
    value = encode(run)
    assert told(decode(value)) == told(run)
    outline = summary(value)
    assert outline._replace(ids=tuple(outline.ids)) == SegmentSummary(
        run.first, run.floor, run.capacity, run.ids, run.has_evicted
    )
    assert all(each in outline.ids for each in run.ids)
    assert b"never" * 99 not in outline.ids
    numbers = range(run.first, run.end)
    rows = [SegmentEntry(*each) for each in zip(run.ids, map(run.origin, numbers), strict=True)]
    assert [row_of(value, number) for number in numbers] == rows
    for number in (run.first - 1, run.end):
        with pytest.raises(UnknownFormatError):
            row_of(value, number)


def test_a_full_run_of_the_longest_ids_stays_below_64_kib() -> None:
    count = SEGMENT_IDS_MAX
    spread = [n * 2**53 for n in range(count)]
    ids = tuple(b"%064d" % n for n in range(count))
    run = Segment(0, 0, 10, (PartitionId("t" * 249, 0),), ids, [0] * count, spread, spread)
    assert len(encode(run)) < 64 * 1024
    assert told(decode(encode(run))) == told(run)
    one_more = run._replace(ids=(*ids, b""), offsets=[*spread, 0], source_indexes=[0] * (count + 1))
    for read in (decode, summary):
        with pytest.raises(UnknownFormatError):
            read(encode(one_more._replace(times_ms=one_more.offsets)))


@pytest.mark.parametrize(
    ("width", "spread"),
    [
        *((0, 0), (1, 1), (1, 255), (2, 256), (2, 65_535)),
        *((4, 65_536), (4, 2**32 - 1), (8, 2**32), (8, 2**62)),
    ],
)
def test_a_column_is_exact_at_the_border_of_each_width(width: int, spread: int) -> None:
    value = encode(small([3, 3 + spread]))
    assert list(decode(value).offsets) == [3, 3 + spread]
    assert len(value) == len(encode(small([3, 3]))) + 2 * width


def test_an_origin_names_the_source_of_its_own_row() -> None:
    assert small().origin(8) == Origin("orders", 300, 9, 1_700_000_000_001)


@pytest.mark.parametrize("read", [decode, summary])
@rows(
    "run",
    {
        "many": small(),
        "uneven": small()._replace(ids=(b"a", b"", b"bc")),
        "one": small([1]),
        "none": small([]),
    },
)
def test_a_run_that_is_cut_off_or_goes_on_is_refused(
    run: Segment, read: Callable[[bytes], object]
) -> None:
    value = encode(run)
    read(value)
    for other in (*(value[:length] for length in range(len(value))), value + b"\x00"):
        with pytest.raises(UnknownFormatError):
            read(other)


@settings(max_examples=300)
@given(st.binary(max_size=120))
def test_random_bytes_are_refused(value: bytes) -> None:
    with pytest.raises(UnknownFormatError):
        decode(value)


@settings(max_examples=300)
@given(st.data())
def test_one_changed_byte_is_refused_or_gives_a_run_that_can_be_asked(data: st.DataObject) -> None:
    value = bytearray(encode(small()))
    place = data.draw(st.integers(0, len(value) - 1))
    value[place] = data.draw(st.integers(0, 255))
    try:
        run = decode(bytes(value))
    except UnknownFormatError:
        return
    for number in range(run.first, run.end):
        run.origin(number)


@pytest.mark.parametrize("code", [b"c", b"s", b"x", b"f", b"d", b"?", b"b", b"\xff", b"0"])
def test_a_column_of_another_width_is_refused(code: bytes) -> None:
    value = encode(small([1, 2, 4]))
    (place,) = [p for p in range(len(value)) if value[p : p + 4] == b"B\x00\x01\x03"]
    with pytest.raises(UnknownFormatError):
        decode(value[:place] + code + value[place + 1 :])


def test_a_count_that_no_run_has_is_refused_before_memory_is_taken() -> None:
    value = bytearray(encode(small([1])))
    value[25:29] = (1 << 22).to_bytes(4, "little")
    with pytest.raises(UnknownFormatError):
        decode(bytes(value))


@pytest.mark.parametrize("place", [-1, 2])
def test_a_place_that_no_source_has_is_refused(place: int) -> None:
    with pytest.raises(UnknownFormatError):
        decode(encode(small()._replace(source_indexes=[0, 1, place])))


def test_an_id_of_less_than_no_bytes_is_refused() -> None:
    value = encode(small()._replace(ids=(b"a", b"", b"cdefg")))
    lengths = struct.pack("<qc", 0, b"B") + bytes((1, 0, 5))
    assert lengths in value
    with pytest.raises(UnknownFormatError):
        decode(value.replace(lengths, struct.pack("<qc", -1, b"B") + bytes((2, 0, 7))))


def test_a_long_id_is_kept_by_its_beginning_and_its_digest() -> None:
    """As it always was: a repetition has to be found that an earlier version has let in."""
    assert remembered(b"x" * 64) == b"x" * 64
    assert remembered(Digest(b"x" * 65)) == b"x" * 65
    assert remembered(b"x" * 65) == b"x" * 33 + hashlib.sha256(b"x" * 65).digest()


@given(st.lists(st.integers(1, 3), max_size=5), st.integers(0, 12))
def test_outlived_is_every_run_whose_last_number_is_below_the_floor(
    sizes: list[int], floor: int
) -> None:
    ends = [4 + sum(sizes[: count + 1]) for count in range(len(sizes))]
    firsts = [end - size for end, size in zip(ends, sizes, strict=True)]
    gone = [first for first, end in zip(firsts, ends, strict=True) if end <= floor]
    assert list(evicted(firsts, floor, ends[-1] if ends else 4)) == gone


@pytest.mark.parametrize("version", [0, 2, 255])
def test_another_format_is_refused(version: int) -> None:
    with pytest.raises(UnknownFormatError):
        decode(bytes([version]) + encode(small())[1:])


@given(ADDRESSES, NUMBERS)
def test_a_key_tells_its_address(address: str, first: int) -> None:
    assert address_of(key(address, first)) == address
    assert address_of(prefix(b"g", address)) == address, "what adds nothing belongs to it too"
    assert key(address, first).startswith(prefix(SEGMENTS, address))


@given(ADDRESSES, ADDRESSES)
def test_no_key_of_one_address_has_the_prefix_of_another(one: str, other: str) -> None:
    assert key(one, 5).startswith(prefix(SEGMENTS, other)) == (one == other)


@given(NUMBERS, NUMBERS)
def test_the_keys_of_an_address_stand_in_the_order_of_their_numbers(one: int, other: int) -> None:
    assert (key("a", one) < key("a", other)) == (one < other)


@rows(
    "bad",
    {
        "empty": b"",
        "kind": b"r",
        "half a length": b"r\x00",
        "kind unknown": b"R" + key("orders", 1)[1:],
        "short": key("orders", 1)[:-1],
        "long": key("orders", 1) + b"\x00",
        "no UTF-8": b"r\x00\x01\xff" + bytes(8),
        "more than is shown": key("o" * 70, 1) + b"\x00",
        "position": b"\x00position",
    },
)
def test_what_is_not_a_segment_key_is_refused(bad: bytes) -> None:
    with pytest.raises(UnknownFormatError, match=f"^{bad[:64].hex()}$"):
        address_of(bad)


def test_put_is_the_key_with_the_run() -> None:
    edit = put("orders", small())
    assert edit.key == key("orders", 7)
    assert edit.value is not None
    assert told(decode(edit.value)) == told(small())
