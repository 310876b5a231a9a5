"""A group coordinator that was away is found again by a call that was begun meanwhile."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition

from ringfence_service.config.load import load
from ringfence_service.kafka.clients import KafkaClients
from tests.broker.service import configuration
from tests.broker.topics import create_topic
from tools.broker.embedded import EmbeddedBroker
from tools.broker.node import Machine

pytestmark = pytest.mark.broker

AWAY_S = 2.0
"""Longer than the client asks again by itself."""
SMALL = Machine(heap_mb=512, short_lived=True)


def test_offsets_reach_a_coordinator_that_was_not_there_when_they_were_sent(
    tmp_path: Path,
) -> None:
    file, route = tmp_path / "ringfence.toml", '[[routes]]\ninputs = ["in"]'
    more = "transaction_timeout_ms = 60000"
    # No group has a coordinator before there are two brokers to hold its offsets.
    two = {"offsets.topic.replication.factor": "2"}
    first = EmbeddedBroker(tmp_path / "first", properties=two, machine=SMALL)
    second = EmbeddedBroker(tmp_path / "second", leader=first, machine=SMALL)
    with first, ThreadPoolExecutor() as others:
        create_topic(first.client_properties, "in", 1)
        client = first.client_properties
        file.write_text(configuration(client, "away", tmp_path, service=more, rest=route))
        ours = KafkaClients(load(file, {}))
        producer = ours.producer(1_000_000, lambda _: None)
        producer.init_transactions(30)
        reader = ours.restorer()
        producer.begin_transaction()
        producer.produce("in", b"x")
        assert producer.flush(30) == 0
        who = reader.consumer_group_metadata()
        place = TopicPartition("in", 0, 1)
        sent = others.submit(producer.send_offsets_to_transaction, [place], who, 60)
        with pytest.raises(TimeoutError):
            sent.result(AWAY_S)
        with second:
            sent.result(60)
            producer.commit_transaction(30)
            assert reader.committed([place], 30)[0].offset == 1
            reader.close()
