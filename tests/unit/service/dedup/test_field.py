"""Fields of templates that are read from JSON, and from payloads that have a schema."""

import io
import json
from collections.abc import Iterator

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringfence_service.config.model import SchemaRegistrySettings
from ringfence_service.config.templates import FIELD
from ringfence_service.dedup.claim import identifier_of
from ringfence_service.dedup.field import (
    UNNAMED,
    Field,
    NoField,
    UnrenderableError,
    compiled_name,
    field_of,
)
from ringfence_service.schemas.documents import Documents, connect, use
from ringfence_service.schemas.errors import RegistryUnavailableError
from ringfence_service.schemas.registry import RegisteredSchema
from tests.fakes.schema_registry import FakeRegistry, FakeSchemas, SteppedLookups, payload
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
        "no number of JSON": (
            b'{"id": NaN}',
            "/id",
            "the value is not JSON: it has NaN, which is no number there",
        ),
        "too deep": (
            b"[" * 100_000,
            "/id",
            "the value is JSON that is nested deeper than 500 levels",
        ),
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


FINDS_NOTHING = "{schema:/id} finds nothing: the value"
AVRO = '{"type": "record", "name": "Order", "fields": [{"name": "id", "type": ["null", "string"]}]}'


@pytest.fixture
def registry() -> Iterator[FakeRegistry]:
    registry = FakeRegistry()
    registry.start()
    connect(SchemaRegistrySettings(registry.url))
    yield registry
    use(None)
    registry.stop()


def test_a_member_of_a_payload_with_a_schema_is_found_by_a_pointer(registry: FakeRegistry) -> None:
    sent = payload(registry.register("orders-value", "AVRO", AVRO), b"\x02\x06A-1")
    assert member("{schema:/id}").of(record(0, value=sent), []) == b"A-1"
    assert member("{schema:/id}").in_value
    assert member("{key-schema:/id}").of(record(0, key=sent, value=None), []) == b"A-1"
    assert not member("{key-schema:/id}").in_value


def test_a_pointer_of_a_schema_has_the_escapes_of_json(registry: FakeRegistry) -> None:
    number = registry.register("a", "AVRO", '{"type": "map", "values": "long"}')
    sent = payload(number, b"\x02\x08a/~b\x0e\x00")
    assert member("{schema:/a~1~0b}").of(record(0, value=sent), []) == b"7"


@rows(
    ("sent", "cause"),
    {
        "no value": (None, "the record has no value, and so nothing for {schema:/id}"),
        "JSON": (
            b'{"id": "secret"}',
            f"{FINDS_NOTHING} does not begin with a zero byte and the id of a schema",
        ),
        "an unknown schema": (
            payload(77, b""),
            f"{FINDS_NOTHING} has schema 77, which the registry does not know",
        ),
        "other bytes": (
            payload(1, b"\x02"),
            f"{FINDS_NOTHING} cannot be read by its schema 1: it ends too early",
        ),
        "null": (payload(1, b"\x00"), "the value has nothing at {schema:/id}"),
    },
)
def test_a_record_without_a_member_by_its_schema_lacks_the_field(
    registry: FakeRegistry, sent: bytes | None, cause: str
) -> None:
    registry.register("orders-value", "AVRO", AVRO)
    field, message = member("{schema:/id}"), record(0, value=sent)
    assert field.of(message, []) is None
    assert field.why_missing(message) == cause
    with pytest.raises(UnrenderableError, match="schema:/id"):
        field.text(message, [])


def test_a_registry_that_does_not_answer_is_no_missing_field(registry: FakeRegistry) -> None:
    registry.stop()
    with pytest.raises(RegistryUnavailableError):
        member("{schema:/id}").of(record(0, value=payload(1, b"\x00")), [])


JSON_VALUES = st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(max_size=9)


@given(st.dictionaries(st.sampled_from("abcd"), JSON_VALUES | st.lists(JSON_VALUES, max_size=2)))
def test_avro_and_json_schema_give_the_text_that_json_gives(content: dict[str, object]) -> None:
    value = ["null", "boolean", "long", "string"]
    schema = {"type": "map", "values": [*value, {"type": "array", "items": value}]}
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), content)
    document = json.dumps(content).encode()
    sent = {1: stream.getvalue(), 2: document}
    registry = FakeSchemas(_1=RegisteredSchema("AVRO", json.dumps(schema)), _2=JSON_SCHEMA)
    use(Documents(SteppedLookups(registry, float), waits=True))
    try:
        for name in "abcde":
            for end in ("", "/0", "/1"):
                wanted = member(f"{{json:/{name}{end}}}").of(record(0, value=document), [])
                for number, body in sent.items():
                    message = record(0, value=payload(number, body))
                    assert member(f"{{schema:/{name}{end}}}").of(message, []) == wanted
    finally:
        use(None)


JSON_SCHEMA = RegisteredSchema("JSON", "{}")


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("{key}", ""),
        ("{header:id}", "id"),
        ("{header:id\0}", UNNAMED),
        ("{json:/id}", UNNAMED),
        ("{sha256:value}", UNNAMED),
    ],
)
def test_compiled_code_reads_the_key_and_headers_whose_names_c_can_hold(
    text: str, name: str
) -> None:
    assert compiled_name(member(text)) == name


def test_no_field_has_no_compiled_name() -> None:
    assert compiled_name(None) is None


@rows(
    ("text", "value", "absence"),
    {
        "a member": ("{json:/id}", b"{}", NoField.MISSING),
        "null": ("{json:/id}", b'{"id": null}', NoField.MISSING),
        "no text": ("{json:/id}", b'{"id": []}', NoField.MISSING),
        "no value": ("{json:/id}", None, NoField.MISSING),
        "no JSON": ("{json:/id}", b"id", NoField.UNREADABLE),
        "a byte order mark": ("{json:/id}", b'\xef\xbb\xbf{"id": 1}', NoField.UNREADABLE),
        "not UTF-8": ("{json:/id}", b'{"id": "\xff"}', NoField.UNREADABLE),
        "a key": ("{key-json:/id}", b"id", NoField.MISSING),
        "content": ("{sha256-json:/id}", b"{}", NoField.MISSING),
        "content, no JSON": ("{sha256-json:/id}", b"{", NoField.UNREADABLE),
        "a header": ("{header:id}", b"id", NoField.MISSING),
        "a digest": ("{sha256:value}", None, NoField.MISSING),
        "a filter": ("{lower:json:/id}", b"{", NoField.UNREADABLE),
        "one of several": ("{json:/id or header:id}", b"{", NoField.UNREADABLE),
        "none of several": ("{header:id or json:/id}", b"{}", NoField.MISSING),
        "a schema": ("{schema:/id}", payload(1, b"\x00"), NoField.MISSING),
        "an unknown schema": ("{schema:/id}", payload(77, b""), NoField.UNREADABLE),
        "other bytes": ("{schema:/id}", b"{}", NoField.UNREADABLE),
    },
)
def test_a_document_that_cannot_be_decoded_is_told_from_one_without_the_field(
    registry: FakeRegistry, text: str, value: bytes | None, absence: NoField
) -> None:
    registry.register("orders-value", "AVRO", AVRO)
    message = record(0, value=value, key=b"{}")
    for template in (text, f"{text}-{{key}}"):  # alone, and escaped
        reader = some(identifier_of(template))
        assert reader.of(message, []) is None
        assert reader.read(message, []) is absence
        assert reader.missing(message, []).read(message, []) is absence


@pytest.mark.parametrize(
    "template", ["{json:/order/id}", "{lower:json:/order/id}|{json:/order/n}", "{key}-{header:a}"]
)
def test_what_is_read_is_the_id(template: str) -> None:
    message, headers = record(0, value=DOCUMENT), [("a", b"b")]
    reader = some(identifier_of(template))
    assert reader.read(message, headers) == reader.of(message, headers) is not None
