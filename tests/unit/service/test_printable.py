"""Visible: no character does more than be seen, and JSON tells the same as before."""

import json

from hypothesis import given
from hypothesis import strategies as st

from ringfence_service.printable import visible, visible_json

ACTING = "\x00\x07\t\n\r\x1b\x7f\x85\x9b\xad\u061c\u200b\u200f\u2028\u2029\u202e\u2066\ufeff"
TEXTS = st.text(st.one_of(st.characters(), st.sampled_from(ACTING)), max_size=20)
VALUES = st.recursive(TEXTS, lambda inner: st.lists(inner) | st.dictionaries(TEXTS, inner))


def test_no_text_moves_the_cursor_or_turns_the_line() -> None:
    assert visible("\x1b[2Ja\tb\n\u202e\x9b") == r"\x1b[2Ja\x09b\x0a\u202e\x9b"
    assert visible("a\u200bb\ufeff\U000e0001\0") == r"a\u200bb\ufeff\U000e0001\x00"
    assert visible("é 漢\u3000字\xa0😀") == "é 漢\u3000字\xa0😀"
    assert visible("a\tb\nc", keep="\n") == "a\\x09b\nc"


@given(TEXTS)
def test_what_is_visible_is_printed_and_stays_so(text: str) -> None:
    told = visible(text)
    assert not set(told) & set(ACTING)
    assert all(each.isprintable() or each.isspace() for each in told)
    assert visible(told) == told


@given(VALUES)
def test_json_that_is_visible_has_the_same_value(value: object) -> None:
    for indent in (None, 2):
        told = visible_json(json.dumps(value, ensure_ascii=False, indent=indent))
        assert json.loads(told) == value
        assert not set(told) & (set(ACTING) - {"\n"})
        assert all(each.isprintable() or each.isspace() for each in told)
