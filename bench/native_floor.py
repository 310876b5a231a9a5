"""Native floor: a pass-through whose records never become Python objects.

It does what `bench.floor` does, with the compiled part of the service: the limit of what a
deduplicator on the same clients and transactions can reach.
"""

import sys
import time
from pathlib import Path
from typing import cast

from confluent_kafka import KafkaException, TopicPartition

from bench.floor import from_the_start
from ringfence_service.config.load import load
from ringfence_service.kafka.clients import KafkaClients, Makers
from ringfence_service.kafka.io import send
from ringfence_service.native.clients import NativeConsumer, NativeProducer
from ringfence_service.native.extension import loaded
from ringfence_service.native.records import Records
from ringfence_service.supervisor.watchdog import calm_garbage_collector

_AT_ONCE = 1_024
"""Records of a piece, as in the service."""


def pass_through(config_path: Path) -> None:
    """Copy the input of the only route to its output until the process is killed."""
    assert loaded().module is not None, loaded().why
    config = load(config_path, {})
    route, service = config.routes[0], config.service
    clients = KafkaClients(config, makers=Makers(NativeConsumer, NativeProducer))
    producer = clients.producer(1_000_000, print)
    producer.init_transactions(30)
    consumer = clients.consumer(lambda: None)
    consumer.subscribe(list(route.inputs), on_assign=from_the_start)
    calm_garbage_collector()
    while True:
        until_s, room = time.monotonic() + service.batch_wait_ms / 1000, service.batch_records_max
        ends: dict[int, int] = {}
        while room:
            wait_s = max(0.0, until_s - time.monotonic())
            records = cast("Records", consumer.consume(min(room, _AT_ONCE), wait_s))
            for error, _ in records.errors:
                raise KafkaException(error)
            if not len(records):
                break
            if not ends:
                producer.begin_transaction()
            for (_, partition), some in records.by_source():
                assert some.forward(0, {None: partition}, None, route.output, None) == len(some)
                send(producer, [(some,)])
                ends[partition] = some[-1].offset() + 1
            room -= len(records)
        if ends:
            offsets = [TopicPartition(route.inputs[0], number, end) for number, end in ends.items()]
            producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), 30)
            producer.commit_transaction(30)


if __name__ == "__main__":
    pass_through(Path(sys.argv[1]))
