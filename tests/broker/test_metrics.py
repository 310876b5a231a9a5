"""The metrics of an instance that works: all that the page names, with the numbers of the model."""

from collections import defaultdict
from collections.abc import Mapping
from typing import Final

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.broker.conftest import NewWorld
from tests.broker.service import Service
from tests.broker.test_workers import wait_shared
from tests.broker.workload import CAPACITY, PARTITIONS
from tests.broker.world import Manner
from tests.support.waiting import eventually
from tests.unit.service.telemetry.test_metrics_page import PAGE, documented
from tools.broker.cluster import Broker

pytestmark = pytest.mark.broker

COMMITS: Final = "ringfence_transactions_total"


def names(service: Service) -> set[str]:
    """The exposed metrics, without the suffixes of histograms."""
    families = text_string_to_metric_families(service.get("/metrics")[1])
    return {f"{each.name}_total" if each.type == "counter" else each.name for each in families}


def sums(service: Service) -> dict[str, float]:
    """Every sample of one page, all labels together; and how many transactions came through."""
    found: dict[str, float] = defaultdict(float)
    for family in text_string_to_metric_families(service.get("/metrics")[1]):
        for sample in family.samples:
            found[sample.name] += sample.value
            if sample.name == COMMITS and sample.labels["result"] == "committed":
                found["commits"] += sample.value
    return found


def compared(service: Service) -> dict[str, float]:
    """How many duplicates were compared with their originals, by what was found."""
    found: dict[str, float] = defaultdict(float)
    for family in text_string_to_metric_families(service.get("/metrics")[1]):
        for sample in family.samples:
            if sample.name == "ringfence_duplicates_compared_total":
                found[sample.labels["result"]] += sample.value
    return found


def is_level(told: Mapping[str, float], held: int) -> bool:
    """Whether each worker has reported all that it did: workers report periodically."""
    latencies = told["ringfence_end_to_end_latency_seconds_count"]
    is_even = latencies == 2 * told["commits"] and told["ringfence_consumer_lag_seconds"] == 0
    return is_even and told["ringfence_ring_used_ids"] == held


def test_every_documented_metric_is_exposed_and_the_numbers_are_those_of_the_model(
    broker: Broker, new_world: NewWorld
) -> None:
    world = new_world(broker.client_properties, manner=Manner(workers=2))
    service = world.started()
    wait_shared(service)
    world.send()
    world.wait_decided()
    fates = world.judged()
    held = sum(map(len, fates.rings.values()))
    eventually(lambda: is_level(sums(service), held), service)
    of_service, _, _ = PAGE.read_text("utf-8").partition("## Spark jobs")
    assert names(service) == {row.name for row in documented(of_service)}

    told = sums(service)
    duplicates = sum(map(len, fates.letters.values()))
    assert told["ringfence_records_consumed_total"] == world.sent
    assert told["ringfence_duplicates_total"] == duplicates
    assert told["ringfence_dead_letters_total"] == duplicates
    assert told["ringfence_duplicate_distance_seconds_count"] == duplicates
    assert told["ringfence_records_forwarded_total"] == world.sent - duplicates
    assert told["ringfence_ring_capacity_ids"] == CAPACITY * len(fates.rings)
    assert told["ringfence_ring_horizon_seconds"] > 0
    assert told["ringfence_assigned_partitions"] == PARTITIONS
    assert told["commits"] > 0
    assert told["ringfence_rebalances_total"] >= 2, "each worker has heard of its share"
    assert told["ringfence_state_bytes"] > told["ringfence_rocksdb_memtable_bytes"] / 100 > 0
    assert told["ringfence_state_disk_free_bytes"] > 0
    assert told["ringfence_waiting"] == 0
    # Most of its values are different, whatever their ids are.
    eventually(lambda: compared(service)["different"] > 0, service)
    assert "not-compared" not in compared(service)
    service.stop()
