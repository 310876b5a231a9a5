"""The clients of the compiled path: what they forward, serve, report and send."""

from collections.abc import Iterator, Sequence
from typing import Any, cast

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from ringfence_service.kafka.io import send
from ringfence_service.native import clients
from ringfence_service.native.clients import (
    LayoutError,
    NativeConsumer,
    NativeProducer,
    StrayRecordError,
)
from ringfence_service.native.extension import Loaded, loaded
from ringfence_service.native.path import chosen
from ringfence_service.native.records import Records
from ringfence_state.model import PartitionId
from ringfence_state.strategies.ring_memory import PYTHON
from tests.fakes.native import piece_of
from tests.support.deciding import record
from tests.support.native import needs_native

pytestmark = needs_native

ORDERS, PAYMENTS = TopicPartition("orders", 0, 5), TopicPartition("payments", 0, 5)
LIMIT_S = 30


def piece(*places: TopicPartition) -> Any:
    messages = [record(5, ("_DUPL_ID", b"a")) for each in places]
    sources = [PartitionId(each.topic, 0) for each in places]
    return piece_of(messages, [[("_DUPL_ID", b"a")]] * len(messages), sources)


class ScriptedReader:
    """A reader that returns pieces in turn, and notes what it is asked."""

    def __init__(self, asked: list[object], *pieces: Any) -> None:
        self._asked, self._pieces = asked, list(pieces)

    def partition(self, topic: str, _number: int) -> str:
        return topic

    def forward(self, queue: str) -> None:
        self._asked.append(queue)

    def consume(self, _max: int, timeout_ms: int) -> Any:
        self._asked.append(timeout_ms)
        return self._pieces.pop(0) if self._pieces else piece()

    def close(self) -> None:
        pass


class ScriptedQueue(Consumer):
    """The consumer's own queue, scripted: what each call returns."""

    script: list[list[Message]]
    asked: list[object]

    def incremental_assign(self, _partitions: list[TopicPartition]) -> None:
        self.asked.append("assign")

    def incremental_unassign(self, _partitions: list[TopicPartition]) -> None:
        self.asked.append("unassign")

    def consume(self, _max: int = 1, _timeout: float = -1) -> list[Message]:
        self.asked.append("serve")
        return self.script.pop(0) if self.script else []


class ScriptedConsumer(NativeConsumer, ScriptedQueue):  # type: ignore[misc]
    """A consumer of the compiled path between both."""

    def __init__(self, served: Sequence[list[Message]], *pieces: Any) -> None:
        super().__init__({"group.id": "g", "log_level": 0})
        self.asked, self.script = [], list(served)
        vars(self)["_reader"] = ScriptedReader(self.asked, *pieces)

    def read(self) -> Records:
        """Read with a wait of a second; nothing else is asked before."""
        self.asked.clear()
        return self.consume(10, 1.0)


@pytest.fixture
def failure() -> Message:
    return Message(topic="orders", error=KafkaError(KafkaError._TRANSPORT))


def test_a_partition_is_forwarded_again_from_its_stop_to_its_first_record_alone() -> None:
    consumer = ScriptedConsumer([], piece(), piece(ORDERS), piece(), piece(PAYMENTS))
    consumer.incremental_assign([ORDERS, PAYMENTS])
    assert consumer.asked == ["orders", "payments", "assign"]
    consumer.read()
    assert consumer.asked == ["serve", 1000]  # idle, and forwarded once for all
    consumer.incremental_unassign([PAYMENTS])
    consumer.incremental_assign([PAYMENTS])
    found = [(consumer.read(), list(consumer.asked))[1] for _ in range(4)]
    waiting = ["payments", "serve", 5]
    assert found == [[*waiting, "serve"], waiting, [*waiting, "serve"], ["serve", 1000]]


def test_a_partition_without_records_shortens_waits_for_a_second_and_is_forwarded_until_it_has_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now_s = [100.0]
    monkeypatch.setattr("ringfence_service.native.clients.time.monotonic", lambda: now_s[0])
    consumer = ScriptedConsumer([])
    for _ in range(2):  # each rewind
        consumer.incremental_assign([ORDERS])
        consumer.incremental_unassign([ORDERS])
    consumer.incremental_assign([ORDERS])
    asked = []
    for _ in range(8):
        consumer.read()
        asked += consumer.asked
        now_s[0] += 0.3
    assert [each for each in asked if each != "serve"] == ["orders", 5] * 4 + ["orders", 1000] * 4


def test_errors_reported_while_records_were_awaited_come_with_these_records(
    failure: Message,
) -> None:
    consumer = ScriptedConsumer([[], [failure]], piece(ORDERS))
    records = consumer.read()
    assert [error.code() for error, _ in records.errors] == [KafkaError._TRANSPORT]
    assert [each.offset() for each in records] == [5]


def test_errors_reported_before_do_not_wait_for_records(failure: Message) -> None:
    consumer = ScriptedConsumer([[failure]])
    records = consumer.read()
    assert consumer.asked == ["serve", 0]
    assert [source for _, source in records.errors] == [PartitionId("orders", 0)]


@pytest.mark.parametrize("served", [[[record(5)]], [[], [record(5)]]])
def test_a_record_on_the_queue_of_the_consumer_is_an_error(served: list[list[Message]]) -> None:
    consumer = ScriptedConsumer(served, piece(ORDERS))
    with pytest.raises(StrayRecordError, match="orders-1@5"):
        consumer.read()


def test_names_of_clients_are_compared_whole_however_long() -> None:
    name = "g" * 700
    NativeConsumer({"group.id": name, "log_level": 0}).close()
    producer = NativeProducer({"transactional.id": name, "log_level": 0})
    with pytest.raises(LayoutError, match="transactional"):
        clients.address_of(producer, 0, "transactional.id", name[:511])


def test_handles_of_another_layout_run_the_path_in_python_and_tell_why(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Other:
        @staticmethod
        def client_of(_handle: object, _name: str) -> tuple[int, int, str]:
            return 1, 1, "another text"

    monkeypatch.setattr(clients, "loaded", lambda: Loaded(cast("Any", Other)))
    found = chosen("native")
    assert (found.name, found.makers, found.rings) == ("python", None, PYTHON)
    assert found.fault is not None
    assert "another text" in found.fault


def test_addresses_of_no_client_are_refused() -> None:
    found = piece(ORDERS)
    for client in (0, -1, 1 << 70):
        with pytest.raises((ValueError, OverflowError)):
            found.send(client, 0, 1)
        with pytest.raises((ValueError, OverflowError)):
            cast("Any", loaded().module).Reader(client if client != -1 else 0)


@pytest.fixture
def servers() -> Iterator[str]:
    """Brokers that librdkafka plays, inside this process."""
    host = Producer({"test.mock.num.brokers": 1, "log_level": 0})
    brokers = host.list_topics(timeout=LIMIT_S).brokers.values()
    yield ",".join(f"{each.host}:{each.port}" for each in brokers)
    del host


def test_records_pass_from_client_to_client_as_they_are_and_again_after_a_rewind(
    servers: str,
) -> None:
    properties = {"bootstrap.servers": servers, "log_level": 0}
    given = [written(number) for number in range(300)]
    source = Producer(properties)
    send(source, given)
    assert source.flush(LIMIT_S) == 0

    consumer = NativeConsumer({**properties, "group.id": "g", "enable.auto.commit": False})
    producer = NativeProducer({**properties, "transactional.id": "t"})
    producer.init_transactions(LIMIT_S)
    inputs = [TopicPartition(f"in{number}", 0, 0) for number in range(2)]
    for _ in range(3):
        consumer.incremental_assign(inputs)
        found = read_all(consumer, len(given))
        told = [fields for records in found for fields in contents(records)]
        assert sorted(told, key=repr) == sorted(map(as_read, given), key=repr)
        consumer.incremental_unassign(inputs)

    producer.begin_transaction()
    send(producer, [part for records in found for part in forwarded(records)])
    producer.commit_transaction(LIMIT_S)
    consumer.incremental_assign([TopicPartition("out", 0, 0)])
    ascii_only = [each for each in given if "é" not in dict(each[7])]
    got = [
        fields for records in read_all(consumer, len(ascii_only)) for fields in contents(records)
    ]
    assert sorted(got, key=repr) == sorted(map(as_forwarded, ascii_only), key=repr)
    consumer.close()


Written = tuple[str, bytes, bytes | None, int, None, None, int, list[tuple[str, bytes | None]]]


def written(number: int) -> Written:
    """The arguments with which a record is produced; every tenth has a name beyond ASCII."""
    headers = [("_DUPL_ID", b"id%d" % number), ("x", b"\0" * (number % 9)), ("null", None)]
    if number % 10 == 7:
        headers.append(("é", b""))
    value, key = (b"v%d" % number) * (number % 7), (None, b"", b"k%d" % number)[number % 3]
    return f"in{number % 2}", value, key, 0, None, None, 1_700_000_000_000 + number, headers


def as_read(given: Written) -> tuple[object, ...]:
    return (*given[:3], given[6], given[7])


def as_forwarded(given: Written) -> tuple[object, ...]:
    offset = (given[6] - 1_700_000_000_000) // 2
    return ("out", *given[1:3], given[6], [*given[7], ("ringfence.origin", b"in-0@%d" % offset)])


def forwarded(records: Records) -> Iterator[tuple[Records]]:
    """The parts of records that compiled code forwards."""
    row = 0
    while row < len(records):
        end = records.forward(row, {None: 0}, None, "out", b"in-0", ((), 0), 12)
        yield (records.part(row, end),)
        row = end + 1


def read_all(consumer: NativeConsumer, count: int) -> list[Records]:
    found: list[Records] = []
    while sum(map(len, found)) < count:
        records = consumer.consume(64, 1)
        assert not records.errors
        found.append(records)
    return found


def contents(records: Records) -> Iterator[tuple[object, ...]]:
    for source, part in records.by_source():
        for each, headers, time_ms in zip(part, part.headers, part.columns()[1], strict=True):
            yield source.topic, each.value(), each.key(), time_ms, headers
