"""Each record that asks has one reply, and the reply says what became of it, through kills."""

import json
import time
from collections import Counter

import pytest

from ringfence_client.headers import REPLY_TO
from tests.broker.conftest import NewWorld
from tests.broker.topics import create_topic
from tests.broker.victim import Step
from tests.broker.workload import PARTITIONS, records
from tests.broker.world import Manner
from tools.broker.cluster import Broker

pytestmark = pytest.mark.broker


@pytest.mark.parametrize(
    ("step", "count"),
    [(Step.AFTER_SEND_OFFSETS, 4), (Step.INSIDE_COMMIT, 3), (Step.AFTER_STORE, 3)],
)
def test_a_kill_leaves_every_record_with_one_reply(
    broker: Broker, new_world: NewWorld, step: Step, count: int
) -> None:
    topic = f"replies-{time.time_ns()}"
    asking = (REPLY_TO, topic.encode())
    work = [
        (partition, record._replace(headers=(*record.headers, asking)))
        for partition, record in records(1500, 1, is_scattered=False)
    ]
    manner = Manner(route=f'reply_topics = ["{topic}"]')
    world = new_world(broker.client_properties, work=work, manner=manner)
    create_topic(broker.client_properties, topic, PARTITIONS)
    world.send()
    service = world.service()
    service.die(step, count)
    service.start()
    world.conclude(service)
    replies = [each.record for part in world.read(topic).values() for each in part]
    payloads = [json.loads(record.value or b"") for record in replies]
    inputs = world.decided_in_order()
    wanted = Counter(f"{world.input}-{each.partition}@{each.offset}" for each in inputs)
    assert Counter(payload["record"] for payload in payloads) == wanted
    outcomes = Counter(payload["outcome"] for payload in payloads)
    fates = world.judged()
    assert outcomes["accepted"] == sum(map(len, fates.outputs.values()))
    assert outcomes.total() - outcomes["accepted"] == sum(map(len, fates.letters.values()))
