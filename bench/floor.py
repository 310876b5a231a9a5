"""Floor: a pass-through with the same clients and transactions, and no deduplication.

It consumes, produces every record with its headers, key, partition and time, and commits; it
decides and remembers nothing. The cost of a deduplicator is the difference to its rate.
The service's own code sets up the clients and the garbage collector.
"""

import sys
from pathlib import Path

from confluent_kafka import Consumer, KafkaException, TopicPartition

from ringfence_service.config.load import load
from ringfence_service.kafka.clients import KafkaClients
from ringfence_service.supervisor.watchdog import calm_garbage_collector


def pass_through(config_path: Path) -> None:
    """Copy the input of the only route to its output until the process is killed."""
    config = load(config_path, {})
    route, service = config.routes[0], config.service
    clients = KafkaClients(config)
    producer = clients.producer(1_000_000, print)
    producer.init_transactions(30)
    consumer = clients.consumer(lambda: None)
    consumer.subscribe(list(route.inputs), on_assign=from_the_start)
    calm_garbage_collector()
    while True:
        messages = consumer.consume(service.batch_records_max, service.batch_wait_ms / 1000)
        if not messages:
            continue
        producer.begin_transaction()
        ends = {}
        for message in messages:
            if message.error() is not None:
                raise KafkaException(message.error())
            partition, offset = message.partition() or 0, message.offset() or 0
            producer.produce(
                route.output,
                message.value(),
                key=message.key(),
                partition=partition,
                timestamp=message.timestamp()[1],
                headers=message.headers(),
            )
            ends[partition] = offset + 1
        offsets = [TopicPartition(route.inputs[0], number, end) for number, end in ends.items()]
        producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), 30)
        producer.commit_transaction(30)


def from_the_start(consumer: Consumer, granted: list[TopicPartition]) -> None:
    """Read granted partitions from their first record."""
    for partition in granted:
        partition.offset = 0
    consumer.incremental_assign(granted)


if __name__ == "__main__":
    pass_through(Path(sys.argv[1]))
