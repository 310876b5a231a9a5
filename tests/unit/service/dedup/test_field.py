"""Fields of templates that are read from JSON."""

import pytest

from service.dedup.claim import identifier_of
from service.dedup.field import FIELD, Field, UnrenderableError, field_of
from tests.support.deciding import record
from tests.support.helpers import rows, some

DOCUMENT = (
    '{"order": {"id": "A-1", "n": 1.0, "big": 123456789012345678901, "exact": 1e2, "sent": true,'
    ' "not": false, "empty": "", "null": null, "lines": [{"sku": "x"}, 7], "a/b": 1, "m~n": 2,'
    ' "": 3, "ü": "ß", "0": "a member"}}'
).encode()


def member(text: str) -> Field:
    (name,) = FIELD.findall(text)
    return field_of(name)


@rows(
    ("pointer", "found"),
    {
        "text": ("/order/id", b"A-1"),
        "a number as it stands there": ("/order/n", b"1.0"),
        "a number of any size": ("/order/big", b"123456789012345678901"),
        "an exponent as it stands there": ("/order/exact", b"1e2"),
        "true": ("/order/sent", b"true"),
        "false": ("/order/not", b"false"),
        "empty text": ("/order/empty", b""),
        "an element": ("/order/lines/1", b"7"),
        "a member of an element": ("/order/lines/0/sku", b"x"),
        "an escaped slash": ("/order/a~1b", b"1"),
        "an escaped tilde": ("/order/m~0n", b"2"),
        "an empty name": ("/order/", b"3"),
        "text beyond ASCII": ("/order/ü", "ß".encode()),
        "a number as a name": ("/order/0", b"a member"),
    },
)
def test_a_pointer_finds_text_a_number_or_a_boolean(pointer: str, found: bytes) -> None:
    assert member(f"{{json:{pointer}}}").of(record(0, value=DOCUMENT), []) == found


@rows(
    ("value", "pointer", "cause"),
    {
        "no value": (None, "/id", "the record has no value, and so nothing for {json:/id}"),
        "empty": (b"", "/id", "the value is not JSON from character 0 on"),
        "no JSON": (b'{"id": secret}', "/id", "the value is not JSON from character 7 on"),
        "more after it": (b'{"id": 1} x', "/id", "the value is not JSON from character 10 on"),
        "no UTF-8": (b'{"id": "\xff"}', "/id", "the value is not JSON: it is not UTF-8 text"),
        "no number of JSON": (b'{"id": NaN}', "/id", "the value is not JSON from character 0 on"),
        "too deep": (b"[" * 100_000, "/id", "the value is JSON that is nested too deeply"),
        "no member": (DOCUMENT, "/order/none", "the value has nothing at {json:/order/none}"),
        "null": (DOCUMENT, "/order/null", "the value has nothing at {json:/order/null}"),
        "in text": (DOCUMENT, "/order/id/x", "the value has nothing at {json:/order/id/x}"),
        "in a number": (DOCUMENT, "/order/n/0", "the value has nothing at {json:/order/n/0}"),
        "beyond the end": (
            DOCUMENT,
            "/order/lines/2",
            "the value has nothing at {json:/order/lines/2}",
        ),
        "a padded index": (
            DOCUMENT,
            "/order/lines/01",
            "the value has nothing at {json:/order/lines/01}",
        ),
        "after the last": (
            DOCUMENT,
            "/order/lines/-",
            "the value has nothing at {json:/order/lines/-}",
        ),
        "an object": (DOCUMENT, "/order", "the value has an object at {json:/order}"),
        "all": (DOCUMENT, "", "the value has an object at {json:}"),
        "an array": (DOCUMENT, "/order/lines", "the value has an array at {json:/order/lines}"),
        "half a character": (
            b'{"id": "\\ud800"}',
            "/id",
            "{json:/id} has an unpaired surrogate in this record",
        ),
    },
)
def test_a_record_without_the_member_is_explained_without_its_content(
    value: bytes | None, pointer: str, cause: str
) -> None:
    field, message = member(f"{{json:{pointer}}}"), record(0, value=value)
    assert field.of(message, []) is None
    assert field.why_missing(message) == cause
    with pytest.raises(UnrenderableError) as error:
        field.text(message, [])
    assert str(error.value) == cause


def test_a_key_may_be_json_too_and_its_value_is_not_read() -> None:
    message = record(0, key=b'{"id": 7}', value=b"no JSON")
    assert member("{key-json:/id}").of(message, []) == b"7"
    assert not member("{key-json:/id}").in_value
    lacking = record(0, key=b"7", value=b'{"id": 7}')
    assert member("{key-json:/id}").why_missing(lacking) == "the key has nothing at {key-json:/id}"


def test_the_whole_document_may_be_the_field() -> None:
    assert member("{json:}").of(record(0, value=b' "text" '), []) == b"text"


def test_of_several_fields_the_first_one_that_is_missing_is_named() -> None:
    made = some(identifier_of("{key}/{json:/a}/{json:/b}"))
    assert made.of(record(0, value=b'{"a": 1, "b": 2}'), []) == b"k/1/2"
    cause = "the value has nothing at {json:/b}"
    assert made.why_missing(record(0, value=b'{"a": 1}'), []) == cause


@pytest.mark.parametrize(
    ("text", "in_value"),
    [
        ("{key}", False),
        ("{header:A}", False),
        ("{key-json:/id}", False),
        ("{json:/id}", True),
        ("{sha256:value}", True),
    ],
)
def test_a_field_knows_its_name_in_a_template_and_whether_it_reads_the_value(
    text: str, *, in_value: bool
) -> None:
    field = member(text)
    assert (field.name, field.in_value) == (text, in_value)


@pytest.mark.parametrize("text", ["{key}", "{header:A}", "{sha256:value}"])
def test_the_field_that_a_record_lacks_is_named(text: str) -> None:
    field, message = member(text), record(0, key=None, value=None)
    assert field.of(message, []) is None
    assert field.why_missing(message) == f"the record has nothing for {text}"
