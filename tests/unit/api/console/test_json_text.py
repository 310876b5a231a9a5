"""JSON that is indented is the same JSON."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringfence_api.console.json_text import CHARS_MAX, Span, spans

DOCUMENTS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


def pretty(text: str) -> str:
    return "".join(each.text for each in spans(text))


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


def marked(document: str, *members: tuple[str, ...]) -> str:
    parts = (f"<{part}>" if is_marked else part for part, is_marked in spans(document, members))
    return "".join("".join(parts).split())


def test_the_lines_of_members_are_marked_with_all_that_they_contain() -> None:
    document = '{"a": 1, "b": {"c": [1, {"d": 2}], "e": 3}, "f\\u0067": 4, "b2": {}}'
    assert marked(document, ("b", "c", "1", "d"), ("fg",)) == (
        '{"a":1,"b":{"c":[1,{<"d":2>}],"e":3},<"f\\u0067":4,>"b2":{}}'
    )
    assert marked(document, ("b", "c")) == (
        '{"a":1,"b":{<"c":[1,{"d":2}],>"e":3},"f\\u0067":4,"b2":{}}'
    )
    assert marked(document, ("a", "c"), ("x",)) == "".join(document.split())
    assert spans("[1]", [()]) == [Span("[\n  1\n]", is_marked=True)]
    assert spans("7", [()]) == [Span("7", is_marked=False)]


@given(document=DOCUMENTS, members=st.lists(st.lists(st.sampled_from("ab01")).map(tuple)))
def test_marks_change_no_text(document: object, members: list[tuple[str, ...]]) -> None:
    text = json.dumps(document)
    assert "".join(each.text for each in spans(text, members)) == pretty(text)
