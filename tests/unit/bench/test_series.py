"""The arithmetic of the series."""

import pytest

from bench.filled import Fill
from bench.finding import Row
from bench.latency import percentile
from bench.machine import MIB
from bench.progress import Point, pace_from
from bench.results import Spread
from bench.series.asking import Spell, trios_of
from bench.series.held import with_bytes_per_id
from bench.series.registry import Sample, row_of
from bench.series.registry import Spell as RegistrySpell
from bench.series.stages import divided, per_message
from bench.series.sweeps import shared
from bench.workload import Workload


def _row(ids: int, memory_mib: float, disk_mib: float) -> Row:
    memory, disk = (Spread(size, size, size) for size in (memory_mib, disk_mib))
    return {"ids held": ids, "resident memory, MiB": memory, "disk, MiB": disk}


def test_an_id_costs_what_more_ids_cost_more() -> None:
    least, more = with_bytes_per_id([_row(1_000, 100.0, 1.0), _row(1_000 + MIB, 300.0, 51.0)])
    assert least["memory, bytes an id"] is None
    assert more["memory, bytes an id"] == 200.0
    assert more["disk, bytes an id"] == 50.0


def test_so_large_a_share_is_not_above_the_percentile() -> None:
    ages = [float(age) for age in range(1, 1001)]
    assert [percentile(ages, share) for share in (0.5, 0.99, 0.999, 1.0)] == [500, 990, 999, 1000]
    assert percentile([7.0], 0.0) == 7.0


def test_a_pace_may_begin_where_the_rings_are_full() -> None:
    points = [Point(0, 10), Point(10, 100), Point(11, 300), Point(12, 500)]
    assert pace_from(points, 90) == 200


def test_a_group_is_full_when_enough_was_accepted() -> None:
    fill = Fill(1_000, Workload(duplicate_share=0.5, addresses=10), stretch=7)
    assert fill.full_at * 0.5 >= 10_000
    assert fill.records == fill.full_at + 7


def test_cpu_time_is_reported_per_message_and_summed() -> None:
    before = {"main thread": 1.0}
    after = {"main thread": 3.0, "Kafka client": 1.0}
    costs = per_message(before, after, 1_000_000)
    assert costs == {"main thread": 2.0, "Kafka client": 1.0, "all threads": 3.0}


def test_a_cost_is_shared_out_as_the_samples_are() -> None:
    parts = divided(5.0, {"decide": 3.0, "produce": 1.0})
    assert parts["loop: decide"] == pytest.approx(3.75)
    assert sum(parts.values()) == pytest.approx(5.0)


def test_settings_that_change_from_step_to_step_are_no_common_ones() -> None:
    assert shared([{"a": 1, "b": 2}, {"a": 1, "b": 3}]) == {"a": 1}


def test_an_asked_spell_is_set_beside_the_two_around_it() -> None:
    spells = [Spell(4.0, rate, 5.0) for rate in (100.0, 90.0, 80.0, 60.0, 40.0, 30.0)]
    ratios = [trio.rate_ratio for trio in trios_of(spells)]
    assert ratios == [1.0, 1.0], "a machine that gets slower is no cost of being asked"
    assert next(trios_of(spells)).loop_ratio == 1.0


def observed(rate: int, *causes: str, undecided: int = 0) -> RegistrySpell:
    """Twelve seconds, of which the first three do not count."""
    seen = Sample(0.0, 0, 1_000, undecided, True, frozenset(causes), 0.0, MIB)  # noqa: FBT003 - a row
    return RegistrySpell(
        [
            seen._replace(at_s=float(at_s), decided=max(0, at_s - 3) * rate, loop_s=at_s / 2)
            for at_s in range(13)
        ]
    )


def test_a_registry_in_trouble_is_set_beside_the_healthy_spells_around_it() -> None:
    row = row_of(observed(100), observed(90, "is away", undecided=900), observed(80))
    assert row["second route / healthy"] == 1.0
    assert row["loop, µs a message"] == pytest.approx(1e6 / 180)
    assert (row["first route waits, %"], row["it waits for a registry that"]) == (100, "is away")
    assert row["caught up after, s"] == 0.0
    lasting = row_of(observed(100), observed(50), observed(100, undecided=900))
    assert (lasting["second route / healthy"], lasting["caught up after, s"]) == (0.5, None)
    assert lasting["loop / healthy"] == 2.0
