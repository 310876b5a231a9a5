"""What is sent for a record: the same as came, stamped, to the same partition on every attempt."""

from dataclasses import replace

import pytest
from confluent_kafka import KafkaError, Message

from ringfence_client.headers import Reason
from ringfence_service.bridge.consumer import SourcePartition
from ringfence_service.bridge.forward import ForwardContext, Shipment, forward
from ringfence_service.bridge.topics import TopicMapping
from ringfence_service.kafka.model import UNREADABLE
from ringfence_state.model import PartitionId, Rejection

SOURCE = PartitionId("orders", 5)
CROSSING = TopicMapping("orders", "eu.orders", 3, 1000)
RULES = ForwardContext(
    cluster_id="cluster",
    stamping=True,
    keep_partition=True,
    compressing=False,
    dead_letter="g.dead-letters",
)
NOW_MS = 1_700_000_000_000


def record(
    offset: int,
    *headers: tuple[str, bytes | None],
    key: bytes | None = b"k",
    value: bytes | None = b"v",
    timestamp_ms: int = NOW_MS,
) -> Message:
    return Message(
        topic="orders",
        partition=5,
        offset=offset,
        key=key,
        value=value,
        headers=list(headers),
        timestamp=(1, timestamp_ms),
    )


def ignore(
    _source: PartitionId, _offset: int, _error: KafkaError | None, _message: Message
) -> None:
    """Nobody asks."""


def shipped(
    *messages: Message, rules: ForwardContext = RULES, crossing: TopicMapping = CROSSING
) -> Shipment:
    return forward(SourcePartition(SOURCE, crossing, 0, 0), messages, rules, ignore)


def test_everything_stays_as_it_came_but_for_the_stamp() -> None:
    headers: list[tuple[str, bytes | None]] = [("b", b"\xff"), ("a", None), ("b", b"")]
    messages = (record(1, *headers, value=None), record(2, ("_DUPL_ID", b"1"), key=None, value=b""))
    first, second = shipped(*messages).records
    stamp = ("_DUPL_ID", b"cluster/orders/5/1")
    topic, value, key, partition, _, _, timestamp_ms, sent = first
    assert (topic, value, key, partition) == ("eu.orders", None, b"k", 5)
    assert (timestamp_ms, sent) == (NOW_MS, [*headers, stamp])
    assert second[1:4] == (b"", None, 5)
    assert second[-1] == [("_DUPL_ID", b"1")]


def test_what_was_stamped_is_counted() -> None:
    assert shipped(record(1), record(2, ("_DUPL_ID", b"1")), record(3)).stamped == 2


def test_without_duplicate_detection_nothing_is_stamped() -> None:
    shipment = shipped(record(1), rules=replace(RULES, stamping=False))
    assert shipment.stamped == 0
    assert shipment.records[0][-1] == []


def test_an_unknown_timestamp_becomes_now() -> None:
    assert shipped(record(1, timestamp_ms=-1)).records[0][6] == 0


def test_by_key_a_record_goes_where_java_s_clients_would_put_it() -> None:
    rules = replace(RULES, keep_partition=False)
    crossing = CROSSING._replace(partitions=1000)
    keys = (b"21", b"foobar", b"a-little-bit-long-string", b"")
    # From Kafka's own tests of its partitioner: (murmur2 & 0x7fffffff) % 1000.
    murmur2 = {b"21": -973932308, b"foobar": -790332482, b"a-little-bit-long-string": -985981536}
    found = shipped(
        *(record(n, key=key) for n, key in enumerate(keys)), rules=rules, crossing=crossing
    )
    wanted = [(murmur2[key] & 0x7FFFFFFF) % 1000 for key in keys[:3]]
    assert [sent[3] for sent in found.records[:3]] == wanted
    assert 0 <= found.records[3][3] < 1000


def test_without_a_key_a_record_goes_by_its_partition() -> None:
    rules = replace(RULES, keep_partition=False)
    records = shipped(record(1, key=None), record(2, key=None), rules=rules).records
    assert [sent[3] for sent in records] == [5 % 3, 5 % 3]


def told(shipment: Shipment, row: int) -> dict[str, bytes | None]:
    return dict(shipment.records[row][-1])


def test_a_record_that_surely_does_not_fit_is_a_dead_letter_in_its_place() -> None:
    shipment = shipped(record(1), record(2, ("a", b"1"), value=b"x" * 1000), record(3))
    assert [sent[0] for sent in shipment.records] == ["eu.orders", "g.dead-letters", "eu.orders"]
    assert shipment.dead_letters == [Reason.TOO_LARGE]
    letter = told(shipment, 1)
    assert letter["a"] == b"1"
    assert letter["ringfence.reason"] == b"too-large"
    assert letter["ringfence.topic"] == b"orders"
    assert letter["ringfence.partition"] == b"5"
    assert letter["ringfence.offset"] == b"2"
    assert letter["ringfence.timestamp"] == b"%d" % NOW_MS
    assert "_DUPL_ID" not in letter
    assert shipment.records[1][1:4] == (b"x" * 1000, b"k", 0)


def test_with_compression_whether_it_fits_is_the_broker_s_word() -> None:
    rules = replace(RULES, compressing=True)
    assert shipped(record(1, value=b"x" * 1000), rules=rules).dead_letters == []


def test_a_record_that_the_broker_refused_is_a_dead_letter() -> None:
    why = Rejection(Reason.NO_OUTPUT, "the broker refused it: INVALID_RECORD")
    rules = replace(RULES, refused={(SOURCE, 2): why, (PartitionId("orders", 4), 1): why})
    shipment = shipped(record(1), record(2), rules=rules)
    assert shipment.dead_letters == [Reason.NO_OUTPUT]
    assert told(shipment, 1)["ringfence.cause"] == why.cause.encode()


def test_a_record_with_unreadable_headers_is_a_dead_letter_without_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        "ringfence_service.bridge.forward.read_headers", lambda _messages: [None, UNREADABLE]
    )
    shipment = shipped(record(1), record(2))
    assert shipment.dead_letters == [Reason.UNREADABLE_HEADERS]
    assert shipment.stamped == 1
    names = [name for name, _ in shipment.records[1][-1]]
    assert names[0] == "ringfence.reason"


def test_every_record_names_its_place_when_it_is_not_delivered() -> None:
    failed: list[tuple[PartitionId, int]] = []

    def note(
        source: PartitionId, offset: int, _error: KafkaError | None, _message: Message
    ) -> None:
        failed.append((source, offset))

    messages = [record(1), record(4)]
    shipment = forward(SourcePartition(SOURCE, CROSSING, 0, 0), messages, RULES, note)
    for (*_, report, _, _, _), message in zip(shipment.records, messages, strict=True):
        report(KafkaError(KafkaError.MSG_SIZE_TOO_LARGE), message)
    assert failed == [(SOURCE, 1), (SOURCE, 4)]
