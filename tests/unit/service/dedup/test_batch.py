"""What a consume brings becomes slices."""

from confluent_kafka import KafkaError, Message

from ringfence_service.dedup.batch import batch_of, read
from ringfence_service.kafka.io import errors_of, read_headers
from ringfence_state.model import PartitionId
from tests.support.deciding import NOW_MS, SOURCE, World, record


def test_headers_keep_order_repeats_nulls_and_bytes() -> None:
    headers = [("b", b"\xff"), ("a", None), ("b", b"")]
    bare = Message(topic="orders", partition=1, offset=2)
    assert read_headers([record(0, *headers), record(1), bare]) == [headers, [], None]


def test_slices_hold_the_new_records_of_running_partitions_in_order() -> None:
    partition = World().partition
    partition.next_offset = 5
    stranger = Message(topic="other", partition=0, offset=9)
    messages = [record(4), record(5), stranger, record(8), record(9)]
    batch = batch_of(read(messages), {SOURCE: partition}, {}, NOW_MS)
    assert [[m.offset() for m in part.messages] for part in batch.slices] == [[5, 8, 9]]


def test_a_partition_without_new_records_has_no_slice() -> None:
    partition = World().partition
    partition.next_offset = 5
    assert batch_of(read([record(4)]), {SOURCE: partition}, {}, NOW_MS).slices == ()


def test_errors_are_kept_apart_with_the_partition_they_name() -> None:
    lost = KafkaError(KafkaError._AUTO_OFFSET_RESET)
    everywhere = KafkaError(KafkaError._ALL_BROKERS_DOWN)
    messages = [Message(topic="orders", partition=1, error=lost), Message(error=everywhere)]
    assert errors_of(messages) == [(lost, PartitionId("orders", 1)), (everywhere, None)]


def test_a_message_larger_than_the_limit_is_read_alone() -> None:
    messages = [record(number, value=b"v" * 9) for number in range(2)]
    assert [m.offset() for m in read(messages, bytes_max=1).messages] == [0]


def test_no_further_message_is_read_once_the_limit_is_reached() -> None:
    messages = [record(number, ("h", b"value")) for number in range(2)]
    one_bytes = read(messages[:1]).memory_bytes
    assert len(read(messages, bytes_max=one_bytes).messages) == 1
    assert len(read(messages, bytes_max=one_bytes + 1).messages) == 2


def test_behind_a_message_with_large_headers_the_next_is_read_alone() -> None:
    messages = [record(number, ("h", b"v" * 1_100_000)) for number in range(4)]
    assert len(read(messages, bytes_max=2_000_000).messages) == 2
