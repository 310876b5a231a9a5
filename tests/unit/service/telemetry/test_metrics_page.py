"""docs/metrics.md and the code name the same metrics."""

import re
from pathlib import Path
from typing import Final, NamedTuple

from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from ringfence_pipeline.progress import StreamMetrics
from ringfence_service.queries.status import StandbyStatus, StatusBoard
from ringfence_service.telemetry.gauges import AddressFill, StateSample
from ringfence_service.telemetry.metrics import Metrics
from tests.api.fake_service import RUNNING, Clock
from tests.support.statuses import changed

PAGE: Final = Path(__file__).parents[4] / "docs" / "metrics.md"
OF_HISTOGRAMS: Final = {"le"}


class Row(NamedTuple):
    name: str
    kind: str
    labels: frozenset[str]


def documented(text: str) -> set[Row]:
    """The rows of all tables."""
    found = set()
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("| `") and len(cells) == 4:
            labels = frozenset(cells[2].replace(" ", "").split(",")) - {""}
            found |= {Row(name, cells[1], labels) for name in re.findall(r"`([a-z_]+)`", cells[0])}
    return found


def told(tmp_path: Path) -> set[Row]:
    """What an instance tells to which everything has happened."""
    partitions = tuple(changed(each, lag_ms=1) for each in RUNNING.partitions)
    standbys = (StandbyStatus(topic="orders", partition=1, warm=True, lag_records=0),)
    status = RUNNING._replace(partitions=partitions, standbys=standbys)
    board = StatusBoard(status, Clock())
    labels = {"version": "1", "confluent_kafka": "2", "librdkafka": "2"}
    metrics = Metrics(board, labels, addresses_max=9)
    metrics.consumed("r", 1, 1)
    metrics.carried("r", 1)
    metrics.forwarded("r", "a", 1)
    metrics.duplicates("r", "a", 1)
    metrics.unchecked("r", "no-id", 1)
    metrics.stamped("r", 1)
    metrics.compared("r", "same")
    metrics.dead_letters("r", "duplicate", 1)
    metrics.bridged("t", 1, 1)
    metrics.replies("r", "sent", 1)
    metrics.redriven("through", "accepted", 1)
    metrics.stage("poll", 1)
    metrics.committed(1)
    metrics.latency(1, 1)
    metrics.rebalance("lost")
    metrics.client_error("_TRANSPORT")
    metrics.schema_lookup("found")
    metrics.http_request("/livez", "GET", 200, 1)
    metrics.http_auth_failure("token")
    metrics.http_connection_refused("slow")
    metrics.worker_restarted(0, "inputs")
    metrics.config_not_applied()
    metrics.fast_path("python", "native")
    metrics.certificate(tmp_path / "none.pem")
    metrics.watched_file("tokens", lambda: False)
    metrics.disk(tmp_path)
    metrics.sampled(StateSample(fills={"a": AddressFill(2, 1, 3)}, evicted={"a": 1}))
    exposition = metrics.exposition() + generate_latest(streams().registry)
    return {
        Row(
            f"{family.name}_total" if family.type == "counter" else family.name,
            family.type,
            frozenset().union(*(sample.labels for sample in family.samples)) - OF_HISTOGRAMS,
        )
        for family in text_string_to_metric_families(exposition.decode())
    }


def streams() -> StreamMetrics:
    """Of a Spark job whose table has had a batch."""
    metrics = StreamMetrics()
    for each in (metrics.lag, metrics.last_batch_s, metrics.last_trigger_s):
        each.labels("messages").set(1)
    metrics.rows.labels("messages").inc()
    metrics.gaps.labels("messages").inc()
    metrics.batch_s.labels("messages").observe(1)
    return metrics


def test_the_page_names_every_metric_with_its_kind_and_labels_and_no_other(tmp_path: Path) -> None:
    assert documented(PAGE.read_text("utf-8")) == told(tmp_path)


def test_no_metric_has_a_label_that_could_be_an_id(tmp_path: Path) -> None:
    assert not {"id", "key", "publisher", "offset"} & set().union(
        *(row.labels for row in told(tmp_path))
    )
