"""Reconcile finds what was planted, names its place, and finds nothing in what is right."""

import json
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from pyspark.sql import SparkSession
from typer.testing import Result

from ringfence_pipeline.errors import CONTRADICTION, PipelineError
from ringfence_pipeline.gaps import OffsetGap, record_gaps
from ringfence_pipeline.reconcile.results import from_json
from ringfence_pipeline.reconcile.run import ClusterTopics, LakeTables, reconcile
from ringfence_pipeline.storage import StorageFolder
from ringfence_pipeline.tables import TableLayout, TableSource, update_tables
from ringfence_service.config.load import load
from ringfence_service.config.model import Scope
from tests.broker.carried_world import world_of
from tests.broker.conftest import create_topic
from tests.broker.workload import CAPACITY, PARTITIONS
from tests.broker.world import Manner
from tests.spark.judging import named, rows
from tests.spark.ledger import Ledger, Row
from tests.support.waiting import LIMIT_S, eventually
from tools.broker.cluster import Broker
from tools.broker.config import free_port

pytestmark = [pytest.mark.spark, pytest.mark.broker]

EACH = 20


def write(broker: Broker, topic: str, lanes: list[list[Row]]) -> None:
    # The times of the ledger are years old: by time, all of it could be deleted at once.
    create_topic(broker.client_properties, topic, len(lanes), {"retention.ms": "-1"})
    producer = Producer({**broker.client_properties, "enable.idempotence": True})
    for number, lane in enumerate(lanes):
        for time_ms, key, value, headers in lane:
            sent: list[tuple[str, str | bytes | None]] = [*headers]
            producer.produce(topic, value, key, partition=number, timestamp=time_ms, headers=sent)
            producer.poll(0)
    assert producer.flush(LIMIT_S) == 0


def commit(broker: Broker, group: str, ends: dict[tuple[str, int], int]) -> None:
    consumer = Consumer({**broker.client_properties, "group.id": group})
    places = [TopicPartition(*place, offset) for place, offset in ends.items()]

    def is_taken() -> bool:
        # A coordinator that has just begun refuses the first ones.
        consumer.commit(offsets=places, asynchronous=False)
        return True

    eventually(is_taken)
    consumer.close()


def config_file(folder: Path, broker: Broker, group: str, ledger: Ledger) -> Path:
    file = folder / "ringfence.toml"
    file.write_text(
        f"""
[kafka]
"bootstrap.servers" = "{broker.bootstrap_servers}"
[service]
group_id = "{group}"
[[routes]]
inputs = ["{ledger.topic}"]
scope = "partition"
[addresses."#"]
id_cache_size = {ledger.ring}
"""
    )
    return file


def test_twenty_faults_of_each_kind_are_found_and_named(
    command: Callable[..., Result], broker: Broker, tmp_path: Path
) -> None:
    topic, group = f"spoilt-{uuid4().hex[:8]}", f"g-{uuid4().hex[:8]}"
    ledger = Ledger(topic, records=6_000, ring=200, partitions=2, seed=2)
    expected = ledger.spoil(EACH)
    # What was deleted and what was skipped are both without a fate.
    assert {kind: len(places) for kind, places in expected.items()} == {
        "no-fate": 2 * EACH,
        "doubled": EACH,
        "out-of-order": EACH,
        "let-through": EACH,
    }
    write(broker, topic, [lane.inputs for lane in ledger.lanes])
    write(broker, ledger.output, [rows(lane.outputs) for lane in ledger.lanes])
    write(broker, ledger.dead_letter, [rows(lane.letters) for lane in ledger.lanes])
    commit(broker, group, {(topic, n): len(lane.inputs) for n, lane in enumerate(ledger.lanes)})
    config, page = config_file(tmp_path, broker, group, ledger), tmp_path / "report.html"
    done = command("reconcile", "--config", str(config), "--json", "--html", str(page))
    assert done.exit_code == 1, done.stderr
    findings = from_json(done.stdout)
    assert named(findings) == expected
    assert findings.faults_total["no-fate"] == 2 * EACH
    assert json.loads(done.stdout)["faultless"] is False
    written = page.read_text("utf-8")
    assert all(place in written for places in expected.values() for place in places)
    assert "://" not in written


@pytest.mark.long
def test_outputs_that_retention_has_deleted_are_read_from_the_tables_and_a_fault_is_new_once(
    spark: SparkSession, command: Callable[..., Result], broker: Broker, tmp_path: Path
) -> None:
    topic, group = f"kept-{uuid4().hex[:8]}", f"g-{uuid4().hex[:8]}"
    ledger = Ledger(topic, records=800, ring=100, partitions=2, seed=2)
    expected = ledger.spoil(4)
    write(broker, topic, [lane.inputs for lane in ledger.lanes])
    write(broker, ledger.output, [rows(lane.outputs) for lane in ledger.lanes])
    write(broker, ledger.dead_letter, [rows(lane.letters) for lane in ledger.lanes])
    commit(broker, group, {(topic, n): len(lane.inputs) for n, lane in enumerate(ledger.lanes)})
    tables, history = tmp_path / "tables", tmp_path / "history"
    topics = {"messages": (ledger.output,), "dead_letters": (ledger.dead_letter,)}
    source = TableSource(broker.bootstrap_servers, {}, topics)
    update_tables(spark, source, tables, TableLayout(partition_by=("day",)))
    admin = AdminClient(dict(broker.client_properties))
    gone = [TopicPartition(each, 1, 50) for each in (ledger.output, ledger.dead_letter)]
    for deleted in admin.delete_records(gone).values():
        deleted.result(LIMIT_S)
    config = config_file(tmp_path, broker, group, ledger)
    words = ("reconcile", "--config", str(config), "--findings", str(history), "--json")
    found = from_json(command(*words, "--tables", str(tables)).stdout)
    assert named(found) == expected
    total = sum(found.faults_total.values())
    assert found.faults_new == total
    # Nothing came since, and what was found before is no fault of this run.
    since = command(*words, "--tables", str(tables), "--since-last")
    assert since.exit_code == 0, since.stderr
    assert from_json(since.stdout).fates == {}
    violations = spark.read.format("delta").load(str(history / "violations"))
    assert violations.count() == total
    severe = {row["kind"] for row in violations.where("severity = 'critical'").collect()}
    assert severe == {"no-fate", "doubled", "let-through"}
    runs = spark.read.format("delta").load(str(history / "runs")).orderBy("run_at").collect()
    assert [(run["group"], run["faultless"], run["faults_new"]) for run in runs] == [
        (group, False, total),
        (group, True, 0),
    ]
    assert [run["records"] for run in runs] == [sum(found.fates.values()), 0] == [800, 0]
    without = command("reconcile", "--config", str(config), "--tables", str(tmp_path / "no"))
    assert without.exit_code == CONTRADICTION
    assert "has no table" in without.stderr
    # What the table lacks too is a gap, as what retention has deleted is without a table.
    spark.sql(f"DELETE FROM delta.`{tables}/messages` WHERE `partition` = 1 AND offset < 70")  # noqa: S608 - our folder
    gap = OffsetGap("messages", ledger.output, 1, 0, 70)
    record_gaps(spark, StorageFolder.of(spark, tables / "gaps"), [gap])
    admin.delete_records([TopicPartition(ledger.output, 1, 70)])
    lake = LakeTables(str(tables))
    cluster = ClusterTopics(broker.bootstrap_servers, {})
    again = reconcile(spark, load(config, {}), cluster, lake=lake)
    assert named(again)["no-fate"] <= expected["no-fate"]


def test_a_group_that_has_committed_nothing_and_inputs_that_are_gone_prove_nothing(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    group = f"g-{uuid4().hex[:8]}"
    ledger = Ledger(f"gone-{uuid4().hex[:8]}", records=40, ring=5, partitions=1, seed=1)
    write(broker, ledger.topic, [lane.inputs for lane in ledger.lanes])
    for topic in (ledger.output, ledger.dead_letter):
        write(broker, topic, [[]])
    config = load(config_file(tmp_path, broker, group, ledger), {})
    with pytest.raises(PipelineError, match="has committed nothing") as idle:
        reconcile(spark, config, ClusterTopics(broker.bootstrap_servers, {}))
    commit(broker, group, {(ledger.topic, 0): 40})
    gone = TopicPartition(ledger.topic, 0, 40)
    # Its own name: futures never resolve once their client is collected.
    admin = AdminClient(dict(broker.client_properties))
    admin.delete_records([gone])[gone].result(LIMIT_S)
    with pytest.raises(PipelineError, match="nothing to prove") as told:
        reconcile(spark, config, ClusterTopics(broker.bootstrap_servers, {}))
    assert idle.value.exit_code == told.value.exit_code == CONTRADICTION


@pytest.mark.parametrize(
    "scope", [pytest.param("partition", marks=pytest.mark.long), "address", "id"]
)
def test_a_service_that_is_killed_commits_no_fault_and_none_is_seen_while_it_runs(
    spark: SparkSession, broker: Broker, tmp_path: Path, scope: Scope
) -> None:
    client, group = broker.client_properties, f"g-{uuid4().hex[:8]}"
    size = CAPACITY * (PARTITIONS if scope == "id" else 1)
    with world_of(Manner(scope=scope))(
        client,
        tmp_path,
        group,
        manner=Manner(scope=scope),
        settings=f"id_cache_size = {size}",  # so that each partition has as many
    ) as world:
        world.create()
        world.send(2_000)
        service = world.service(free_port(0))
        service.start()
        eventually(lambda: world.decided >= 500, service)
        service.kill()
        config = load(tmp_path / "0-state.toml", {})
        service.start()
        world.send()
        if scope != "partition":  # of both hops, and the first is that of the other scope
            amid = reconcile(spark, config, ClusterTopics(broker.bootstrap_servers, {}))
            assert named(amid) == {}, amid.faults
        world.wait_decided()
        service.stop()
        findings = reconcile(spark, config, ClusterTopics(broker.bootstrap_servers, {}))
        assert named(findings) == {}
        outputs, letters = (
            sum(map(len, world.read(topic).values())) for topic in (world.output, world.letters)
        )
        assert findings.fates == {"accepted": outputs, "duplicate": letters}
        assert outputs + letters == world.sent
        world.verify_fates()
