"""Batches that are small in the log and large when unpacked, within the client's limit and beyond.

Beyond it the partition waits, others go on, and an operator skips the batch. The limit is lowered
for that.
"""

import json
import subprocess

import pytest
from confluent_kafka import Producer

from bench.machine import memory
from ringfence_client.headers import DUPLICATE_ID, DeadLetter
from tests.broker.desk import Desk
from tests.broker.reading import messages
from tests.broker.service import Service, ringfence
from tests.support.waiting import eventually

pytestmark = pytest.mark.broker

LIMIT = '[kafka.consumer]\n"receive.message.max.bytes" = 1000000'
RECORDS = 15
LARGE = b"a" * 100_000
CHART_BYTES = 1024**3
"""Of supervisor and worker: the limit that the chart sets."""


def send(desk: Desk, partition: int, *ids: str, value: bytes = b"") -> None:
    """All of them in one batch."""
    sizes = {"batch.size": 200_000_000, "message.max.bytes": 200_000_000, "linger.ms": 2_000}
    producer = Producer({**desk.client, **sizes, "compression.type": "zstd"})
    for name in ids:
        headers: list[tuple[str, str | bytes | None]] = [(DUPLICATE_ID, name.encode())]
        producer.produce(desk.input, value or name.encode(), partition=partition, headers=headers)
    assert producer.flush(20) == 0


@pytest.mark.row(39)
def test_a_batch_above_the_limit_waits_alone_and_is_skipped(desk: Desk) -> None:
    desk.create(partitions=2)
    send(desk, 0, "before-1", "before-2")
    send(desk, 0, *(f"large-{n}" for n in range(RECORDS)), value=LARGE)
    send(desk, 0, "behind-1", "behind-2")
    service = desk.service(more=LIMIT)
    service.wait_note("offset 2 ")
    send(desk, 1, *(f"other-{n}" for n in range(100)))
    eventually(lambda: len(decided(desk)) == 102, service)
    assert service.get("/readyz")[0] == 200
    skip(service, desk, 2, dry_run=True)
    skip(service, desk, 2)
    eventually(lambda: decided(desk)[-2:] == [b"behind-1", b"behind-2"], service)
    service.stop()
    (letter,) = messages(desk.client, desk.letters)
    headers = dict(letter.headers() or [])
    assert letter.value() is None
    assert headers[DeadLetter.REASON] == b"unreadable-batch"
    assert b"offsets 2 to 16 " in (headers[DeadLetter.CAUSE] or b"")


def test_a_batch_of_135_megabytes_is_decided_within_the_memory_of_the_chart(desk: Desk) -> None:
    desk.create()
    send(desk, 0, *(f"{n}" for n in range(150)), value=b"a" * 900_000)
    service = desk.service(more='[kafka.producer]\n"compression.type" = "zstd"')
    peaks = [0]

    def is_done() -> bool:
        peaks.append(memory(service.process.pid).peak)
        return desk.committed() == desk.end(desk.input) == 150

    eventually(is_done, service)
    service.stop()
    assert max(peaks) < CHART_BYTES
    assert desk.end(desk.letters) == 0


def skip(service: Service, desk: Desk, offset: int, *, dry_run: bool = False) -> None:
    """By the command, which is answered once the end of the batch is found."""
    words = ["partition", "skip", desk.input, "0", "--offset", str(offset), "--json", "--url"]
    words += [service.url, "--dry-run" if dry_run else "--yes"]
    ran: list[subprocess.CompletedProcess[str]] = []

    def is_done() -> bool:
        ran.append(ringfence(*words))
        return ran[-1].returncode == 0

    eventually(is_done, service)
    found = json.loads(ran[-1].stdout)
    assert (found["first_offset"], found["last_offset"]) == (2, 1 + RECORDS)


def decided(desk: Desk) -> list[bytes | None]:
    """What is in the output, of the second partition first."""
    found = sorted(
        messages(desk.client, desk.output),
        key=lambda each: (-(each.partition() or 0), each.offset()),
    )
    return [each.value() for each in found]
