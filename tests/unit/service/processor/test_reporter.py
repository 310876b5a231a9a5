"""The watch: what it hears is on the board, and only what was committed counts."""

from datetime import UTC, datetime

import pytest

from ringfence_service.config.model import ServiceSettings
from ringfence_service.dedup.dead_letter import Mode, RedrivenRecord
from ringfence_service.processor.reporter import Reporter
from ringfence_service.queries.status import RouteCounts, ServiceStatus, StatusBoard
from ringfence_service.telemetry.metrics import Metrics
from tests.support.deciding import SOURCE, World, named, record
from tests.unit.main.test_check import Hands

START = datetime.fromtimestamp(0, UTC)


def watched() -> tuple[Reporter, StatusBoard, Hands]:
    clock = Hands()
    board = StatusBoard(
        ServiceStatus.starting("0", "g", START),
        clock.monotonic_s,
    )
    metrics = Metrics(board, {"version": "0"}, addresses_max=10)
    return Reporter(ServiceSettings(group_id="g"), clock, board, metrics), board, clock


def test_a_commit_is_counted_and_published() -> None:
    watch, board, _ = watched()
    watch.committed(World().decide(named(0, b"a"), named(1, b"a")), 0.5)
    watch.publish("running", ())
    status = board.read()
    assert (status.phase, status.group_id) == ("running", "g")
    counts = status.counts
    assert (counts.records_consumed, counts.records_accepted, counts.duplicates) == (2, 1, 1)
    assert counts.transactions_committed == 1


def test_a_wait_is_in_the_status_until_it_ends() -> None:
    watch, board, _ = watched()
    watch.waiting("for the broker")
    assert (board.read().phase, board.read().waiting_for) == ("waiting", "for the broker")
    watch.waiting("for its replicas")
    assert board.read().waiting_for == "for its replicas"
    assert not board.read().stands_still
    watch.waiting("for a topic", stands_still=True)
    assert board.read().stands_still
    watch.waiting("for the broker")
    assert not board.read().stands_still
    watch.waiting("for a topic", stands_still=True)
    watch.resumed()
    watch.publish("running", ())
    assert not board.read().stands_still
    assert board.read().waiting_for is None


@pytest.mark.parametrize("mode", ["through", "bypass"])
def test_a_redrive_has_no_records_that_pass_unchecked(mode: Mode) -> None:
    watch, board, _ = watched()
    letter = RedrivenRecord(0, *SOURCE, 9, 1, b"k", b"v", (), 0)
    (outcome,), plan = World().redrive(mode, letter)
    assert outcome == "accepted"
    watch.committed(plan, 0.5)
    watch.committed(World().decide(record(0)), 0.5)
    watch.publish("running", ())
    assert board.read().routes == (RouteCounts("orders", 1, no_id=1),)
    told = watch.metrics.exposition().decode()
    assert 'ringfence_unchecked_total{reason="no-id",route="orders"} 1.0' in told
