"""Where dead letters are stored, and which partition decides each again."""

from dataclasses import replace

import pytest
from confluent_kafka import murmur2

from ringfence_service.config.addresses import AddressBook
from ringfence_service.config.kafka_properties import KafkaSettings
from ringfence_service.config.model import (
    ApiSettings,
    Config,
    RouteSettings,
    SchemaRegistrySettings,
    ServiceSettings,
)
from ringfence_service.dead_letters.owners import DeadLetterOwners, dead_letter_topics
from ringfence_service.dead_letters.redrive_coordinator import first_deciding
from ringfence_service.kafka.model import TopicInfo
from ringfence_service.queries.dead_letters import DeadLetterPosition, DeadLetterView, view_of
from ringfence_service.schemas.documents import connect, use
from ringfence_service.schemas.errors import RegistryUnavailableError
from tests.fakes.schema_registry import FakeRegistry, payload

TOPICS = {
    "orders": TopicInfo("id-1", 3, 10**6, "delete", {}),
    "clicks": TopicInfo("id-2", 2, 10**6, "delete", {}),
}
ORDERS = RouteSettings(name="o", inputs=("orders",), scope="partition", address="{header:a}")
CLICKS = RouteSettings(name="c", inputs=("clicks",), scope="address", address="{key}")


def config(*routes: RouteSettings) -> Config:
    service = ServiceSettings(group_id="g", by_address_partitions=12)
    kafka = KafkaSettings({}, {}, {}, {})
    return Config(kafka, service, ApiSettings(), routes, AddressBook.of({}))


def letter(
    topic: str = "orders", partition: int = 2, reason: str = "duplicate", key: bytes | None = b"k"
) -> DeadLetterView:
    told = {"reason": reason, "topic": topic, "partition": str(partition), "offset": "4"}
    ours = [(f"ringfence.{name}", text.encode()) for name, text in told.items()]
    return view_of(DeadLetterPosition("dlq", 0, 0), 1, key, None, [("a", b"x"), *ours])


@pytest.mark.parametrize(
    ("view", "owner"),
    [
        (letter(), ("orders", 2)),
        (letter("clicks", 1), ("g.by-address", murmur2(b"k", 12))),
        (letter("clicks", 99), ("g.by-address", murmur2(b"k", 12))),
        (letter("clicks", key=None), "no-address"),
        (letter("orders", 3), "no-input"),
        (letter("gone"), "no-route"),
        (letter(reason="unreadable-headers"), "unreadable-headers"),
        (letter(reason="unreadable-batch"), "unreadable-batch"),
        (view_of(DeadLetterPosition("dlq", 0, 0), 1, b"k", None, []), "foreign"),
    ],
)
def test_each_letter_goes_where_its_address_is_decided(
    view: DeadLetterView, owner: tuple[str, int] | str
) -> None:
    assert DeadLetterOwners(config(ORDERS, CLICKS), TOPICS).owner(view) == owner


@pytest.mark.parametrize(
    ("dead_letter", "allowed", "found"),
    [
        ("{topic}.dlq", (), ["g.dead-letters", "orders.dlq"]),
        ("DLQ", (), ["DLQ", "g.dead-letters"]),
        ("DLQ.{address}", ("DLQ.x", "x"), ["DLQ.x", "g.dead-letters"]),
        ("{header:to}.dlq", ("orders.dlq", "DLQ"), ["g.dead-letters", "orders.dlq"]),
        ("absent", (), ["g.dead-letters"]),
    ],
)
def test_the_topics_are_those_that_the_routes_write_and_that_exist(
    dead_letter: str, allowed: tuple[str, ...], found: list[str]
) -> None:
    names = ["orders", "orders.dlq", "DLQ", "DLQ.x", "x", "g.dead-letters", "g.config"]
    route = RouteSettings(
        name="o",
        inputs=("orders",),
        address="{header:a}",
        dead_letter=dead_letter,
        allowed_outputs=allowed,
    )
    assert list(dead_letter_topics([route], names, "g")) == found


def test_a_letter_of_an_input_that_is_gone_has_no_owner() -> None:
    assert DeadLetterOwners(config(ORDERS), {}).owner(letter()) == "no-input"


def test_the_letters_of_an_input_that_is_gone_are_found() -> None:
    assert dead_letter_topics([ORDERS], ["orders.dlq"], "g") == ("orders.dlq",)


def test_all_agree_on_whose_turn_it_is() -> None:
    names = ["orders", "clicks", "abc"]
    assert first_deciding(config(ORDERS, CLICKS), names) == ("g.by-address", 0)
    assert first_deciding(config(ORDERS), names) == ("orders", 0)
    assert first_deciding(config(ORDERS), ["abc"]) is None


def test_a_letter_whose_address_nobody_can_read_now_has_no_answer() -> None:
    registry = FakeRegistry()
    registry.start()
    registry.register("key", "AVRO", '"string"')
    connect(SchemaRegistrySettings(registry.url))
    try:
        owners = DeadLetterOwners(config(replace(CLICKS, address="{key-schema:}")), TOPICS)
        sent = letter("clicks", key=payload(1, b"\x02k"))
        registry.stop()
        with pytest.raises(RegistryUnavailableError):
            owners.owner(sent)
        registry.start()
        assert owners.owner(sent) == ("g.by-address", murmur2(b"k", 12))
        assert owners.owner(letter("clicks", key=payload(7, b""))) == "no-address"
    finally:
        use(None)
        registry.stop()
