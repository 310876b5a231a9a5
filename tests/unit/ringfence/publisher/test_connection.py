"""The connection: where a publisher writes. The rest needs a real Kafka, see tests/broker."""

import sys
from collections.abc import Callable

import pytest
from confluent_kafka import KafkaError, KafkaException, murmur2

from ringfence_client.publisher.connection import ConnectionSettings, KafkaConnection
from ringfence_client.publisher.errors import PublisherError
from ringfence_client.publisher.message import Message

SETTINGS = ConnectionSettings("p", "orders", "orders", "g", {}, {})
EVERY = 2**31 - 1
"""A count of partitions at which the hash itself is seen."""


@pytest.mark.parametrize(
    ("name", "of_java"), [("21", -973932308), ("foobar", -790332482), ("abc", 479470107)]
)
def test_a_name_is_placed_as_javas_clients_place_a_key(name: str, of_java: int) -> None:
    assert murmur2(name.encode(), EVERY) == of_java & 0x7FFFFFFF


class FailedProducer:
    """A client with a fatal error."""

    def __init__(self) -> None:
        self.polled_within = list[BaseException | None]()

    def produce(self, *_: object, **__: object) -> None:
        raise KafkaException(KafkaError(KafkaError._FATAL, "a gap would follow", fatal=True))

    def poll(self, _wait_s: float) -> int:
        self.polled_within.append(sys.exception())
        raise KafkaException(KafkaError(KafkaError._FATAL, "a gap would follow", fatal=True))


@pytest.mark.parametrize(
    "call",
    [
        lambda connection: connection.send(Message(b"", None, (), 0), []),
        lambda connection: connection.poll(0.0),
    ],
    ids=["send", "poll"],
)
def test_the_client_is_not_called_while_its_error_is_handled(
    call: Callable[[KafkaConnection], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would never free that error, nor with its frames the connection."""
    monkeypatch.setattr(KafkaConnection, "__init__", lambda _self: None)
    connection, producer = KafkaConnection(), FailedProducer()  # type: ignore[call-arg]
    state = {"_producer": producer, "_failure": None, "partition": 0, "_settings": SETTINGS}
    connection.__dict__.update(state)
    with pytest.raises(PublisherError, match="a gap would follow"):
        call(connection)
    assert producer.polled_within
    assert set(producer.polled_within) == {None}
