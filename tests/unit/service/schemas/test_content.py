"""Content: which values of a duplicate and its original say the same."""

import pytest

from ringfence_service.schemas.content import is_same_content


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (b"text", b"text"),
        (b"", b""),
        (None, None),
        (b"\xff\x00", b"\xff\x00"),
        (b'{"a": 1, "b": [2, {"c": null}]}', b'{"b":[2.0,{"c":null}],"a":1e0}'),
        (b'"\\u00e9"', '"é"'.encode()),
        (b"null", b" null "),
    ],
)
def test_equal_bytes_and_equal_documents_are_the_same(
    one: bytes | None, other: bytes | None
) -> None:
    assert is_same_content(one, other)
    assert is_same_content(other, one)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (b"text", b"texts"),
        (b"text", b" text"),
        (b"", None),
        (b"null", None),
        (b"\xff\x00", b"\xff\x01"),
        (b'{"a": 1}', b'{"a": 2}'),
        (b'{"a": 1}', b'{"a": "1"}'),
        (b'{"a": 1}', b'{"a": 1, "b": null}'),
        (b"[1, 2]", b"[2, 1]"),
        (b'{"a": 1}', b'{"a": 1} and more'),
        (b'{"a": 1}', b"\xff"),
        (b"[" * 100_000, b"[" * 100_001),
        (b'"\\ud800"', b'"\\ud801"'),
    ],
)
def test_other_bytes_and_other_documents_differ(one: bytes | None, other: bytes | None) -> None:
    assert not is_same_content(one, other)
    assert not is_same_content(other, one)


def test_members_that_do_not_count_may_differ() -> None:
    one, other = b'{"order": {"id": 1, "at": 2}}', b'{"order": {"at": 3, "id": 1}}'
    assert not is_same_content(one, other)
    assert is_same_content(one, other, [["order", "at"]])
    assert not is_same_content(one, b'{"order": {"id": 2}}', [["order", "at"]])
    assert is_same_content(b'"at"', b' "at"', [["order", "at"]])
