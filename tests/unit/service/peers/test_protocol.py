"""The codec: every value that instances tell each other comes back as it was, and nothing else."""

import json
from collections.abc import Mapping
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringfence_service.peers.protocol import (
    CodecError,
    PeerQuery,
    QueryRefusal,
    QueryReply,
    StatusReply,
    StatusRequest,
    decode_query,
    decode_reply,
    encode_query,
    encode_reply,
)
from ringfence_service.queries.ids import IdCursor, IdsQuery
from ringfence_service.queries.registry import Answer, Query

# Every division is checked first, so no value is NaN, which would not equal itself.
st.register_type_strategy(Mapping, lambda kind: st.dictionaries(*map(st.from_type, get_args(kind))))
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
    assert json.loads(text) == {
        "to": "1",
        "query": {"IdsQuery": ["a", ["orders", 3, 7, None], 10, False]},
        "timeout_ms": 5000,
    }


ASKED = '{"to":"1","query":%s,"timeout_ms":5000}'


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[",
        "{}",
        "null",
        '{"to":"1","query":{"IdQuery":["a","eA=="]}}',  # a field less
        ASKED % '{"IdQuery":["a"]}',
        ASKED % '{"IdQuery":["a","eA==",true]}',  # one that we do not know
        ASKED % '{"IdQuery":["a","no base64"]}',
        ASKED % '{"IdQuery":["a",7]}',
        ASKED % '{"IdQuery":null}',
        ASKED % '{"PeerQuery":["a","eA=="]}',  # one that cannot stand there
        ASKED % '{"IdQuery":["a","eA=="],"StatusRequest":[]}',
        ASKED % "{}",
        ASKED % '"IdQuery"',
        (ASKED % '{"IdQuery":["a","eA=="]}').replace("5000", "true"),  # true is no number
        (ASKED % '{"IdQuery":["a","eA=="]}').replace("5000", "5000.0"),
        (ASKED % '{"IdQuery":["a","eA=="]}').replace("5000", '5000,"more":1'),
        "[" * 100_000,
    ],
)
def test_what_is_no_question_is_refused(text: str) -> None:
    with pytest.raises(CodecError):
        decode_query(text.encode())


def test_text_that_is_none_is_refused() -> None:
    with pytest.raises(CodecError):
        decode_query(b"\xff")


@given(
    st.binary()
    | st.recursive(st.none() | st.integers() | st.text(), st.lists).map(
        lambda told: json.dumps(told).encode()
    )
)
def test_arbitrary_input_is_at_worst_refused(text: bytes) -> None:
    try:
        question = decode_query(text)
    except CodecError:
        return
    assert isinstance(question, PeerQuery)
