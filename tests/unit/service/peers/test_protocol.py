"""The codec: every value that instances tell each other comes back as it was, and nothing else."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Literal, NamedTuple, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.peers.protocol import (
    CodecError,
    PeerQuery,
    QueryRefusal,
    QueryReply,
    StatusReply,
    StatusRequest,
    decode_query,
    decode_reply,
    dumps,
    encode_query,
    encode_reply,
    loads,
)
from service.queries.ids import IdCursor, IdsQuery
from service.queries.registry import Answer, Query

# Whoever divides has looked first: nothing here is no number, which would not equal itself.
st.register_type_strategy(float, st.floats(allow_nan=False, allow_infinity=False))


@pytest.mark.parametrize("kind", [*get_args(Query), StatusRequest])
@settings(max_examples=30)  # of each of many kinds
@given(data=st.data())
def test_every_question_arrives_as_it_was_asked(kind: type, data: st.DataObject) -> None:
    question = PeerQuery("1", data.draw(st.from_type(kind)), 5000)
    arrived = decode_query(encode_query(question))
    assert arrived == question
    assert type(arrived.query) is kind


@pytest.mark.parametrize("kind", [*get_args(Answer), StatusReply, QueryRefusal])
@settings(max_examples=30)  # of each of many kinds
@given(data=st.data())
def test_every_reply_arrives_as_it_was_given(kind: type, data: st.DataObject) -> None:
    reply = QueryReply("1", data.draw(st.from_type(kind)), (), 3)
    arrived = decode_reply(encode_reply(reply))
    assert arrived == reply
    assert type(arrived.outcome) is kind


def test_a_question_is_a_list_of_its_fields_and_names_its_kind() -> None:
    text = encode_query(PeerQuery("1", IdsQuery("a", IdCursor("orders", 3, 7), 10), 5000))
    to, query, timeout_ms = json.loads(text)
    assert (to, timeout_ms) == ("1", 5000)
    assert list(query) == ["IdsQuery"]
    assert query["IdsQuery"][0] == "a"


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"[",
        b"\xff",
        b"{}",
        b"null",
        b'["1",{"IdQuery":["a","eA=="]}]',  # a field less
        b'["1",{"IdQuery":["a","eA==",true]},5000]',  # one that we do not know
        b'["1",{"IdQuery":["a","no base64"]},5000]',
        b'["1",{"IdQuery":["a",7]},5000]',
        b'["1",{"PeerQuery":["a","eA=="]},5000]',  # one that cannot stand there
        b'["1",{"IdQuery":["a","eA=="],"StatusRequest":[]},5000]',
        b'["1",{},5000]',
        b'["1","IdQuery",5000]',
        b'["1",{"IdQuery":["a","eA=="]},true]',  # true is no number
        b'["1",{"IdQuery":["a","eA=="]},5000.0]',
        b"[" * 100_000,
    ],
)
def test_what_is_no_question_is_refused(text: bytes) -> None:
    with pytest.raises(CodecError):
        decode_query(text)


@given(
    st.binary()
    | st.recursive(st.none() | st.integers() | st.text(), st.lists).map(
        lambda told: json.dumps(told).encode()
    )
)
def test_nothing_that_is_told_is_more_than_refused(text: bytes) -> None:
    try:
        question = decode_query(text)
    except CodecError:
        return
    assert isinstance(question, PeerQuery)


class Sample(NamedTuple):
    """What the values of today do not hold all at once."""

    at: datetime
    level: Literal["low", "high"]
    pair: tuple[int, str]
    parts: Mapping[str, tuple[bytes, ...]]
    maybe: tuple[int, ...] | None
    number: float | None


def test_times_choices_and_tables_are_told_too() -> None:
    sample = Sample(datetime(2026, 1, 2, tzinfo=UTC), "low", (1, "x"), {"a": (b"\xff",)}, None, 1)
    assert loads(dumps(sample, Sample), Sample) == sample
    text = dumps(sample._replace(maybe=(1, 2)), Sample)
    assert loads(text, Sample) == sample._replace(maybe=(1, 2))
    with pytest.raises(CodecError, match="none of low, high"):
        loads(text.replace(b"low", b"odd"), Sample)
    with pytest.raises(CodecError, match="not a time"):
        loads(text.replace(b"2026-", b"MMXXVI-"), Sample)


@pytest.mark.parametrize("kind", [set[int], str | bytes, tuple[int, ...] | str | None])
def test_a_type_that_json_cannot_tell_is_an_error_of_ours(kind: object) -> None:
    with pytest.raises(TypeError):
        dumps(None, kind)
