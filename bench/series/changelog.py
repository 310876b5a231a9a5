"""Changelog: how many bytes it takes to remember a message, beside the message's own."""

from collections.abc import Iterable
from typing import cast

from confluent_kafka import Message

from bench.arms import RINGFENCE, running
from bench.finding import Finding, Row
from bench.series.sweeps import PLAIN
from bench.session import Session
from ringfence.headers import Headers
from service.kafka.topics import changelog as changelog_of


def changelog(session: Session) -> Finding:
    """Read what one run wrote, as a reader of committed records sees it."""
    workload, place = session.sized(PLAIN), session.place
    with place.reading(RINGFENCE, workload) as stage:
        with running(RINGFENCE, stage) as one:
            for _ in place.follow(stage, workload, one.check):
                pass
        log = changelog_of(stage.group, stage.input)
        accepted, own_bytes = total(place.read(stage.output, workload.partitions))
        written, log_bytes = total(place.read(log, workload.partitions))
    session.say(f"changelog: {log_bytes / accepted:.1f} bytes for an accepted message")
    row: Row = {
        "accepted messages": accepted,
        "their bytes each": own_bytes / accepted,
        "changelog records": written,
        "changelog bytes for a message": log_bytes / accepted,
        "share of the messages' bytes": log_bytes / own_bytes,
    }
    settings = {"bytes": workload.value_bytes, "id bytes": 36, "batch_records": 10_000}
    return Finding("Changelog: keys and values, before compaction", settings, [row])


def total(records: Iterable[Message]) -> tuple[int, int]:
    """How many records, and the bytes of their keys, values and headers."""
    count = size = 0
    for record in records:
        count += 1
        size += len(record.key() or b"") + len(record.value() or b"")
        headers = cast("Headers", record.headers() or [])
        size += sum(len(name) + len(value or b"") for name, value in headers)
    return count, size
