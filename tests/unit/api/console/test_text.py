import tomllib

from hypothesis import given
from hypothesis import strategies as st

from ringfence_api.console.diff import between
from ringfence_api.console.forms import FilterForm, as_toml

VALUES = st.booleans() | st.integers(-(2**62), 2**62) | st.text() | st.lists(st.text(), max_size=3)


@given(st.dictionaries(st.text(min_size=1), VALUES, max_size=6))
def test_what_is_written_as_toml_is_read_as_it_was(keys: dict[str, object]) -> None:
    assert tomllib.loads(as_toml(keys)) == keys


JSON = st.dictionaries(st.text(max_size=3), st.integers() | st.text(max_size=3), max_size=5)


@given(JSON, JSON)
def test_a_difference_is_empty_exactly_where_nothing_differs(
    before: dict[str, object], after: dict[str, object]
) -> None:
    assert bool(between(before, after, ignored=())) == (before != after)


def test_what_is_new_is_all_new_and_what_is_gone_all_gone() -> None:
    assert {line.kind for line in between(None, {"a": 1})} == {"new"}
    assert {line.kind for line in between({"a": 1}, None)} == {"gone"}


def test_a_version_alone_is_no_difference() -> None:
    assert between({"a": 1, "etag": "x"}, {"a": 1, "etag": "y"}) == []


def test_a_filter_asks_the_same_of_a_list_and_of_a_redrive() -> None:
    wanted = FilterForm.of(
        {
            "topic": "t",
            "reason": "duplicate",
            "from": "2026-01-02T03:04",
            "header_name": "tenant",
            "header_value": "acme",
            "page_token": "never part of it",
            "address": "",
        }
    )
    assert wanted.query() == {
        "topic": "t",
        "reason": "duplicate",
        "from": "2026-01-02T03:04Z",
        "header.tenant": "acme",
    }
    assert wanted.order() == {
        "topics": ["t"],
        "filter": {
            "reason": ["duplicate"],
            "from": "2026-01-02T03:04Z",
            "header": {"tenant": "acme"},
        },
    }


def test_a_filter_of_nothing_means_all() -> None:
    assert FilterForm.of({}).order() == {"topics": [], "filter": {}}
    assert "all dead letters" in FilterForm.of({}).sentence()
