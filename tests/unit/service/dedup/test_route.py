"""Routes: templates, and which topics are read."""

import re

import pytest

from ringfence_client.headers import Reason
from ringfence_service.config.model import RouteSettings
from ringfence_service.dedup.field import Field, KeyField, UnrenderableError
from ringfence_service.dedup.record import RejectedError
from ringfence_service.dedup.route import (
    InputPartition,
    InputRoute,
    Template,
    finder,
    is_legal_topic,
    resolve,
    unrouted,
)
from ringfence_state.model import PartitionId, Rejection
from tests.fakes.admin import FakeAdmin
from tests.support.deciding import SOURCE, cluster_of, record
from tests.support.helpers import rows

HEADERS = [("A", None), ("A", b"first"), ("A", b"second"), ("bad", b"\xff")]


@pytest.mark.parametrize(
    ("text", "rendered"),
    [
        ("{topic}", "orders"),
        ("{topic}.unique", "orders.unique"),
        ("plain", "plain"),
        ("{key}", "k"),
        ("{header:A}", "first"),
        ("x-{key}-{header:A}-{address}-{topic}", "x-k-first-addr-orders"),
        ("{unknown} {", "{unknown} {"),
        ("{json:}-{address}", "v-addr"),
    ],
)
def test_a_template_is_filled(text: str, rendered: str) -> None:
    assert (
        Template.parse(text, "orders").render(record(0, value=b'"v"'), HEADERS, "addr") == rendered
    )


@pytest.mark.parametrize("text", ["{header:B}", "{header:bad}", "{header:a}"])
def test_a_field_without_text_is_named(text: str) -> None:
    with pytest.raises(UnrenderableError, match=re.escape(text)):
        Template.parse(text, "orders").render(record(0), HEADERS, "addr")


@pytest.mark.parametrize("key", [None, b"\xff"])
def test_a_key_without_text_is_named(key: bytes | None) -> None:
    with pytest.raises(UnrenderableError, match=re.escape("{key}")):
        Template.parse("{key}", "orders").render(record(0, key=key), [], "")


@pytest.mark.parametrize(
    ("text", "constant"),
    [("{topic}.x", "orders.x"), ("x", "x"), ("{key}", None), ("a{address}", None)],
)
def test_what_no_record_changes_is_constant(text: str, constant: str | None) -> None:
    assert Template.parse(text, "orders").constant == constant


@pytest.mark.parametrize(
    ("text", "field", "is_fixed_by_address"),
    [
        ("{topic}", None, True),
        ("a{address}", None, True),
        ("{key}", KeyField(), False),
        ("{key}-{key}", KeyField(), False),
        ("{key}-{header:A}", None, False),
        ("{key}-{address}", None, False),
    ],
)
def test_a_template_knows_what_decides_its_text(
    text: str, field: Field | None, *, is_fixed_by_address: bool
) -> None:
    template = Template.parse(text, "orders")
    assert template.field == field
    assert template.is_fixed_by_address is is_fixed_by_address


def test_a_field_in_a_value_is_only_text() -> None:
    assert (
        Template.parse("{key}", "orders").render(record(0, key=b"{address}"), [], "addr")
        == "{address}"
    )


def test_a_constant_address_makes_its_targets_constant() -> None:
    route = RouteSettings(name="r", inputs=("orders",), scope="partition", output="{address}.out")
    assert InputRoute.bind(route, "orders").output.constant == "orders.out"


def route(name: str, *inputs: str, output: str = "{topic}.unique") -> RouteSettings:
    return RouteSettings(name=name, inputs=inputs, output=output)


@rows(
    ("routes", "topics", "read"),
    {
        "by name": ([route("r", "a")], ["a", "b"], {"a": "r"}),
        "absent": ([route("r", "a")], ["b"], {}),
        "by expression": ([route("r", "^a.*")], ["a", "ab", "ba"], {"a": "r", "ab": "r"}),
        "an expression with a choice for each letter": (
            [route("r", "^(a+)+b$")],
            ["a" * 200, "a" * 200 + "b"],
            {"a" * 200 + "b": "r"},
        ),
        "an expression that another version took": ([route("r", "^a(?=b)")], ["ab"], {}),
        "never what it writes": ([route("r", "^.*")], ["a", "a.unique", "a.dlq"], {"a": "r"}),
        "never a topic of the group": (
            [route("r", "^.*")],
            ["a", "g.changelog.a", "g.x", "gx"],
            {"a": "r", "gx": "r"},
        ),
        "never one of Kafka's own": ([route("r", "^.*")], ["a", "__consumer_offsets"], {"a": "r"}),
        "not even by name": ([route("r", "a", "g.acks")], ["a", "g.acks"], {"a": "r"}),
        "the first route wins": (
            [route("1", "a"), route("2", "^.*")],
            ["a", "b"],
            {"a": "1", "b": "2"},
        ),
        "whatever its kind": (
            [route("2", "^.*"), route("1", "a")],
            ["a", "b"],
            {"a": "2", "b": "2"},
        ),
        "never what another route writes": (
            [route("1", "a", output="b"), route("2", "b")],
            ["a", "b"],
            {"a": "1"},
        ),
    },
)
def test_the_inputs_are(
    routes: list[RouteSettings], topics: list[str], read: dict[str, str]
) -> None:
    found = resolve(routes, topics, "g")
    assert {name: bound.settings.name for name, bound in found.items()} == read


def test_what_a_publisher_may_steer_to_is_never_an_input() -> None:
    steered = RouteSettings(
        name="r", inputs=("^.*",), output="{header:TO}", allowed_outputs=("elsewhere",)
    )
    assert set(resolve([steered], ["a", "elsewhere"], "g")) == {"a"}


@pytest.mark.parametrize(
    ("name", "legal"),
    [
        ("a.b_c-1", True),
        ("a" * 249, True),
        ("a" * 250, False),
        ("", False),
        (".", False),
        ("..", False),
        ("...", True),
        ("a b", False),
        ("a/b", False),
        ("é", False),
        ("a\n", False),
    ],
)
def test_a_topic_name_is_legal_as_kafka_has_it(name: str, *, legal: bool) -> None:
    assert is_legal_topic(name) is legal


ROUTE = route("r", "orders", "^old[.].*")
BOUND = InputRoute.bind(ROUTE, "orders")
UNNAMED = "it does not say which input it came from"


@rows(
    ("written", "found"),
    {
        "an input": (
            b"orders-3",
            InputPartition(PartitionId("orders", 3), BOUND, 4, None, 1 << 20),
        ),
        "one that is deleted": (
            b"old.orders-3",
            InputPartition(PartitionId("old.orders", 3), InputRoute.bind(ROUTE, "old.orders"), 0),
        ),
        "no input any more": (
            b"other-3",
            unrouted(PartitionId("other", 3), "its input other belongs to no route any more"),
        ),
        "no name of a topic": (b"old. -3", unrouted(PartitionId("old. -3", 0), UNNAMED)),
        "no partition": (b"orders", unrouted(PartitionId("orders", 0), UNNAMED)),
        "no text": (
            b"\xff" * 999,
            unrouted(PartitionId("\N{REPLACEMENT CHARACTER}" * 300, 0), UNNAMED),
        ),
    },
)
def test_the_input_of_a_record_is_found_by_the_name_in_its_origin(
    written: bytes, found: InputPartition
) -> None:
    topics = FakeAdmin(cluster_of(orders=4)).topics(["orders"])
    assert finder([ROUTE], "g", lambda: topics)(written) == found


def test_a_record_of_no_route_is_rejected_and_counted_for_its_topic() -> None:
    lost = unrouted(PartitionId("other", 3), "no route")
    assert (lost.partitions, lost.route.settings.name) == (0, "other")
    with pytest.raises(RejectedError) as error:
        lost.check()
    assert error.value.why == Rejection(Reason.NO_OUTPUT, "no route")


@rows(
    ("address", "cause"),
    {
        "as long as may be": (b"a" * 4096, None),
        "longer": (b"a" * 4097, "the address is empty or longer than 4096 bytes"),
        "longer in bytes": ("ü".encode() * 2049, "the address is empty or longer than 4096 bytes"),
        "empty": (b"", "the address is empty or longer than 4096 bytes"),
        "reserved": (
            b"ringfence.dead-letters.a",
            "the address begins with ringfence.dead-letters., a prefix that Ringfence reserves",
        ),
        "of a bridge": (
            b"BRIDGE.a",
            "the address begins with BRIDGE., a prefix that Ringfence reserves",
        ),
        "like one of a bridge": (b"BRIDGES.a", None),
        "absent": (None, "no address: the record has nothing for {header:A}"),
    },
)
def test_an_address_is_text_of_a_limited_size(address: bytes | None, cause: str | None) -> None:
    settings = RouteSettings(name="r", inputs=("orders",), address="{header:A}")
    source = InputPartition(SOURCE, InputRoute.bind(settings, "orders"), 3)
    headers = [("A", address)]
    if cause is None:
        assert source.address(record(0), headers).encode() == address
        return
    with pytest.raises(RejectedError) as error:
        source.address(record(0), headers)
    assert error.value.why == Rejection(Reason.NO_ADDRESS, cause)
