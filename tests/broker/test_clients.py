"""The producers of docs/wire-contract.md, each with its own client: an id is one id for all."""

import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from uuid import uuid4

import pytest
from confluent_kafka import Producer

from ringfence_client.headers import DUPLICATE_ID, DeadLetter
from tests.broker.clients import (
    AIOKAFKA,
    CONFLUENT,
    FRANZ_GO,
    HERE,
    JAVA,
    KAFKAJS,
    KCAT,
    RINGFENCE,
    SPRING,
    Client,
)
from tests.broker.reading import drained
from tests.broker.service import Service, Stage
from tests.broker.topics import create_topic
from tests.broker.workload import PARTITIONS, Headers, Record, Seen
from tests.support.pages import block
from tests.support.waiting import eventually
from tools.broker.cluster import Broker

pytestmark = [
    pytest.mark.broker,
    pytest.mark.usefixtures("embedded_kind"),
    pytest.mark.xdist_group("clients"),  # one service for all of them
]

PAGE: Final = (Path(__file__).parents[2] / "docs" / "wire-contract.md").read_text("utf-8")
PRODUCERS: Final = {
    CONFLUENT: block(PAGE, "python", "confluent_kafka"),
    AIOKAFKA: block(PAGE, "python", "aiokafka"),
    JAVA: block(PAGE, "java", "class Send {"),
    SPRING: block(PAGE, "java", "KafkaTemplate"),
    FRANZ_GO: block(PAGE, "go", "franz-go"),
    KAFKAJS: block(PAGE, "js", "kafkajs"),
    KCAT: block(PAGE, "sh", "kcat"),
}
CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")


class Shop(Stage):
    """One input that every client sends to, and the service that decides its messages."""

    def create(self) -> Service:
        """Start the service on new topics."""
        self.topic = self.group
        for topic in (self.topic, f"{self.topic}.unique", f"{self.topic}.dlq"):
            create_topic(self.client, topic, PARTITIONS)
        self.service = self.serving("shop", rest=f'[[routes]]\ninputs = ["{self.topic}"]')
        self.service.start()
        return self.service

    def send(self, client: Client, text: str, folder: Path, **environment: str) -> None:
        """Run a producer, and wait until all that it sent is decided."""
        address = self.client["bootstrap.servers"]
        client.run(text, folder, KAFKA_BOOTSTRAP_SERVERS=address, TOPIC=self.topic, **environment)
        self.wait_decided()

    def wait_decided(self) -> None:
        """Until each message has become one output or one dead letter."""
        sent = len(self.sent())
        eventually(lambda: len(self.accepted()) + len(self.letters()) >= sent, self.service)
        assert len(self.accepted()) + len(self.letters()) == sent

    def accepted(self) -> list[Seen]:
        return sorted(drained(self.client, f"{self.topic}.unique", PARTITIONS))

    def letters(self) -> dict[bytes, Seen]:
        """The dead letters, by the position of the message in the input."""
        letters = dict[bytes, Seen]()
        for each in drained(self.client, f"{self.topic}.dlq", PARTITIONS):
            partition, offset = (
                _header(each.record, name) for name in (DeadLetter.PARTITION, DeadLetter.OFFSET)
            )
            letters[b"%b-%b@%b" % (self.topic.encode(), partition, offset)] = each
        return letters

    def originals(self) -> dict[bytes, bytes]:
        """The positions of the messages that were accepted, by their ids."""
        places = {
            f"{self.topic}-{each.partition}@{each.offset}".encode(): each.record
            for each in self.sent()
            if DUPLICATE_ID in dict(each.record.headers)
        }
        letters = self.letters()
        accepted = {place: each for place, each in places.items() if place not in letters}
        return {_header(each, DUPLICATE_ID): place for place, each in accepted.items()}

    def sent(self) -> list[Seen]:
        return drained(self.client, self.topic, PARTITIONS)


@pytest.fixture(scope="module")
def shop(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    """A shop that has the two messages of the page's first producer."""
    folder = tmp_path_factory.mktemp("shop")
    with Shop(broker.client_properties, folder, f"shop-{uuid4().hex[:12]}") as shop:
        service = shop.create()
        shop.send(CONFLUENT, PRODUCERS[CONFLUENT], folder)
        assert len(shop.letters()) == 1
        yield shop
        service.stop()


def test_every_producer_of_the_page_is_tried() -> None:
    section = PAGE.partition("\n## Send three messages")[2].partition("\n## ")[0]
    assert len(re.findall(r"^```\w+$", section, re.MULTILINE)) == len(PRODUCERS)


@pytest.mark.parametrize("client", PRODUCERS, ids=lambda client: client.name)
def test_an_id_that_one_client_sent_is_a_duplicate_when_another_sends_it(
    client: Client, shop: Shop, tmp_path: Path
) -> None:
    client.skip_if_missing()
    accepted, before = shop.accepted(), shop.letters()
    shop.send(client, PRODUCERS[client], tmp_path)
    assert shop.accepted() == accepted
    originals = shop.originals()
    made = [each.record for place, each in shop.letters().items() if place not in before]
    assert sorted((record.value, *_explained(record)) for record in made) == [
        (b"books", b"order-2", b"duplicate", originals[b"order-2"]),
        (b"shoes", b"order-1", b"duplicate", originals[b"order-1"]),
        (b"shoes", b"order-1", b"duplicate", originals[b"order-1"]),
    ]


def test_an_id_is_the_same_by_every_codec_and_among_null_headers(
    shop: Shop, tmp_path: Path
) -> None:
    JAVA.skip_if_missing()
    before = shop.accepted()
    for codec in CODECS:
        producer = Producer({**shop.client, "compression.type": codec})
        headers = _with_nulls(codec)
        producer.produce(shop.topic, b"value " * 500, b"key", headers=list(headers))
        assert producer.flush(30) == 0
    shop.wait_decided()
    accepted = [each for each in shop.accepted() if each not in before]
    assert sorted(each.record.headers for each in accepted) == sorted(map(_with_nulls, CODECS))
    shop.send(JAVA, (HERE / "Codecs.java").read_text("utf-8"), tmp_path, CODECS=",".join(CODECS))
    assert len(shop.accepted()) == len(before) + len(CODECS)
    originals = shop.originals()
    for codec in CODECS:
        name, records = codec.encode(), [each.record for each in shop.letters().values()]
        (copy,) = (each for each in records if _header(each, DUPLICATE_ID) == name)
        assert copy.headers[:4] == _with_nulls(codec)
        assert _explained(copy) == (name, b"duplicate", originals[name])


def test_the_interceptor_gives_a_message_that_is_sent_again_the_id_that_it_had(
    shop: Shop, tmp_path: Path
) -> None:
    RINGFENCE.skip_if_missing()
    before = [*shop.sent(), *shop.accepted()]
    shop.send(RINGFENCE, (HERE / "Intercepted.java").read_text("utf-8"), tmp_path)
    ids = defaultdict[bytes | None, list[bytes | None]](list)
    for each in sorted(shop.sent()):
        if each not in before:
            ids[each.record.value].append(dict(each.record.headers).get(DUPLICATE_ID))
    counted = sorted(map(str, ids.pop(b"by counter")))
    assert ids == {
        b"by key": [b"key-1", b"key-1"],
        b"by header": [b"\xff\x00", b"\xff\x00"],
        b'{"order": {"id": 4711}}': [b"4711", b"4711"],
        b"id of its own": [None],
        b"no key": [None],
    }
    assert re.fullmatch(r"b'billing-[0-9a-f-]{36}-[123]'", counted[0])
    assert len(counted) == 4
    assert len(set(counted)) == 3, "one object was sent twice"
    accepted = [each.record.value for each in shop.accepted() if each not in before]
    assert sorted(map(str, accepted)) == sorted(map(str, [*ids, *[b"by counter"] * 3]))


def _with_nulls(codec: str) -> Headers:
    """The headers of a message whose id is not its first header of that name."""
    return ("note", None), (DUPLICATE_ID, None), (DUPLICATE_ID, codec.encode()), ("empty", b"")


def _explained(letter: Record) -> tuple[bytes, ...]:
    """The id of a dead letter, why it is one, and the position of the original."""
    names = (DUPLICATE_ID, DeadLetter.REASON, DeadLetter.ORIGINAL)
    return tuple(_header(letter, name) for name in names)


def _header(record: Record, name: str) -> bytes:
    """The last header of a name."""
    value = dict(record.headers)[name]
    assert value is not None
    return value
