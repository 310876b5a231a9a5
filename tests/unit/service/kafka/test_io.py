"""Records are read by their bytes, of a client that counts records."""

from typing import cast

from confluent_kafka import Consumer, Message, TopicPartition

from ringfence_service.kafka.io import BoundedReads, memory_bytes
from tests.fakes.consumer import FakeConsumer
from tests.fakes.log import FakeCluster
from tests.fakes.partition import Record

MB = 1_000_000


def consumer_of(*sizes_bytes: int, is_key: bool = False) -> Consumer:
    """A consumer of a topic whose records have values, or keys, of these sizes."""
    cluster = FakeCluster()
    cluster.create_topic("t")
    for size in sizes_bytes:
        content = bytes(size)
        cluster.write("t", 0, Record(content, None) if is_key else Record(None, content))
    consumer = cast("Consumer", FakeConsumer(cluster, "g"))
    consumer.assign([TopicPartition("t", 0, 0)])
    return consumer


def read(reads: BoundedReads, consumer: Consumer) -> list[list[Message]]:
    found = []
    while messages := reads.consume(consumer, 0):
        found.append(messages)
    return found


def test_large_records_are_read_a_few_at_a_time_wherever_their_bytes_are() -> None:
    for is_key in (False, True):
        first, *others = read(BoundedReads(5_000, 8 * MB), consumer_of(*[MB] * 200, is_key=is_key))
        assert len(first) == 64, "nothing predicts the size of the first"
        assert others
        assert all(sum(map(memory_bytes, each)) <= 8 * MB for each in others)


def test_small_records_are_soon_read_as_many_at_a_time_as_are_allowed() -> None:
    sizes = [len(each) for each in read(BoundedReads(500), consumer_of(*[10] * 2_000))]
    assert sizes[:5] == [64, 128, 256, 500, 500]
    assert sum(sizes) == 2_000


def test_a_record_larger_than_the_limit_is_read_alone() -> None:
    sizes = [len(each) for each in read(BoundedReads(500, 10), consumer_of(*[100] * 70))]
    assert sizes == [64, *[1] * 6]


def test_a_caller_may_ask_for_fewer() -> None:
    assert len(BoundedReads(500).consume(consumer_of(*[10] * 100), 0, 7)) == 7
