"""Offset metadata: ours is read again, anybody else's is nobody's."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringfence_state.offset_metadata import OffsetMetadata, decode, encode
from ringfence_state.segment import FORMAT

METADATA = st.builds(
    OffsetMetadata,
    st.integers(-1, 2**62),
    st.integers(1, FORMAT),
    st.text(),
    st.text(),
    st.integers(0, 2**62),
)


@given(METADATA)
def test_what_we_commit_is_what_we_read(metadata: OffsetMetadata) -> None:
    assert decode(encode(metadata)) == metadata


def test_what_tells_no_time_has_none() -> None:
    assert decode('{"c":7,"f":1,"i":"x","l":"y"}') == OffsetMetadata(7, 1, "x", "y")


def test_it_fits_the_brokers_limit_with_room_to_spare() -> None:
    topic_id = "x" * 36
    assert len(encode(OffsetMetadata(2**62, 1, topic_id, topic_id))) < 4096 // 8


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        "reset by hand",
        "[]",
        "[1]",
        "1",
        "null",
        '"c"',
        "{}",
        '{"c":1,"f":1,"i":"x"}',
        "[" * 4000,
        '{"c":1e999,"f":1,"i":"x","l":"y"}',
        '{"c":true,"f":1.7,"i":3,"l":null}',
        '{"c":null,"f":1,"i":"x","l":"y"}',
        '{"c":"a","f":1,"i":"x","l":"y"}',
        "[" * 5,
    ],
)
def test_what_somebody_else_committed_is_none(text: str | None) -> None:
    assert decode(text) is None


@pytest.mark.parametrize("rest", ["", ',"c":{},"new":[1]', ',"c":7,"i":"x","l":"y","t":1,"r":2'])
def test_of_a_newer_format_nothing_is_believed_but_its_number(rest: str) -> None:
    newer = f'{{"f":{FORMAT + 1}{rest}}}'
    assert decode(newer) == OffsetMetadata(-1, FORMAT + 1, "", "")


@given(st.text())
def test_no_text_is_an_error(text: str) -> None:
    decode(text)
