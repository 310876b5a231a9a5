"""Metrics, read as Prometheus reads them."""

import math
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from ringfence_service.queries.status import StatusBoard
from ringfence_service.telemetry.gauges import AddressFill, StateSample
from ringfence_service.telemetry.metrics import NAMED_MAX, Metrics
from tests.api.fake_service import RESTORING_PARTITION, RUNNING, STARTING, Clock
from tests.support.statuses import STARTED_AT


def make_metrics(addresses_max: int = 10) -> tuple[Metrics, StatusBoard]:
    board = StatusBoard(STARTING, Clock())
    return Metrics(board, {"version": "0.1.0"}, addresses_max=addresses_max), board


def samples(metrics: Metrics) -> dict[str, float]:
    """All samples by name and labels, the labels in the order of their names."""
    return {
        " ".join(
            [sample.name, *(f"{key}={sample.labels[key]}" for key in sorted(sample.labels))]
        ): sample.value
        for family in text_string_to_metric_families(metrics.exposition().decode())
        for sample in family.samples
    }


def test_events_of_a_batch_are_counted_with_its_numbers() -> None:
    metrics, _ = make_metrics()
    metrics.consumed("orders", 10, 2048)
    metrics.forwarded("orders", "a", 7)
    metrics.duplicates("orders", "a", 2)
    metrics.dead_letters("orders", "duplicate", 3)
    metrics.committed(0.02)
    metrics.not_committed("aborted")
    metrics.fenced()
    metrics.rebalance("assigned")
    metrics.client_error("_TRANSPORT")
    metrics.schema_lookup("found")
    metrics.fast_path("python", "native")
    found = samples(metrics)
    assert found["ringfence_records_consumed_total route=orders"] == 10
    assert found["ringfence_bytes_consumed_total"] == 2048
    assert found["ringfence_records_forwarded_total address=a route=orders"] == 7
    assert found["ringfence_duplicates_total address=a route=orders"] == 2
    assert found["ringfence_dead_letters_total reason=duplicate route=orders"] == 3
    assert found["ringfence_transactions_total result=committed"] == 1
    assert found["ringfence_transactions_total result=aborted"] == 1
    assert found["ringfence_fenced_total"] == 1
    assert found["ringfence_rebalances_total kind=assigned"] == 1
    assert found["ringfence_client_errors_total code=_TRANSPORT"] == 1
    assert found["ringfence_schema_lookups_total result=found"] == 1
    assert found["ringfence_build_info version=0.1.0"] == 1
    assert found["ringfence_fast_path_info path=python wanted=native"] == 1


def test_what_a_bridge_delivers_and_stamps_is_counted_by_its_topic() -> None:
    metrics, _ = make_metrics()
    metrics.bridged("orders", 7, 3)
    metrics.bridged("orders", 1, 0)
    found = samples(metrics)
    assert found["ringfence_records_bridged_total topic=orders"] == 8
    assert found["ringfence_records_stamped_total topic=orders"] == 3


def test_durations_are_histograms_in_seconds() -> None:
    metrics, _ = make_metrics()
    metrics.stage("commit", 0.5)
    metrics.committed(2.0)
    metrics.latency(3.0, 1.0)
    metrics.http_request("/livez", "GET", 200, 0.001)
    found = samples(metrics)
    assert found["ringfence_batch_duration_seconds_sum stage=commit"] == 0.5
    assert found["ringfence_transaction_duration_seconds_sum"] == 2.0
    assert found["ringfence_end_to_end_latency_seconds_sum record=oldest"] == 3.0
    assert found["ringfence_http_request_duration_seconds_count method=GET route=/livez"] == 1


def test_addresses_beyond_the_limit_share_one_label() -> None:
    metrics, _ = make_metrics(addresses_max=2)
    for address in ("a", "b", "c", "d", "a"):
        metrics.forwarded("orders", metrics.address_label(address), 1)
    metrics.duplicates("orders", metrics.address_label("c"), 1)
    found = samples(metrics)
    assert found["ringfence_records_forwarded_total address=a route=orders"] == 2
    assert found["ringfence_records_forwarded_total address=_other route=orders"] == 2
    assert found["ringfence_duplicates_total address=_other route=orders"] == 1
    assert "ringfence_records_forwarded_total address=c route=orders" not in found


def test_addresses_that_are_named_have_a_label_whatever_came_before() -> None:
    metrics, _ = make_metrics(addresses_max=1)
    metrics.name_addresses(["orders"])
    for junk in ("junk", "more junk"):
        metrics.address_label(junk)
    assert metrics.address_label("orders") == "orders"
    metrics.name_addresses(["orders", *map(str, range(2 * NAMED_MAX))])
    assert [metrics.address_label(name) for name in ("98", "99")] == ["98", "_other"]


def test_an_address_named_like_the_rest_is_distinguished_from_it() -> None:
    metrics, _ = make_metrics()
    names = ("_other", "__other", "other", "_others")
    assert [metrics.address_label(name) for name in names] == [
        "__other",
        "___other",
        "other",
        "_others",
    ]
    metrics.sampled(StateSample(fills={"_other": AddressFill(2, 1, None)}, others_used=5))
    found = samples(metrics)
    assert found["ringfence_ring_used_ids address=__other"] == 1
    assert found["ringfence_ring_used_ids address=_other"] == 5


def test_gauges_are_those_of_the_board_at_the_scrape() -> None:
    metrics, board = make_metrics()
    assert "ringfence_last_commit_timestamp_seconds" not in samples(metrics)
    board.publish(RUNNING._replace(partitions=(*RUNNING.partitions, RESTORING_PARTITION)))
    found = samples(metrics)
    assert found["ringfence_assigned_partitions"] == 2
    assert found["ringfence_restore_remaining_records"] == 41
    assert found["ringfence_last_commit_timestamp_seconds"] == STARTED_AT.timestamp()
    assert found["ringfence_consumer_lag_records partition=3 topic=orders"] == 5
    assert "ringfence_consumer_lag_records partition=4 topic=orders" not in found


def test_a_loop_that_is_silent_shows_since_when() -> None:
    clock = Clock()
    board = StatusBoard(STARTING, clock)
    metrics = Metrics(board, {"version": "0"}, addresses_max=1)
    clock.now_s += 130
    assert samples(metrics)["ringfence_heartbeat_age_seconds"] == 130
    board.beat()
    assert samples(metrics)["ringfence_heartbeat_age_seconds"] == 0


def test_a_partition_that_left_has_no_lag() -> None:
    metrics, board = make_metrics()
    board.publish(RUNNING)
    board.publish(RUNNING._replace(partitions=()))
    assert "ringfence_consumer_lag_records partition=3 topic=orders" not in samples(metrics)


def test_two_registries_live_side_by_side() -> None:
    first, _ = make_metrics()
    second, _ = make_metrics()
    first.fenced()
    assert samples(second)["ringfence_fenced_total"] == 0


def test_a_disk_that_does_not_answer_does_not_end_the_scrape(tmp_path: Path) -> None:
    metrics, _ = make_metrics()
    metrics.disk(tmp_path / "gone")
    assert math.isnan(samples(metrics)["ringfence_state_disk_free_bytes"])


def test_a_worker_that_never_restarted_is_reported_with_zero_restarts() -> None:
    metrics, _ = make_metrics()
    metrics.has_worker(1, "inputs")
    assert samples(metrics)["ringfence_worker_restarts_total hop=inputs worker=1"] == 0
