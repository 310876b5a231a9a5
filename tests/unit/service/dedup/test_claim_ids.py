"""Ids that a route makes itself, for producers that cannot be changed."""

from hashlib import sha256

import pytest

from ringfence_client.headers import DUPLICATE_ID, EXPIRES_AT
from ringfence_service.dedup.claim import NO_ID, identifier_of
from ringfence_service.kafka.model import UNREADABLE
from tests.support.deciding import record
from tests.support.helpers import some


@pytest.mark.parametrize(
    ("template", "identifier"),
    [
        ("{key}", b"k\xff"),
        ("{header:A}", b"a"),
        ("{sha256:value}", sha256(b"v").hexdigest().encode()),
        ("x-{header:A}/{key}.", b"x-a/k\xff."),
        ("{key}{key}", b"k\xffk\xff"),
        ("{header:B}", None),
        ("{key}{header:B}", None),
    ],
)
def test_a_template_takes_what_stands_in_the_record(
    template: str, identifier: bytes | None
) -> None:
    made = some(identifier_of(template))
    headers: list[tuple[str, bytes | None]] = [("A", None), ("A", b"a"), ("A", b"later")]
    message = record(0, *headers, key=b"k\xff")
    assert made.of(message, headers) == identifier
    assert made.plain([message], [headers]) == [NO_ID if identifier is None else identifier]


@pytest.mark.parametrize("template", ["{key}", "{sha256:value}"])
def test_what_is_null_has_no_id_and_what_is_empty_has_one(template: str) -> None:
    made = some(identifier_of(template))
    assert made.of(record(0, key=None, value=None), []) is None
    assert made.of(record(0, key=b"", value=b""), []) is not None


def test_without_a_template_the_headers_tell() -> None:
    assert identifier_of("") is None


def test_a_record_of_which_more_has_to_be_looked_at_is_not_plain() -> None:
    made = some(identifier_of("{key}"))
    message = record(0)
    assert made.plain([message], [[("A", b"1"), (EXPIRES_AT, b"1")]]) == [None]
    assert made.plain([message], [UNREADABLE]) == [None]
    assert made.plain([message], [[(DUPLICATE_ID, b"1")]]) == [b"k"]
    assert made.plain([record(0, key=b"k" * 65_537)], [None]) == [None]
