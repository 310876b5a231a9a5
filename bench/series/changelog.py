"""Changelog series: bytes written to remember a message, compared with the message itself."""

from collections.abc import Iterable
from typing import cast

from confluent_kafka import Message

from bench.arms import RINGFENCE, running
from bench.finding import Finding, Row
from bench.series.sweeps import PLAIN
from bench.session import Session
from ringfence_client.headers import Headers
from ringfence_service.kafka.topics import changelog as changelog_of


def changelog(session: Session) -> Finding:
    """Read the committed records that one run wrote, and compare their sizes."""
    workload, venue = session.sized(PLAIN), session.venue
    with venue.reading(RINGFENCE, workload) as stage:
        with running(RINGFENCE, stage) as one:
            for _ in venue.follow(stage, workload, one.check):
                pass
        log = changelog_of(stage.group, stage.input)
        accepted, own_bytes = total(venue.read(stage.output, workload.partitions))
        written, log_bytes = total(venue.read(log, workload.partitions))
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
    """Return the number of records, and the bytes of their keys, values and headers."""
    count = size = 0
    for record in records:
        count += 1
        size += len(record.key() or b"") + len(record.value() or b"")
        headers = cast("Headers", record.headers() or [])
        size += sum(len(name) + len(value or b"") for name, value in headers)
    return count, size
