"""Records that are small in the log and large in memory: a worker stays within what docs state."""

from collections.abc import Callable

import pytest
from confluent_kafka import Producer

from bench.machine import memory
from ringfence.headers import DUPLICATE_ID
from tests.broker.desk import Desk
from tests.support.waiting import eventually

pytestmark = pytest.mark.broker

LARGE = b"." * 900_000
RECORDS = 1_500
QUEUED_MAX = 500
"""The client's queue holds a gigabyte, and a busy broker is slow."""
BOUND_BYTES = 1024**3
"""Of supervisor and worker: the limit that the chart sets."""

Headers = list[tuple[str, str | bytes | None]]


def in_a_header(number: int) -> tuple[bytes, Headers]:
    return b"", [(DUPLICATE_ID, b"%d" % number), ("large", LARGE)]


def in_a_value(number: int) -> tuple[bytes, Headers]:
    return LARGE, [(DUPLICATE_ID, b"%d" % number)]


def in_many_headers(number: int) -> tuple[bytes, Headers]:
    return b"", [(DUPLICATE_ID, b"%d" % number), *[("", b"")] * 2_000]


@pytest.mark.parametrize("made", [in_a_header, in_a_value, in_many_headers])
def test_records_that_compression_hides_are_decided_within_the_memory_that_is_stated(
    desk: Desk, made: Callable[[int], tuple[bytes, Headers]]
) -> None:
    desk.create()
    producer = Producer({**desk.client, "compression.type": "zstd", "linger.ms": 50})
    for number in range(RECORDS):
        value, headers = made(number)
        producer.produce(desk.input, value=value, headers=headers)
        producer.poll(0 if number % 50 else 0.05)
        while len(producer) > QUEUED_MAX:
            producer.poll(0.05)
    eventually(lambda: producer.flush(5) == 0)
    service = desk.service(more='[kafka.producer]\n"compression.type" = "zstd"')
    peaks = [0]

    def is_done() -> bool:
        assert not service.ended, service.tail()
        peaks.append(memory(service.process.pid).peak)
        return desk.committed() == desk.end(desk.input)

    eventually(is_done, service)
    assert max(peaks) < BOUND_BYTES
    service.stop()
    assert desk.end(desk.output) > RECORDS, "each of them, and the end of a transaction"
    assert desk.end(desk.letters) == 0
