"""What a topic takes only when it is compressed: on a broker it goes through both scopes."""

import random
import time
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

import pytest
from confluent_kafka import KafkaError, Producer

from tests.broker.reading import drained
from tests.broker.service import Service, Stage
from tests.broker.topics import create_topic
from tests.support.waiting import eventually
from tools.broker.cluster import Broker

pytestmark = [pytest.mark.broker, pytest.mark.xdist_group("compression")]

CHANCE: Final = random.Random(1)
JSON: Final = (b'{"order": 1, "customer": "c-17", "lines": [1, 2, 3]}' * 60_000)[:3_000_000]
FAR: Final = CHANCE.randbytes(700_000) * 4
HEX: Final = CHANCE.randbytes(1_000_000).hex().encode()
"""It has nearly as many bits as the limit has, and gzip does not find that."""
SENT: Final[Mapping[str, tuple[str, bytes]]] = {
    "repeated JSON by zstd": ("zstd", JSON),
    "repeated JSON by gzip": ("gzip", JSON),
    "repeated JSON by lz4": ("lz4", JSON),
    "repeated JSON by snappy": ("snappy", JSON),
    "what repeats far apart": ("zstd", FAR),
    "what is close to the limit": ("zstd", HEX),
    "small": ("none", b"small"),
}
BYTES_MAX: Final = {"message.max.bytes": 100_000_000, "batch.size": 100_000_000}


def stored(error: KafkaError | None, _message: object) -> None:
    assert error is None, error


class Decided(NamedTuple):
    client: Mapping[str, str]
    group: str
    service: Service
    names: Mapping[str, str]
    """The input of each scope."""

    def values(self, topic: str) -> list[bytes | None]:
        return [each.record.value for each in drained(self.client, topic, 1)]

    def is_done(self) -> bool:
        ends = (f"{name}.{end}" for name in self.names.values() for end in ("unique", "dlq"))
        decided = sum(len(self.values(end)) for end in ends)
        return decided + len(self.values(f"{self.group}.dead-letters")) == 4 * len(SENT)


@pytest.fixture(scope="module", params=["python", "native"])
def decided(
    broker: Broker, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[Decided]:
    client, group = dict(broker.client_properties), f"compression-{time.time_ns():x}"
    names = {scope: f"{group}-{scope}" for scope in ("partition", "address")}
    for name in names.values():
        for end in ("", ".unique", ".dlq"):
            create_topic(client, f"{name}{end}")
        for _ in range(2):
            for identifier, (codec, value) in SENT.items():
                producer = Producer({**client, **BYTES_MAX, "compression.type": codec})
                headers: dict[str, str | bytes | None] = {"_DUPL_ID": identifier.encode()}
                producer.produce(name, value, b"k", headers=headers, on_delivery=stored)
                assert producer.flush(60) == 0
    routes = "".join(
        f'[[routes]]\ninputs = ["{name}"]\nscope = "{scope}"\n' for scope, name in names.items()
    )
    with Stage(client, tmp_path_factory.mktemp("compression"), group) as stage:
        settings = f'fast_path = "{request.param}"'
        service = stage.serving("service", service=settings, rest=routes)
        service.start()
        found = Decided(client, group, service, names)
        eventually(found.is_done, service)
        yield found
        service.stop()


def test_it_is_accepted_once_whichever_codec_its_publisher_used(decided: Decided) -> None:
    for name in decided.names.values():
        assert sorted(filter(None, decided.values(f"{name}.unique"))) == sorted(
            value for _, value in SENT.values()
        )


def test_its_duplicates_go_to_their_own_dead_letter_topic(decided: Decided) -> None:
    for name in decided.names.values():
        assert len(decided.values(f"{name}.dlq")) == len(SENT)
    assert decided.values(f"{decided.group}.dead-letters") == []


def test_it_costs_few_transactions(decided: Decided) -> None:
    text = decided.service.log.read_text(encoding="utf-8")
    assert "compression_changed" in text
    assert text.count("transaction_aborted") <= 8, "each codec once, in each of two processes"
    assert "MSG_SIZE_TOO_LARGE" not in text
