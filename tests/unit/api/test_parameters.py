"""Ids in REST notation."""

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringfence_api.parameters import parse_id, position_of, token_of
from ringfence_client.headers import ID_BYTES_MAX, id_text
from ringfence_service.queries.errors import NotPossible


@given(st.binary())
def test_every_id_comes_back_from_its_text(identifier: bytes) -> None:
    assert parse_id(id_text(identifier)) == identifier


@given(st.binary())
def test_every_id_comes_back_from_either_base64(identifier: bytes) -> None:
    for encoded in (base64.b64encode(identifier), base64.urlsafe_b64encode(identifier)):
        assert parse_id("base64:" + encoded.decode()) == identifier


def test_an_id_may_be_as_long_as_a_header_allows_and_no_longer() -> None:
    assert len(parse_id("hex:" + "00" * ID_BYTES_MAX)) == ID_BYTES_MAX
    with pytest.raises(ValueError, match="at most 65536 bytes"):
        parse_id("a" * (ID_BYTES_MAX + 1))


@pytest.mark.parametrize("text", ["hex:a", "hex:zz", "hex:é", "base64:A", "base64:*", "base64:é"])
def test_a_notation_that_does_not_decode_says_what_belongs_there(text: str) -> None:
    with pytest.raises(ValueError, match=r"^(hex|base64): must be followed by"):
        parse_id(text)


@pytest.mark.parametrize("position", ["orders", ["t", 0, 12, None], "é" * 5])
def test_a_page_has_one_token(position: object) -> None:
    token = token_of(position)
    assert position_of(token) == position
    for other in (f"{token}=", f"{token[:3]}!{token[3:]}", f"{token}\n", f" {token}"):
        with pytest.raises(NotPossible, match="not one that a page returned"):
            position_of(other)
