"""Totals and metrics: each committed record is counted once."""

from datetime import UTC, datetime

from ringfence_service.processor.counters import RunningTotals
from tests.support.deciding import NOW_MS, World, named, record


def test_totals_add_up_what_was_committed() -> None:
    world, totals = World(), RunningTotals()
    totals.add(world.commit(named(0, b"a"), named(1, b"a"), record(2)), NOW_MS)
    totals.add(world.commit(named(3, b"a")), NOW_MS)
    assert (totals.counts.records_consumed, totals.counts.records_accepted) == (4, 2)
    assert (totals.counts.duplicates, totals.counts.dead_letters) == (2, 2)
    parts = totals.counts.records_accepted + totals.counts.duplicates + totals.counts.refused
    assert parts == totals.counts.records_consumed
    assert totals.counts.transactions_committed == 2
    assert totals.counts.last_commit_at == datetime.fromtimestamp(NOW_MS / 1000, UTC)
