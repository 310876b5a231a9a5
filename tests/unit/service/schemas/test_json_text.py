"""JSON: what is nested too deeply is known before it is parsed."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringfence_service.schemas import json_text
from ringfence_service.schemas.errors import UndecodableError
from ringfence_service.schemas.json_text import is_too_deep, member_of, parsed
from ringfence_service.schemas.limits import DEPTH_MAX

TEXTS = st.text('ab"\\[]{}é\n', max_size=6)
VALUES = st.recursive(
    TEXTS | st.integers() | st.none(),
    lambda values: st.lists(values, max_size=3) | st.dictionaries(TEXTS, values, max_size=3),
    max_leaves=30,
)


def levels(value: Any) -> int:
    if isinstance(value, dict):
        value = list(value.values())
    return 1 + max(map(levels, value), default=0) if isinstance(value, list) else 0


@pytest.mark.parametrize(("opened", "closed"), [(b"[", b"]"), (b'{"a": ', b"}")])
@pytest.mark.parametrize("inner", [b'"[[["', b"7"])
def test_as_many_levels_as_the_limit_are_read_and_one_more_is_not(
    opened: bytes, closed: bytes, inner: bytes
) -> None:
    parsed(opened * DEPTH_MAX + inner + closed * DEPTH_MAX)
    with pytest.raises(UndecodableError, match="is JSON that is nested deeper than 500 levels"):
        parsed(opened * (DEPTH_MAX + 1) + inner + closed * (DEPTH_MAX + 1))


@given(VALUES, st.integers(0, 5))
def test_the_levels_are_those_of_the_parsed_document(value: Any, most: int) -> None:
    document = json.dumps(value).encode()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_text, "DEPTH_MAX", most)
        assert is_too_deep(document) == (levels(value) > most)


@pytest.mark.parametrize(
    "head",
    [b"", b'["\\"", "\\\\", ', b'{"\\\\\\"[": ', b'{"]]": "]", "a": ', b"[]]", b'["', b"[\\"],
)
@pytest.mark.parametrize("tail", [b"", b'"', b"\\", b"]" * 100_000])
def test_an_endless_array_is_refused_behind_anything(head: bytes, tail: bytes) -> None:
    with pytest.raises(UndecodableError):
        parsed(head + b"[" * 100_000 + tail)


@pytest.mark.parametrize("number", ["1" * 100_000, "-1e" + "9" * 100_000, "0." + "1" * 100_000])
def test_a_number_of_any_length_is_its_text(number: str) -> None:
    assert member_of(parsed(f'{{"a": {number}}}'.encode()), ("a",)) == number
