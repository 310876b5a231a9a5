"""Every record has one fate, whole: accepted unchanged, or a dead letter that tells why.

One service serves the module: all topics are written before it starts, and the tests look at
what it made of them. Invariant: the service has read every input to its end and still runs.
"""

import random
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.broker.raw import send_raw
from tests.broker.reading import drained
from tests.broker.service import Stage
from tests.broker.topics import create_topic
from tests.support.waiting import eventually
from tools.broker.cluster import Broker

pytestmark = [pytest.mark.broker, pytest.mark.xdist_group("records")]

GROUP: Final = f"records-{time.time_ns():x}"
ID: Final = "_DUPL_ID"
LIMIT_BYTES: Final = 20_000
LARGEST_VALUE: Final = bytes(LIMIT_BYTES - 72)
"""With neither key nor headers, a batch of it alone has exactly LIMIT_BYTES."""
SMALL_BYTES: Final = 2_000
_CHANCE: Final = random.Random(1)
"""Repeatable, and what it makes is no smaller when it is compressed."""
TOO_LARGE: Final = _CHANCE.randbytes(SMALL_BYTES)
LONG_NAME: Final = "".join(chr(_CHANCE.randrange(0x80, 0x800)) for _ in range(1_700))
"""A name of more bytes than fit, but of fewer letters, which the client counts."""
SENT_MS: Final = 1_700_000_000_000

Headers = list[tuple[str, bytes | None]]


class Record(NamedTuple):
    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp_ms: int = SENT_MS


def record(value: bytes, *headers: tuple[str, bytes | None]) -> Record:
    return Record(b"key", value, list(headers))


def topic(name: str) -> str:
    return f"{GROUP}-{name}"


def _member(position: int) -> Headers:
    return [("_TX_ID", b"t"), ("_TX_SIZE", b"2"), ("_TX_SEQ", b"%d" % position)]


UNCHANGED: Final = [
    Record(None, b"a null key", []),
    Record(b"", b"an empty key", []),
    Record(b"a null value", None, []),
    Record(b"an empty value", b"", []),
    Record(None, None, []),
    Record(b"\xff\x00", b"\x00\xfe", [("bytes", b"\xff\xfe\x00")]),
    Record(b"k", b"repeats", [("b", b"1"), ("a", b"2"), ("b", None), ("b", b""), ("a", b"2")]),
    Record(b"k", b"ids stay too", [("x", b"1"), (ID, b"kept"), ("x", None)]),
    Record(b"k", b"names", [("\N{LATIN SMALL LETTER E WITH ACUTE}\N{HOT BEVERAGE}", b"v")]),
    Record(b"k", b"many headers", [("many", b"%d" % number) for number in range(10_000)]),
    Record(b"k", b"early", [], timestamp_ms=1),
    Record(b"k", b"late", [], timestamp_ms=SENT_MS + 12_345),
]
REPEATED: Final = [
    record(b"first", (ID, b"1")),
    record(b"none"),
    record(b"again", (ID, b"1")),
    record(b"none"),
]
INPUTS: Final[Mapping[str, Sequence[Record]]] = {
    "unchanged": UNCHANGED,
    "stamped": REPEATED,
    "pattern-a": REPEATED,
    "pattern-b": REPEATED,
    "limit": [Record(None, LARGEST_VALUE, []), record(b"after it")],
    "small": [
        record(b"fits", (ID, b"1")),
        record(TOO_LARGE, (ID, b"2")),
        record(b"only the broker sees it", (LONG_NAME, b"")),
        record(b"fits too", (ID, b"2")),
    ],
    "raw": [],
    "nul": [],
    "groups": [
        record(b"1 of 2", *_member(1)),
        record(b"beyond", *[("many", b"")] * 65_533, *_member(2)),
        record(b"2 of 2", *[("many", b"")] * 65_532, *_member(2)),
    ],
}
ROUTES: Final = f"""
[[routes]]
inputs = ["{topic("unchanged")}", "{topic("limit")}", "{topic("small")}", "{topic("raw")}",
          "{topic("nul")}", "{topic("groups")}"]
scope = "partition"
[[routes]]
inputs = ["{topic("stamped")}"]
scope = "partition"
missing_id = "stamp"
[[routes]]
name = "pattern"
inputs = ["^{topic("pattern-.*")}"]
scope = "partition"
"""


class Bench:
    """The topics after the service has decided everything."""

    def __init__(self, client: Mapping[str, str]) -> None:
        self._client = dict(client)

    def output(self, name: str) -> list[Record]:
        return self.read(topic(f"{name}.unique"))

    def letters(self, name: str) -> list[Record]:
        return self.read(topic(f"{name}.dlq"))

    def fallback(self) -> list[Record]:
        return self.read(f"{GROUP}.dead-letters")

    def read(self, name: str) -> list[Record]:
        """All that is committed, in order; partition 0 is the only one."""
        found = (each.record for each in drained(self._client, name, 1))
        return [Record(key, value, list(headers), at) for key, value, headers, at in found]

    def stuck(self) -> list[str]:
        """The inputs whose committed offset is not their end."""
        consumer = Consumer({**self._client, "group.id": GROUP})
        try:
            places = consumer.committed([TopicPartition(topic(n), 0) for n in INPUTS], timeout=5)
            return [
                place.topic
                for place in places
                if place.offset != consumer.get_watermark_offsets(place, timeout=5)[1]
            ]
        except KafkaException:
            return ["a transaction is open"]
        finally:
            consumer.close()


def send(client: Mapping[str, str], name: str, records: Sequence[Record]) -> None:
    producer = Producer({**client, "message.max.bytes": 2_000_000, "batch.num.messages": 1})
    for each in records:
        producer.produce(
            name,
            key=each.key,
            value=each.value,
            headers=each.headers,  # type: ignore[arg-type]
            timestamp=each.timestamp_ms,
        )
    assert producer.flush(60) == 0, f"{name} did not take its records"


def _create(client: Mapping[str, str]) -> None:
    limits = {
        "limit": LIMIT_BYTES,
        "limit.unique": LIMIT_BYTES,
        "small.unique": SMALL_BYTES,
        "small.dlq": SMALL_BYTES,
    }
    outputs = [f"{name}{end}" for name in INPUTS for end in (".unique", ".dlq")]
    for name in (*INPUTS, *outputs):
        limit = str(limits.get(name, 1_048_588))
        create_topic(client, topic(name), config={"retention.ms": "-1", "max.message.bytes": limit})


@pytest.fixture(scope="module")
def bench(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    client, folder = broker.client_properties, tmp_path_factory.mktemp("records")
    _create(client)
    for name, records in INPUTS.items():
        send(client, topic(name), records)
    send_raw(client, topic("raw"), b"\xff\xfe")
    send(client, topic("raw"), [record(b"after it", (ID, b"1"))])
    send_raw(client, topic("nul"), b"before\0after")
    found = Bench(client)
    with Stage(client, folder, GROUP) as stage:
        service = stage.serving("service", rest=ROUTES)
        service.start()
        eventually(lambda: found.stuck() == [], service)
        eventually(lambda: service.is_ready, service)
        yield found
        eventually(lambda: found.stuck() == [], service)
        service.stop()


def values(records: Sequence[Record]) -> list[bytes | None]:
    return [each.value for each in records]


def fates(records: Sequence[Record]) -> list[tuple[bytes | None, str]]:
    """Value and reason of each dead letter."""
    return [(each.value, told(each)["reason"]) for each in records]


def told(letter: Record) -> dict[str, str]:
    return {
        name.removeprefix("ringfence."): (text or b"").decode()
        for name, text in letter.headers
        if name.startswith("ringfence.")
    }


@pytest.mark.row(23)
def test_an_accepted_record_is_unchanged(bench: Bench) -> None:
    assert bench.output("unchanged") == UNCHANGED
    assert bench.letters("unchanged") == []


def test_a_dead_letter_tells_all_after_the_original_headers(bench: Bench) -> None:
    (letter,) = bench.letters("stamped")
    sent, name = REPEATED[2], topic("stamped")
    assert (letter.key, letter.value) == (sent.key, sent.value)
    assert letter.headers[: len(sent.headers)] == sent.headers
    assert all(n.startswith("ringfence.") for n, _ in letter.headers[len(sent.headers) :])
    assert letter.timestamp_ms > SENT_MS, "it carries the time of the decision"
    ours = told(letter)
    assert ours["cause"]
    assert (ours["topic"], ours["partition"], ours["offset"]) == (name, "0", "2")
    assert (ours["timestamp"], ours["address"]) == (str(SENT_MS), name)
    assert (ours["id"], ours["original"]) == ("1", f"{name}-0@0")


@pytest.mark.row(22)
def test_a_header_name_that_is_not_text_makes_a_dead_letter_and_nothing_else(bench: Bench) -> None:
    assert fates(bench.letters("raw")) == [(b"raw", "unreadable-headers")]
    assert values(bench.output("raw")) == [b"after it"]


@pytest.mark.row(22)
def test_a_header_name_ends_at_its_first_nul_as_soon_as_the_client_reads_it(bench: Bench) -> None:
    """If this fails, the client shows the whole name: then such a record can be dead-lettered."""
    for name in (topic("nul"), topic("nul.unique")):
        assert [each.headers for each in bench.read(name)] == [[("before", b"value")]]
    assert bench.letters("nul") == []


@pytest.mark.row(22)
def test_a_group_takes_as_many_headers_as_the_state_can_count_and_no_more(bench: Bench) -> None:
    assert bench.output("groups") == [INPUTS["groups"][0], INPUTS["groups"][2]]
    assert fates(bench.letters("groups")) == [(b"beyond", "group-too-large")]


def test_a_missing_id_is_stamped_with_the_place_of_the_record(bench: Bench, broker: Broker) -> None:
    admin = AdminClient(dict(broker.client_properties))
    cluster_id = admin.describe_cluster().result(timeout=10).cluster_id
    stamps = [dict(each.headers)[ID] for each in bench.output("stamped")]
    place = f"{cluster_id}/{topic('stamped')}/0"
    assert stamps == [b"1", f"{place}/1".encode(), f"{place}/3".encode()]
    assert fates(bench.letters("stamped")) == [(b"again", "duplicate")]


def test_an_expression_reads_every_topic_that_fits_save_what_the_route_writes(
    bench: Bench,
) -> None:
    for name in ("pattern-a", "pattern-b"):
        assert values(bench.output(name)) == [b"first", b"none", b"none"]
        assert fates(bench.letters(name)) == [(b"again", "duplicate")]


@pytest.mark.row(23)
def test_a_record_of_the_largest_size_passes_between_equal_topics(
    bench: Bench, broker: Broker
) -> None:
    refusals: list[KafkaError | None] = []
    producer = Producer({**broker.client_properties, "message.max.bytes": 2_000_000})
    producer.produce(
        topic("limit"),
        value=LARGEST_VALUE + b"1",
        on_delivery=lambda refusal, _: refusals.append(refusal),
    )
    producer.flush(60)
    assert [each and each.code() for each in refusals] == [KafkaError.MSG_SIZE_TOO_LARGE]
    assert values(bench.output("limit")) == [LARGEST_VALUE, b"after it"]
    assert bench.letters("limit") == []


@pytest.mark.row(23)
@pytest.mark.row(24)
def test_what_the_output_cannot_take_is_a_dead_letter_and_its_id_is_not_remembered(
    bench: Bench,
) -> None:
    assert values(bench.output("small")) == [b"fits", b"fits too"]
    assert bench.letters("small") == []
    own = [each for each in bench.fallback() if told(each)["topic"] == topic("small")]
    assert fates(own) == [
        (TOO_LARGE, "too-large"),
        (b"only the broker sees it", "too-large"),
    ]
