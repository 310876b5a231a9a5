"""What the tests of redrives share: a loop with dead letters, and a job that is written."""

from collections.abc import Mapping

from ringfence_service.dedup.dead_letter import Mode, RedrivenRecord
from ringfence_service.kafka.topics import config_topic
from ringfence_service.metadata.redrive_job import DeadLetterRange, RedriveJob
from ringfence_service.processor.loop import Loop
from ringfence_service.queries.dead_letters import (
    DeadLetterFilter,
    DeadLetterPosition,
    DeadLetterView,
    RedriveRequest,
    letter_of,
    view_of,
)
from ringfence_service.queries.redrives import DecideDeadLetters, RedriveAnswer
from ringfence_state.model import PartitionId
from tests.fakes.log import FakeCluster
from tests.fakes.partition import Record
from tests.support.helpers import answered
from tests.support.living import GROUP, ORDERS, Living

NAME = "1-x"
DLQ = "orders.dlq"


def views(cluster: FakeCluster, topic: str = DLQ, partition: int = 0) -> list[DeadLetterView]:
    """The dead letters that are committed; a fake log keeps its markers between them."""
    found = []
    for entry in cluster.logs[topic].partitions[partition].archive:
        if entry.record is not None:
            record, place = entry.record, DeadLetterPosition(topic, partition, entry.offset)
            headers = record.headers or []
            found.append(view_of(place, record.timestamp_ms, record.key, record.value, headers))
    return found


def letters(
    cluster: FakeCluster, topic: str = DLQ, partition: int = 0
) -> tuple[RedrivenRecord, ...]:
    """The same on their way."""
    return tuple(letter for view in views(cluster, topic, partition) if (letter := letter_of(view)))


def job(mode: Mode = "through", **changes: object) -> RedriveJob:
    made = RedriveJob(
        NAME, RedriveRequest(mode, DeadLetterFilter()), (DeadLetterRange(DLQ, 0, 0, 10**6),), 1, 1
    )
    return made._replace(**changes)  # type: ignore[arg-type]  # by name


def write(living: Living, job: RedriveJob) -> None:
    """As the metadata topic holds it."""
    key, value = job.record
    living.cluster.write(config_topic(GROUP), 0, Record(key, value, None, 1))


def command(
    mode: Mode, sent: tuple[RedrivenRecord, ...], owner: PartitionId = ORDERS
) -> DecideDeadLetters:
    return DecideDeadLetters(NAME, mode, *owner, DLQ, 0, sent)


def redriven(loop: Loop, asked: DecideDeadLetters) -> RedriveAnswer:
    """What the loop says, once it has heard of the job."""
    loop.turn()
    return answered(RedriveAnswer, asked, loop)


def with_dead_letters(
    *ids: str, addresses: Mapping[str, Mapping[str, object]] | None = None
) -> tuple[Living, Loop]:
    """A loop that has refused each of these once, since they came twice."""
    living = Living(addresses=addresses)
    living.send(*ids, *ids)
    loop = living.running()
    for _ in range(3):
        loop.turn()
    assert living.values(DLQ) == list(ids)
    return living, loop
