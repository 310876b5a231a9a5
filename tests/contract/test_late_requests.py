"""Requests that outlive their connection, on the fake: a broker gets them when nobody waits.

On a real broker it takes a proxy to hold one back; what it does with it is read off the protocol:
an epoch is checked, and within an epoch only the records of a partition are counted.
"""

from collections.abc import Callable

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import TopicPartition as Place

from ringfence_state.model import PartitionId
from tests.fakes.group import GroupMetadata
from tests.fakes.log import Chance, FakeCluster
from tests.fakes.producer import FakeProducer


class Ghosts(Chance):
    """Keeps a copy of each request while `keeps` is set."""

    keeps = False

    def ghost(self) -> bool:
        return self.keeps


@pytest.fixture
def cluster() -> FakeCluster:
    cluster = FakeCluster(Ghosts())
    cluster.create_topic("out")
    return cluster


def ready(
    cluster: FakeCluster, on_error: Callable[[KafkaError], None] | None = None
) -> FakeProducer:
    producer = FakeProducer(cluster, "p", on_error=on_error)
    producer.init_transactions()
    return producer


def send(producer: FakeProducer, value: bytes) -> None:
    producer.begin_transaction()
    producer.produce("out", value, partition=0)
    producer.flush()


def lost(cluster: FakeCluster, name: str, act: Callable[[], None]) -> Callable[[], None]:
    """The copy of one request of those that `act` makes."""
    chance = cluster.chance
    assert isinstance(chance, Ghosts)
    chance.keeps = True
    act()
    chance.keeps = False
    (request,) = [request for kind, request in cluster.on_its_way if kind.startswith(name)]
    cluster.on_its_way.clear()
    return request


def values(cluster: FakeCluster) -> list[bytes | None]:
    return [record.value for record in cluster.records("out")]


def test_a_late_end_ends_a_later_transaction_of_the_same_epoch(cluster: FakeCluster) -> None:
    producer = ready(cluster)
    send(producer, b"a")
    abort = lost(cluster, "EndTxn", producer.abort_transaction)
    send(producer, b"b")
    abort()
    with pytest.raises(KafkaException) as raised:
        producer.commit_transaction()
    assert raised.value.args[0].code() == KafkaError.INVALID_TXN_STATE
    assert values(cluster) == []


def test_a_late_end_of_an_older_epoch_is_refused(cluster: FakeCluster) -> None:
    producer = ready(cluster)
    send(producer, b"a")
    abort = lost(cluster, "EndTxn", producer.abort_transaction)
    newer = ready(cluster)
    send(newer, b"b")
    with pytest.raises(KafkaException):
        abort()
    newer.commit_transaction()
    assert values(cluster) == [b"b"]


def test_a_late_record_is_refused_by_its_sequence_number(cluster: FakeCluster) -> None:
    producer = ready(cluster)
    produce = lost(cluster, "Produce", lambda: send(producer, b"a"))
    producer.commit_transaction()
    send(producer, b"b")
    with pytest.raises(KafkaException):
        produce()
    producer.commit_transaction()
    assert values(cluster) == [b"a", b"b"]


def test_late_offsets_join_an_open_transaction_and_open_none(cluster: FakeCluster) -> None:
    producer, nobody = ready(cluster), GroupMetadata("g")

    def send_offset(offset: int) -> None:
        producer.send_offsets_to_transaction([Place("in", 0, offset)], nobody)

    send(producer, b"a")
    offsets = lost(cluster, "TxnOffsetCommit", lambda: send_offset(1))
    producer.commit_transaction()
    with pytest.raises(KafkaException):
        offsets()
    send(producer, b"b")
    send_offset(2)
    offsets()
    producer.commit_transaction()
    assert cluster.group("g").committed[PartitionId("in", 0)].offset == 1


def test_a_late_partition_opens_a_transaction(cluster: FakeCluster) -> None:
    producer = ready(cluster)
    add = lost(cluster, "AddPartitionsToTxn", lambda: send(producer, b"a"))
    producer.commit_transaction()
    add()
    assert cluster.producing["p"].open is not None


def test_a_producer_hears_of_the_lost_connection_from_its_next_poll(cluster: FakeCluster) -> None:
    heard = list[KafkaError]()
    producer = ready(cluster, heard.append)
    send(producer, b"a")
    lost(cluster, "EndTxn", producer.commit_transaction)
    assert not heard
    producer.poll(0)
    producer.poll(0)
    assert [error.code() for error in heard] == [KafkaError._TRANSPORT]
