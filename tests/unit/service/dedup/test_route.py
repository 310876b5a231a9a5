"""Routes: templates, and which topics are read."""

import re

import pytest

from service.config.load import RouteSettings
from service.dedup.field import UnrenderableError
from service.dedup.route import InputRoute, Template, is_legal_topic, resolve
from tests.support.deciding import record
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
