"""JSON that is indented is the same JSON."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.console.json_text import CHARS_MAX, pretty

DOCUMENTS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(document=DOCUMENTS, is_ascii=st.booleans())
def test_an_indented_document_is_the_one_that_python_indents(
    document: object, *, is_ascii: bool
) -> None:
    text = json.dumps(document, ensure_ascii=is_ascii)
    if isinstance(document, dict | list):
        assert pretty(text) == json.dumps(document, indent=2, ensure_ascii=is_ascii)
        assert pretty(pretty(text)) == pretty(text)
    else:
        assert pretty(text) == text


@pytest.mark.parametrize(
    "text", ["", "text", '{"a":', "7", '"{}"', "[" * 100_000, "[" * 900 + "]" * 900]
)
def test_other_text_and_what_would_be_too_long_stay_as_they_are(text: str) -> None:
    assert pretty(text) == text
    assert len(pretty(text)) <= CHARS_MAX


def test_numbers_and_repeated_names_stay_as_they_are_written() -> None:
    assert pretty('{"a":1.10,"a":1e400}') == '{\n  "a": 1.10,\n  "a": 1e400\n}'
