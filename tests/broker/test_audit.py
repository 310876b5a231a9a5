"""The audit on a real broker: who changed what outlives every process, and is bounded."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ringfence_service.clock import SystemClock
from ringfence_service.config.load import load
from ringfence_service.config.tokens import entry_of
from ringfence_service.kafka.clients import KafkaClients
from ringfence_service.metadata.audit import AuditQuery, AuditRecord, new_id
from ringfence_service.metadata.audit_log import SURPLUS_MIN, AuditTopic
from ringfence_service.metadata.watcher import MetadataWatcher
from ringfence_service.queries.errors import Unavailable
from tests.broker.conftest import NewWorld
from tests.broker.service import Answer, configuration
from tests.broker.topics import create_topic
from tests.support.waiting import eventually
from tools.broker.cluster import Broker

pytestmark = pytest.mark.broker

ADMIN = "a" * 40
RECORDS_MAX = 100
BEGUN_MS = time.time_ns() // 1_000_000


def record(number: int = 0) -> AuditRecord:
    """Each a millisecond after the one before: records of one have no order."""
    return AuditRecord(
        id=new_id(BEGUN_MS + number),
        time_ms=BEGUN_MS + number,
        actor="ada",
        roles=("admin",),
        request_id=f"r-{number}",
        source="10.0.0.1",
        method="POST",
        path="/v1/addresses/orders:clear",
        query="",
        reason="",
    )


@contextmanager
def followed(broker: Broker, folder: Path, topic: str) -> Iterator[AuditTopic]:
    path, route = folder / "ringfence.toml", '[[routes]]\ninputs = ["a"]'
    path.write_text(configuration(broker.client_properties, "audit", folder, rest=route))
    clients = KafkaClients(load(path, {}))
    clock = SystemClock()
    audit = AuditTopic(
        clients.audit_producer, topic, clock, RECORDS_MAX, lambda: metadata_watcher.has_caught_up
    )
    metadata_watcher = MetadataWatcher(lambda: clients, topic, clock, audit.take)
    metadata_watcher.start()
    try:
        yield audit
    finally:
        metadata_watcher.stop()


def held(audit: AuditTopic) -> int:
    page = audit.page(AuditQuery(), 1_000, None)
    return len(page.records) if page.complete else -1


def newest(audit: AuditTopic) -> str:
    records = audit.page(AuditQuery(), 1, None).records
    return records[0].request_id if records else ""


def test_the_oldest_are_taken_away_when_there_are_too_many(
    broker: Broker, tmp_path: Path, new_topic: Callable[..., str]
) -> None:
    topic = new_topic("config", cleanup_policy="compact")
    with followed(broker, tmp_path, topic) as one, followed(broker, tmp_path, topic) as other:
        eventually(lambda: held(one) == 0)
        for number in range(RECORDS_MAX + SURPLUS_MIN):
            one.write(record(number))
        last = f"r-{RECORDS_MAX + SURPLUS_MIN - 1}"
        # Before the last has arrived, as many may be there as are kept.
        eventually(lambda: newest(one) == newest(other) == last)
        eventually(lambda: held(one) == held(other) == RECORDS_MAX)
        assert other.page(AuditQuery(), 1_000, None).records[-1].request_id == f"r-{SURPLUS_MIN}"


def test_what_cannot_be_written_is_unavailable_and_the_topic_is_waited_for(
    broker: Broker, tmp_path: Path, topic_name: Callable[[str], str]
) -> None:
    topic = topic_name("config")
    with followed(broker, tmp_path, topic) as audit:
        with pytest.raises(Unavailable, match="cannot be written"):
            audit.write(record())
        create_topic(broker.client_properties, topic, 1, {"cleanup.policy": "compact"})
        eventually(lambda: held(audit) == 0)
        audit.write(record())
        assert held(audit) == 1


def test_changes_over_rest_are_recorded_for_good(
    broker: Broker, tmp_path: Path, new_world: NewWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tokens").write_text(entry_of("ada", "admin", ADMIN).line)
    monkeypatch.setenv("RINGFENCE_API__AUTH", "tokens")
    monkeypatch.setenv("RINGFENCE_API__TOKENS_FILE", str(tmp_path / "tokens"))
    service = new_world(broker.client_properties, count=100).started()
    ada = {"Authorization": f"Bearer {ADMIN}"}

    def is_complete() -> bool:
        return bool(service.told("/v1/audit", headers=ada)["complete"])

    def answer(path: str, body: object = None, method: str = "POST") -> Answer:
        return service.ask(path, body, method, ada)

    eventually(lambda: service.is_ready and is_complete(), service)
    assert service.get("/v1/partitions")[0] == 401
    session = answer("/v1/publishers/P/session?reason=first", {"user": "u"}, "PUT")
    assert session.document["epoch"] == 1
    assert answer("/v1/addresses/orders:clear?reason=second").status == 200
    stranger = "/v1/publishers/P/session?user=another&reason=third"
    assert answer(stranger, method="DELETE").status == 409
    service.kill()
    service.start()
    eventually(lambda: service.is_ready and is_complete(), service)
    records = service.told("/v1/audit", headers=ada)["records"]
    told = [(each["actor"], each["reason"], each["status"]) for each in records]
    assert told == [("ada", "third", 409), ("ada", "second", 200), ("ada", "first", 200)]
    line = next(x for x in service.log.read_text().splitlines() if '"event": "audit"' in x)
    assert json.loads(line)["actor"] == "ada"
