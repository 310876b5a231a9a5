"""Records that a topic is known to refuse: on a broker too they cost themselves alone."""

import re
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

import pytest
from confluent_kafka import Producer

from tests.broker.reading import drained
from tests.broker.service import Service, Stage
from tests.broker.topics import create_topic
from tests.support.waiting import eventually
from tools.broker.cluster import Broker

pytestmark = [pytest.mark.broker, pytest.mark.xdist_group("refusals")]

GROUP: Final = f"refusals-{time.time_ns():x}"
KEYLESS, COMPACTED = f"{GROUP}-keyless", f"{GROUP}-compacted"
AHEAD: Final = f"{GROUP}-ahead"
ALL, EVERY = 300, 20
HOUR_MS: Final = 3_600_000
ANY_TIME: Final = {"retention.ms": "-1", "message.timestamp.after.max.ms": str(2**63 - 1)}
ROUTES: Final = f"""
[[routes]]
inputs = ["{KEYLESS}"]
scope = "partition"
output = "{COMPACTED}"
[[routes]]
inputs = ["{AHEAD}"]
"""


class Decided(NamedTuple):
    client: Mapping[str, str]
    service: Service

    def letters(self, name: str) -> Counter[bytes | None]:
        """How many dead letters have which reason."""
        found = (dict(each.record.headers or ()) for each in drained(self.client, name, 1))
        return Counter(headers["ringfence.reason"] for headers in found)

    def outputs(self, name: str) -> int:
        return len(list(drained(self.client, name, 1)))

    def is_done(self) -> bool:
        decided = self.outputs(COMPACTED) + self.letters(f"{KEYLESS}.dlq").total()
        return decided == ALL and self.outputs(f"{AHEAD}.unique") == len(times_ms())


def times_ms() -> list[int]:
    """An hour is the default limit of Kafka 4; the other is in microseconds."""
    return [time.time_ns() // 1_000_000 + 2 * HOUR_MS, time.time_ns() // 1_000]


@pytest.fixture(scope="module")
def decided(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Decided]:
    client = dict(broker.client_properties)
    for name in (KEYLESS, f"{KEYLESS}.dlq", f"{AHEAD}.dlq"):
        create_topic(client, name)
    create_topic(client, COMPACTED, config={"cleanup.policy": "compact"})
    for name in (AHEAD, f"{AHEAD}.unique"):
        create_topic(client, name, config=ANY_TIME)
    producer = Producer(client)
    for number in range(ALL):
        key = None if number % EVERY == 0 else b"%d" % number
        producer.produce(KEYLESS, b"v", key, headers={"_DUPL_ID": b"%d" % number})
    for at_ms in times_ms():
        producer.produce(AHEAD, b"v", b"k", timestamp=at_ms, headers={"_DUPL_ID": b"%d" % at_ms})
    assert producer.flush(60) == 0
    with Stage(client, tmp_path_factory.mktemp("refusals"), GROUP) as stage:
        service = stage.serving("service", rest=ROUTES)
        service.start()
        found = Decided(client, service)
        eventually(found.is_done, service)
        yield found
        service.stop()


def test_one_in_twenty_without_a_key_for_a_compacted_output_aborts_no_transaction(
    decided: Decided,
) -> None:
    assert decided.outputs(COMPACTED) == ALL - ALL // EVERY
    assert decided.letters(f"{KEYLESS}.dlq") == {b"missing-key": ALL // EVERY}
    told = decided.service.get("/metrics")[1]
    found = dict(re.findall(r'ringfence_transactions_total\{result="(\w+)"\} (\S+)', told))
    assert found.keys() == {"committed"}  # a result has a series from its first one on


def test_a_timestamp_that_input_and_output_take_goes_through_both_hops(decided: Decided) -> None:
    assert decided.outputs(f"{AHEAD}.unique") == len(times_ms())
    assert decided.letters(f"{AHEAD}.dlq") == {}
    assert decided.letters(f"{GROUP}.dead-letters") == {}
