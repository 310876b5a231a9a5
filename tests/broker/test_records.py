"""Every record has one fate, whole: accepted unchanged, or a dead letter that tells why.

One service serves the module: all topics are written before it starts, and the tests look at
what it made of them. Invariant: the service has read every input to its end and still runs.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.broker.conftest import create_topic
from tests.broker.raw import send_raw
from tests.broker.service import Service
from tests.waiting import eventually
from tools.broker.cluster import Broker
from tools.broker.config import _free_port as free_port

pytestmark = pytest.mark.broker

GROUP: Final = f"records-{time.time_ns():x}"
ID: Final = "_DUPL_ID"
LIMIT_BYTES: Final = 20_000
LARGEST_VALUE: Final = bytes(LIMIT_BYTES - 72)
"""With neither key nor headers, a batch of it alone has exactly LIMIT_BYTES."""
SMALL_BYTES: Final = 2_000
SENT_MS: Final = 1_700_000_000_000
KIB: Final = 1024

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
CLAIMS: Final = [
    record(b"empty", (ID, b"")),
    record(b"empty again", (ID, b"")),
    record(b"64 KiB", (ID, b"i" * 64 * KIB)),
    record(b"64 KiB again", (ID, b"i" * 64 * KIB)),
    record(b"70 KiB", (ID, b"i" * 70 * KIB)),
    record(b"aliases differ", (ID, b"one"), ("_AMQ_DUPL_ID", b"two")),
    record(b"aliases agree", (ID, b"three"), ("_HQ_DUPL_ID", b"three")),
    record(b"alias again", ("_AMQ_DUPL_ID", b"three")),
    record(b"the first counts", (ID, b"four"), (ID, b"empty")),
    record(b"null is absent", (ID, None), (ID, b"four")),
    record(b"expired", (ID, b"five"), ("_EXPIRES_AT", b"1")),
    record(b"not remembered", (ID, b"five"), ("_EXPIRES_AT", b"99999999999999")),
    record(b"no time", (ID, b"six"), ("_EXPIRES_AT", b"soon")),
    record(b"binary", (ID, b"\xff\x00")),
    record(b"binary again", (ID, b"\xff\x00")),
]
REPEATED: Final = [
    record(b"first", (ID, b"1")),
    record(b"none"),
    record(b"again", (ID, b"1")),
    record(b"none"),
]
INPUTS: Final[Mapping[str, Sequence[Record]]] = {
    "unchanged": UNCHANGED,
    "claims": CLAIMS,
    "strict": REPEATED,
    "stamped": REPEATED,
    "dropped": REPEATED,
    "zero": REPEATED,
    "pattern-a": REPEATED,
    "pattern-b": REPEATED,
    "limit": [Record(None, LARGEST_VALUE, []), record(b"after it")],
    "small": [
        record(b"fits", (ID, b"1")),
        record(bytes(SMALL_BYTES), (ID, b"2")),
        record(b"only the broker sees it", ("\N{LATIN SMALL LETTER E WITH ACUTE}" * 1000, b"")),
        record(b"fits too", (ID, b"2")),
    ],
    "addressed": [
        record(b"at a", ("addr", b"a"), (ID, b"1")),
        record(b"at b", ("addr", b"b"), (ID, b"1")),
        record(b"nowhere", (ID, b"1")),
        record(b"null", ("addr", None), (ID, b"1")),
        record(b"empty", ("addr", b""), (ID, b"1")),
        record(b"not text", ("addr", b"\xff"), (ID, b"1")),
        record(b"a again", ("addr", b"a"), (ID, b"1")),
    ],
    "steered": [
        record(b"left", ("to", topic("left").encode()), (ID, b"1")),
        record(b"right", ("to", topic("right").encode()), (ID, b"2")),
        record(b"elsewhere", ("to", topic("claims").encode()), (ID, b"3")),
        record(b"illegal", ("to", b"../etc"), (ID, b"3")),
        record(b"unsaid", (ID, b"3")),
        record(b"3 was never accepted", ("to", topic("left").encode()), (ID, b"3")),
    ],
    "crowded": [
        record(b"1", ("addr", b"crowd.1"), (ID, b"1")),
        record(b"2", ("addr", b"crowd.2"), (ID, b"1")),
        record(b"3", ("addr", b"crowd.3"), (ID, b"1")),
        record(b"3 without id", ("addr", b"crowd.3")),
        record(b"1 still", ("addr", b"crowd.1"), (ID, b"2")),
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
inputs = ["{topic("unchanged")}", "{topic("claims")}", "{topic("limit")}", "{topic("small")}",
          "{topic("zero")}", "{topic("dropped")}", "{topic("raw")}",
          "{topic("nul")}", "{topic("groups")}"]
scope = "partition"
[[routes]]
inputs = ["{topic("strict")}"]
scope = "partition"
missing_id = "dead_letter"
[[routes]]
inputs = ["{topic("stamped")}"]
scope = "partition"
missing_id = "stamp"
[[routes]]
name = "pattern"
inputs = ["^{topic("pattern-.*")}"]
scope = "partition"
[[routes]]
inputs = ["{topic("addressed")}", "{topic("crowded")}"]
scope = "partition"
address = "{{header:addr}}"
[[routes]]
inputs = ["{topic("steered")}"]
scope = "partition"
output = "{{header:to}}"
allowed_outputs = ["{topic("left")}", "{topic("right")}"]
[addresses."{topic("dropped")}"]
on_duplicate = "drop"
[addresses."{topic("zero")}"]
id_cache_size = 0
[addresses."crowd.#"]
addresses_max = 2
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
        consumer = Consumer({**self._client, "group.id": "nobody", "enable.auto.commit": False})
        place = TopicPartition(name, 0, 0)
        try:
            end = consumer.get_watermark_offsets(place, timeout=10)[1]
            consumer.assign([place])
            found: list[Record] = []
            deadline = time.monotonic() + 20
            while end and consumer.position([place])[0].offset < end:
                assert time.monotonic() < deadline, f"{name} could not be read within 20 s"
                for message in consumer.consume(1000, 0.1):
                    assert message.error() is None, f"{name}: {message.error()}"
                    found.append(_seen(message))
            return found
        finally:
            consumer.close()

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


def _seen(message: Message) -> Record:
    headers = [*(message.headers() or ())]
    return Record(message.key(), message.value(), headers, message.timestamp()[1])


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
    assert producer.flush(20) == 0, f"{name} did not take its records"


def _create(client: Mapping[str, str]) -> None:
    limits = {
        "limit": LIMIT_BYTES,
        "limit.unique": LIMIT_BYTES,
        "small.unique": SMALL_BYTES,
        "small.dlq": SMALL_BYTES,
    }
    outputs = [f"{name}{end}" for name in INPUTS for end in (".unique", ".dlq")]
    for name in (*INPUTS, *outputs, "left", "right"):
        limit = str(limits.get(name, 1_048_588))
        create_topic(client, topic(name), config={"retention.ms": "-1", "max.message.bytes": limit})


def _config(client: Mapping[str, str], folder: Path, port: int) -> str:
    kafka = "\n".join(f'"{name}" = "{value}"' for name, value in client.items())
    return (
        f"[kafka]\n{kafka}\n"
        f'[service]\ngroup_id = "{GROUP}"\nstate_dir = "{folder / "state"}"\n'
        f"session_timeout_ms = 6000\n[api]\nport = {port}\n{ROUTES}"
    )


@pytest.fixture(scope="module")
def bench(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    client, folder = broker.client_properties, tmp_path_factory.mktemp("records")
    _create(client)
    for name, records in INPUTS.items():
        send(client, topic(name), records)
    send_raw(client, topic("raw"), b"\xff\xfe")
    send(client, topic("raw"), [record(b"after it", (ID, b"1"))])
    send_raw(client, topic("nul"), b"before\0after")
    port = free_port(0)
    config = folder / "ringfence.toml"
    config.write_text(_config(client, folder, port), encoding="utf-8")
    service, found = Service(config, port, folder / "service.log"), Bench(client)
    service.start()
    try:
        eventually(lambda: found.stuck() == [], service)
        eventually(lambda: service.get("/readyz")[0] == 200, service)
        yield found
        assert found.stuck() == []
        service.stop()
    finally:
        service.kill()


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


@pytest.mark.row(22)
def test_every_claim_ends_in_the_output_or_the_dead_letters_with_its_reason(bench: Bench) -> None:
    assert values(bench.output("claims")) == [
        b"empty",
        b"64 KiB",
        b"aliases agree",
        b"the first counts",
        b"not remembered",
        b"binary",
    ]
    assert fates(bench.letters("claims")) == [
        (b"empty again", "duplicate"),
        (b"64 KiB again", "duplicate"),
        (b"70 KiB", "invalid-claim"),
        (b"aliases differ", "invalid-claim"),
        (b"alias again", "duplicate"),
        (b"null is absent", "duplicate"),
        (b"expired", "expired"),
        (b"no time", "invalid-claim"),
        (b"binary again", "duplicate"),
    ]


def test_a_dead_letter_tells_all_after_the_original_headers(bench: Bench) -> None:
    began_ms, name = time.time() * 1000 - 120_000, topic("claims")
    for letter in bench.letters("claims"):
        place = values(CLAIMS).index(letter.value)
        sent = CLAIMS[place]
        assert letter.key == sent.key
        assert letter.headers[: len(sent.headers)] == sent.headers
        assert all(n.startswith("ringfence.") for n, _ in letter.headers[len(sent.headers) :])
        assert letter.timestamp_ms > began_ms, "it carries the time of the decision"
        ours = told(letter)
        assert ours["cause"]
        assert (ours["topic"], ours["partition"], ours["offset"]) == (name, "0", str(place))
        assert (ours["timestamp"], ours["address"]) == (str(SENT_MS), name)
    by_value = {letter.value: told(letter) for letter in bench.letters("claims")}
    assert by_value[b"empty again"]["id"] == ""
    assert by_value[b"empty again"]["original"] == f"{name}-0@0"
    assert by_value[b"binary again"]["id"] == "hex:ff00"
    assert by_value[b"null is absent"]["id"] == "four"
    assert "original" not in by_value[b"expired"]


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


def test_a_missing_id_is_dead_lettered_where_the_route_says_so(bench: Bench) -> None:
    assert bench.output("strict") == REPEATED[:1]
    assert fates(bench.letters("strict")) == [
        (b"none", "missing-id"),
        (b"again", "duplicate"),
        (b"none", "missing-id"),
    ]


def test_a_missing_id_is_stamped_with_the_place_of_the_record(bench: Bench, broker: Broker) -> None:
    admin = AdminClient(dict(broker.client_properties))
    cluster_id = admin.describe_cluster().result(timeout=10).cluster_id
    stamps = [dict(each.headers)[ID] for each in bench.output("stamped")]
    place = f"{cluster_id}/{topic('stamped')}/0"
    assert stamps == [b"1", f"{place}/1".encode(), f"{place}/3".encode()]
    assert fates(bench.letters("stamped")) == [(b"again", "duplicate")]


def test_a_duplicate_is_dropped_where_the_address_says_so(bench: Bench) -> None:
    assert values(bench.output("dropped")) == [b"first", b"none", b"none"]
    assert bench.letters("dropped") == []


def test_an_id_cache_of_size_0_passes_everything(bench: Bench) -> None:
    assert bench.output("zero") == REPEATED
    assert bench.letters("zero") == []


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
    producer.flush(20)
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
        (bytes(SMALL_BYTES), "too-large"),
        (b"only the broker sees it", "too-large"),
    ]


def test_an_address_from_a_header_needs_the_header(bench: Bench) -> None:
    assert values(bench.output("addressed")) == [b"at a", b"at b"]
    letters = bench.letters("addressed")
    assert fates(letters) == [
        (b"nowhere", "no-address"),
        (b"null", "no-address"),
        (b"empty", "no-address"),
        (b"not text", "no-address"),
        (b"a again", "duplicate"),
    ]
    assert "address" not in told(letters[0])
    assert told(letters[-1])["address"] == "a"


def test_a_publisher_steers_to_allowed_outputs_only(bench: Bench) -> None:
    assert values(bench.read(topic("left"))) == [b"left", b"3 was never accepted"]
    assert values(bench.read(topic("right"))) == [b"right"]
    assert bench.letters("steered") == []
    own = [each for each in bench.fallback() if told(each)["topic"] == topic("steered")]
    assert fates(own) == [
        (b"elsewhere", "no-output"),
        (b"illegal", "no-output"),
        (b"unsaid", "no-output"),
    ]


def test_an_address_too_many_is_refused_and_those_held_go_on(bench: Bench) -> None:
    assert values(bench.output("crowded")) == [b"1", b"2", b"3 without id", b"1 still"]
    assert fates(bench.letters("crowded")) == [(b"3", "too-many-addresses")]
