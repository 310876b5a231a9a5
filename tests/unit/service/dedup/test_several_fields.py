"""Templates of several fields: two records have one id only if they agree in every field."""

import itertools

import pytest

from ringfence_service.dedup.claim import identifier_of
from ringfence_service.dedup.field import UnrenderableError
from ringfence_service.dedup.route import Template
from tests.support.deciding import record
from tests.support.helpers import some
from tests.support.id_templates import VECTORS, Vector

LETTERS = ("", "a", "-", "\\", "|", "é")
VALUES = ["".join(each) for size in (1, 2, 3) for each in itertools.product(LETTERS, repeat=size)]


def identifier(template: str, *fields: str) -> bytes | None:
    headers = [(name, text.encode()) for name, text in zip("ABC", fields, strict=False)]
    return some(identifier_of(template)).of(record(0, *headers), headers)


@pytest.mark.parametrize("between", ["", "-", "--", "\\", "\\-", "|", "a", "é", "-é", "{topic}"])
def test_two_records_share_an_id_only_if_they_share_all_fields(between: str) -> None:
    template = f"x{{header:A}}{between}{{header:B}}y"
    found: dict[bytes | None, tuple[str, ...]] = {}
    for fields in itertools.product(sorted(set(VALUES)), repeat=2):
        assert found.setdefault(identifier(template, *fields), fields) == fields


def test_three_fields_do_not_collide_either() -> None:
    short = ["", "a", "-", "\\", "\\-"]
    for template in ("{header:A}{header:B}{header:C}", "{header:A}-{header:B}{header:C}"):
        ids = {identifier(template, *fields) for fields in itertools.product(short, repeat=3)}
        assert len(ids) == len(short) ** 3


@pytest.mark.parametrize(
    ("template", "first", "second"),
    [
        (
            "{json:/doc}{json:/line}",
            b'{"doc": "doc-7", "line": "12"}',
            b'{"doc": "doc-71", "line": 2}',
        ),
        ("{json:/doc}-{json:/line}", b'{"doc": "1-2", "line": 3}', b'{"doc": 1, "line": "2-3"}'),
    ],
)
def test_fields_of_different_lengths_make_different_ids(
    template: str, first: bytes, second: bytes
) -> None:
    made = some(identifier_of(template))
    assert made.of(record(0, value=first), []) != made.of(record(0, value=second), [])
    plain = some(identifier_of("{plain}" + template))
    assert plain.of(record(0, value=first), []) == plain.of(record(0, value=second), [])


@pytest.mark.parametrize(
    ("template", "fields", "expected"),
    [
        ("{header:A}-{header:B}", ("order", "7-1"), b"order-7-1"),
        ("{header:A}{header:B}", ("order", "7"), b"order|7"),
        ("{header:A}-{header:B}", ("or-der", "7\\"), b"or\\-der-7\\"),
        ("{escaped}{header:A}-{header:B}", ("or-der", "7"), b"or\\-der-7"),
        ("{plain}{header:A}-{header:B}", ("or-der", "7"), b"or-der-7"),
        ("v{header:A}-{header:A}", ("a-b",), b"va-b-a-b"),
        ("{header:A}.", ("a.b",), b"a.b."),
    ],
)
def test_only_what_could_end_a_field_is_escaped(
    template: str, fields: tuple[str, ...], expected: bytes
) -> None:
    assert identifier(template, *fields) == expected


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector.template)
def test_ids_are_those_of_the_vectors_that_the_java_interceptor_has_too(vector: Vector) -> None:
    made = some(identifier_of(vector.template))
    message = record(0, *vector.headers, key=vector.key, value=vector.value)
    assert made.of(message, list(vector.headers)) == vector.expected


def address(template: str, *fields: str) -> str:
    headers = [(name, text.encode()) for name, text in zip("AB", fields, strict=False)]
    return Template.parse(template, "orders").render(record(0, *headers), headers, "")


def test_two_tenants_have_two_addresses() -> None:
    assert address("{header:A}.{header:B}", "p", "q") == "p.q"
    assert address("{header:A}.{header:B}", "p.q", "r") == "p\\.q.r"
    assert address("{header:A}.{header:B}", "p", "q.r") == "p.q.r"


def test_a_topic_between_two_fields_does_not_end_the_first_one() -> None:
    template = "{header:A}{topic}{header:B}"
    assert address(template, "x", "y") == "x|ordersy"
    assert address(template, "x|ordersz", "y") != address(template, "x", "z|ordersy")


def test_without_a_field_there_is_no_text() -> None:
    with pytest.raises(UnrenderableError, match=r"nothing for \{header:B\}"):
        address("{header:A}.{header:B}", "p")
