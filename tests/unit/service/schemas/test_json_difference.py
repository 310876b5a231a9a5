"""Which members of two JSON documents differ."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringfence_service.schemas.canonical_json import canonical
from ringfence_service.schemas.json_difference import MEMBERS_MAX, difference
from ringfence_service.schemas.json_text import pointer_of, tokens_of

NAMES = st.sampled_from(["", "a", "b", "1", "a/b~"])
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.sampled_from([None, True, False, 0, 1, 2.5, "0e0", "1", ""]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=12,
)


def differing(one: object, other: object) -> list[str]:
    """The pointers of all members that differ."""
    found = difference(json.dumps(one).encode(), json.dumps(other).encode())
    assert found is not None
    assert found.is_all
    return [pointer_of(each) for each in found.members]


def test_members_that_differ_are_named_in_the_order_of_the_first_document() -> None:
    order = {"order": {"id": 7, "tenant": "acme"}, "total": 10, "lines": [1, 2], "old": None}
    later = {"lines": [1, 3, 4], "order": {"tenant": "umbra", "id": 7}, "total": "10", "a/~": {}}
    assert differing(order, later) == [
        *("/order/tenant", "/total", "/lines/1", "/lines/2", "/old", "/a~1~0")
    ]


@pytest.mark.parametrize(
    ("one", "other"), [([], {}), ([1], {"0": 1}), (1, True), (0, "0e0"), (None, False)]
)
def test_values_of_other_types_differ_as_a_whole(one: object, other: object) -> None:
    assert differing(one, other) == [""]
    assert differing({"a": one}, {"a": other}) == ["/a"]


def test_how_a_document_is_written_makes_no_difference() -> None:
    found = difference(b'{"a": 1.50, "b": ["\\u0061"]}', b'{"b":["a"],"a":15e-1}')
    assert found == ((), True)


@pytest.mark.parametrize("text", [b"", b"text", b"\xff", b'{"a": NaN}', b"[" * 501 + b"]" * 501])
def test_what_is_not_json_has_no_members(text: bytes) -> None:
    assert difference(text, b"{}") is None
    assert difference(b"{}", text) is None


def test_no_more_members_are_named_than_the_limit() -> None:
    for count in (MEMBERS_MAX, MEMBERS_MAX + 1):
        found = difference(json.dumps([0] * count).encode(), json.dumps([1] * count).encode())
        assert found is not None
        assert [each for (each,) in found.members] == [str(at) for at in range(MEMBERS_MAX)]
        assert found.is_all == (count == MEMBERS_MAX)


def test_what_is_too_deep_or_has_too_long_a_name_is_named_by_what_contains_it() -> None:
    assert differing({"a": {"n" * 300: 1, "b": 1}}, {"a": {"n" * 300: 1, "b": 2}}) == ["/a"]
    assert differing({"a": {"n" * 300: 1}}, {"a": {"n" * 300: 1}}) == []
    one, other = (b"[" * 400 + number + b"]" * 400 for number in (b"1", b"2"))
    found = difference(one, other)
    assert found is not None
    assert [pointer_of(each) for each in found.members] == ["/0" * 100]


@given(one=VALUES, other=VALUES)
def test_documents_differ_where_their_members_do_and_nowhere_else(one: Any, other: Any) -> None:
    texts = [json.dumps(each).encode() for each in (one, other)]
    found = difference(*texts)
    assert found is not None
    assert (not found.members) == (canonical(texts[0], ()) == canonical(texts[1], ()))
    for tokens in found.members:
        assert tokens_of(pointer_of(tokens)) == tokens
        members = [canonical(text, tokens) for text in texts]
        assert members[0] != members[1] or members == [None, None], "one is null, one is absent"
