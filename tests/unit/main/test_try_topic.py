"""What a trial concludes from the copies that it finds."""

import json

import pytest

from ringfence_main.try_topic import FoundCopy, TryMessage, TryResult, require_fields
from ringfence_service.config.model import RouteSettings
from ringfence_service.dedup.field import KeyField
from ringfence_service.dedup.route import InputRoute
from ringfence_service.errors import ExitError
from tests.support.helpers import rows

ACCEPTED = FoundCopy("orders.unique-0@4", None, "", None, marked=False)
LETTER = FoundCopy("orders.dlq-0@0", "duplicate", "", "orders-1@17", marked=False)
MARKED = FoundCopy("orders.unique-0@5", None, "", "orders-1@17", marked=True)
MIXED = FoundCopy("orders.unique-2@7", "duplicate", "", "orders-1@17", marked=False)
REJECTED = FoundCopy("orders.dlq-0@0", "no-address", "the key is null", None, marked=False)


@pytest.mark.parametrize(
    ("copies", "drops", "kept_out", "conclusion"),
    [
        ([ACCEPTED, LETTER], False, True, "its copy was kept out"),
        ([LETTER, ACCEPTED], False, True, "its copy was kept out"),
        ([ACCEPTED, MARKED], False, True, "its copy was kept out"),
        ([ACCEPTED], True, True, "its copy was kept out"),
        ([ACCEPTED], False, False, "The other did not appear"),
        ([LETTER], False, False, "The other did not appear"),
        ([ACCEPTED, ACCEPTED], False, False, "nothing is remembered for this address"),
        ([ACCEPTED, ACCEPTED], True, False, "nothing is remembered for this address"),
        ([REJECTED, REJECTED], False, False, "not recognised as a duplicate"),
        ([ACCEPTED, REJECTED], False, False, "not recognised as a duplicate"),
        ([], False, False, "Neither came out within 30 s"),
    ],
)
def test_one_comes_out_and_the_other_is_its_copy_or_the_conclusion_says_why_not(
    *, copies: list[FoundCopy], drops: bool, kept_out: bool, conclusion: str
) -> None:
    findings = TryResult(("orders-1@17", "orders-1@18"), tuple(copies), drops)
    assert findings.kept_out is kept_out
    first, *found, last = findings.lines()
    assert first == "sent       orders-1@17 and orders-1@18"
    assert len(found) == len(copies) + (drops and kept_out)
    assert conclusion in last


@pytest.mark.parametrize(
    ("copies", "marks", "kept_out", "conclusion"),
    [
        ([ACCEPTED, MIXED], False, False, "Both are in the output orders.unique"),
        ([ACCEPTED, ACCEPTED], False, False, "nothing is remembered for this address"),
        ([ACCEPTED, MARKED], False, False, "Both are in the output orders.unique"),
        ([ACCEPTED, MARKED], True, True, "the copy marked as a duplicate"),
        ([ACCEPTED, MIXED], True, False, "Both are in the output orders.unique"),
        ([ACCEPTED, LETTER], False, True, "its copy was kept out"),
    ],
)
def test_two_messages_in_the_output_are_a_failure_whatever_headers_they_have(
    *, copies: list[FoundCopy], marks: bool, kept_out: bool, conclusion: str
) -> None:
    sent = ("orders-1@17", "orders-1@18")
    findings = TryResult(sent, tuple(copies), drops=False, output="orders.unique", marks=marks)
    assert findings.kept_out is kept_out
    assert conclusion in findings.lines()[-1]


def test_a_copy_says_what_it_is_and_where() -> None:
    assert ACCEPTED.line() == "accepted   orders.unique-0@4"
    assert LETTER.line() == "duplicate  orders.dlq-0@0, a copy of orders-1@17"
    assert MARKED.line() == "duplicate  orders.unique-0@5, a copy of orders-1@17"
    assert REJECTED.line() == "rejected   orders.dlq-0@0: no-address, the key is null"


@rows(
    ("keys", "key", "value", "headers"),
    {
        "nothing": ({}, b"n", {"ringfence": "try", "id": "n"}, {}),
        "headers": (
            {"id": "{header:A}", "address": "{header:B}"},
            b"n",
            None,
            {"A": b"n", "B": b"n"},
        ),
        "members": (
            {"id": "{json:/order/id}-{json:/order/lines/0}", "address": "{json:/a~1b}"},
            b"n",
            {"ringfence": "try", "id": "n", "order": {"id": "n", "lines": {"0": "n"}}, "a/b": "n"},
            {},
        ),
        "the whole value": ({"id": "{json:}"}, b"n", "n", {}),
        "a member of the key": ({"id": "{key-json:/id}"}, b'{"id": "n"}', None, {}),
    },
)
def test_the_message_has_every_field_that_the_route_reads(
    keys: dict[str, str], key: bytes, value: object, headers: dict[str, bytes]
) -> None:
    route = InputRoute.bind(RouteSettings(name="orders", inputs=("orders",), **keys), "orders")  # type: ignore[arg-type]
    message = TryMessage.of(route, "n")
    assert message.key() == key
    if value is not None:
        assert json.loads(message.value()) == value
    assert headers.items() <= dict(message.headers).items()
    assert all(
        field.of(message, message.headers) == b"n" for field in route.fields() - {KeyField()}
    )


@pytest.mark.parametrize(
    "keys", [{"id": "{schema:/id}"}, {"address": "{key-schema:/id}"}, {"output": "{schema:/to}"}]
)
def test_a_route_that_reads_schemas_cannot_be_tried(keys: dict[str, str]) -> None:
    route = InputRoute.bind(RouteSettings(name="orders", inputs=("orders",), **keys), "orders")  # type: ignore[arg-type]
    with pytest.raises(ExitError, match=r"reads {.*schema:/.*}, and this command"):
        require_fields(route)
    require_fields(InputRoute.bind(RouteSettings(name="o", inputs=("o",), id="{json:/a}"), "o"))
