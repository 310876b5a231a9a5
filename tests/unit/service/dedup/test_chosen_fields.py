"""Fields that are chosen, filtered and digested."""

import pytest

from ringfence_service.config.templates import FIELD
from ringfence_service.dedup.claim import identifier_of
from ringfence_service.dedup.field import Field, HeaderField, JsonField, field_of
from tests.support.deciding import record
from tests.support.helpers import some


def field(text: str) -> Field:
    (name,) = FIELD.findall(text)
    made = field_of(name)
    assert made.name == text
    return made


def of(text: str, value: bytes | None = None, **headers: bytes) -> bytes | None:
    found = list(headers.items())
    return field(text).of(record(0, *found, value=value), found)


def test_the_first_name_that_a_message_has_is_its_id() -> None:
    either = "{json:/orderId or json:/order_id or header:id or key}"
    assert of(either, b'{"orderId": 7, "order_id": 8}') == b"7"
    assert of(either, b'{"order_id": 8}', id=b"h") == b"8"
    assert of(either, b"no JSON", id=b"h") == b"h"
    assert of(either) == b"k"
    assert field(either).in_value
    assert {type(each) for each in field(either).parts} >= {JsonField, HeaderField}


def test_a_message_with_none_of_them_says_what_each_lacks() -> None:
    either = field("{json:/orderId or header:id}")
    cause = "the value has nothing at {json:/orderId}; the record has nothing for {header:id}"
    assert either.of(record(0, value=b"{}"), []) is None
    assert either.why_missing(record(0, value=b"{}")) == cause


def test_a_name_with_or_in_it_is_one_name() -> None:
    assert of("{json:/yes or no}", b'{"yes or no": 1}') == b"1"


@pytest.mark.parametrize(
    ("text", "found", "expected"),
    [
        ("{lower:header:a}", b"AbC", b"abc"),
        ("{trim:header:a}", b" a b\t\n", b"a b"),
        ("{lower:trim:header:a}", " ÄB ".encode(), "äb".encode()),
        ("{lower:header:a}", b"A\xff", b"A\xff"),
        ("{trim:header:a}", b"  ", b""),
    ],
)
def test_filters_normalise_text(text: str, found: bytes, expected: bytes) -> None:
    assert of(text, a=found) == expected
    assert of(text) is None
    assert field(text).why_missing(record(0)) == "the record has nothing for {header:a}"


@pytest.mark.parametrize(
    "same",
    [
        b'{"after":{"id":1,"n":10.50,"t":"\xc3\xa4"},"ts":1}',
        b' { "ts" : 2 , "after" : { "n" : 105e-1, "t" : "\\u00e4", "id" : 1.0 } } ',
        b'{"after":{"t":"\xc3\xa4","n":1050E-2,"id":10e-1,"at":99},"ts":null}',
    ],
)
def test_equal_content_has_one_digest_however_it_is_written(same: bytes) -> None:
    digest = "{sha256-json:/after without /at}"
    first = b'{"after":{"id":1,"n":10.50,"t":"\xc3\xa4"}}'
    assert of(digest, same) == of(digest, first)
    whole = "{sha256-json: without /ts /after/at}"
    assert of(whole, same) == of(whole, first)


@pytest.mark.parametrize(
    "other",
    [
        b'{"a":"1"}',
        b'{"a":[1]}',
        b'{"a":{"1":null}}',
        b'{"a":true}',
        b'{"a":-1}',
        b'{"a":1,"b":null}',
        b'{"a":12345678901234567890.1}',
        b'{"a":1e400}',
        b'{"a":1e9999999999999999999}',
        b'{"b":1}',
    ],
)
def test_other_content_has_another_digest(other: bytes) -> None:
    assert of("{sha256-json:}", other) != of("{sha256-json:}", b'{"a":1}')
    assert of("{sha256-json:}", other) is not None


@pytest.mark.parametrize(
    ("one", "two"),
    [
        (b"12345678901234567890", b"12345678901234567891"),
        (b"0.1", b"0.10000000000000001"),
        (b"1e9999999999999999999", b"1e9999999999999999998"),
        (b"[1,2]", b"[2,1]"),
        (b'["a,b"]', b'["a","b"]'),
        (b"[[]]", b"[]"),
        (b'"1"', b"1"),
        (b'"true"', b"true"),
        (b'["None"]', b"[null]"),
    ],
)
def test_close_content_is_told_apart(one: bytes, two: bytes) -> None:
    assert of("{sha256-json:}", one) != of("{sha256-json:}", two)


@pytest.mark.parametrize("zero", [b"0", b"-0", b"0.0", b"0e7", b"-0.00E-3"])
def test_zero_has_no_sign_and_no_digits(zero: bytes) -> None:
    assert of("{sha256-json:}", zero) == of("{sha256-json:}", b"0")


def test_an_item_that_is_left_out_leaves_its_place() -> None:
    digest = "{sha256-json: without /0 /2/x}"
    assert of(digest, b'[1,2,{"x":3}]') == of(digest, b'[9,2,{"x":8}]')
    assert of(digest, b"[1,2]") != of(digest, b"[2]")


@pytest.mark.parametrize(
    ("value", "cause"),
    [
        (None, "the record has no value, and so nothing for {sha256-json:/a}"),
        (b"{}", "the value has nothing at {sha256-json:/a}"),
        (b'{"a":null}', "the value has nothing at {sha256-json:/a}"),
        (b"{", "the value is not JSON from character 1 on"),
        (b'{"a":NaN}', "the value is not JSON: it has NaN, which is no number there"),
        (b'{"b":[-Infinity]}', "the value is not JSON: it has -Infinity, which is no number there"),
        (b'\xef\xbb\xbf{"a":1}', "the value is not JSON: it begins with a byte order mark"),
        (b'{"a":"\\ud800"}', "the value is JSON with an unpaired surrogate"),
    ],
)
def test_a_message_without_content_says_why(value: bytes | None, cause: str) -> None:
    digest = field("{sha256-json:/a}")
    assert digest.of(record(0, value=value), []) is None
    assert digest.why_missing(record(0, value=value)) == cause


def test_fields_of_a_template_are_chosen_filtered_and_escaped_together() -> None:
    made = some(identifier_of("{lower:json:/a or json:/b}-{trim:header:h}"))
    headers = [("h", b" x ")]
    assert made.of(record(0, value=b'{"b": "B-1"}'), headers) == b"B\\-1-x"
    assert made.of(record(0, value=b'{"a": "A-1"}'), headers) == b"a\\-1-x"
