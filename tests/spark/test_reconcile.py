"""Reconcile finds what was planted, names its place, and finds nothing in what is right."""

import json
import subprocess
import sys
from math import ceil
from pathlib import Path
from uuid import uuid4

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from pyspark.sql import SparkSession

from pipeline.errors import CONTRADICTION, PipelineError
from pipeline.reconcile.findings import from_json
from pipeline.reconcile.run import Cluster, reconcile
from ringfence.headers import DeadLetter
from service.config import load
from tests.broker.carried_world import world_of
from tests.broker.world import Manner
from tests.spark.judging import judged, named, rows
from tests.spark.ledger import Entry, Ledger, Row
from tests.waiting import eventually
from tools.broker.cluster import Broker
from tools.broker.config import _free_port as free_port

pytestmark = pytest.mark.spark

COMMAND = 'from pipeline.command import app; app(prog_name="ringfence pipeline")'
EACH = 20


def test_what_is_right_has_no_fault_and_its_distances_are_those_of_the_model(
    spark: SparkSession,
) -> None:
    ledger = Ledger("in", records=3_000, ring=60, partitions=2, seed=1)
    findings = judged(spark, ledger)
    assert named(findings) == {}
    assert findings.is_faultless
    lanes = ledger.lanes
    accepted, letters = (
        sum(len(each) for each in kind)
        for kind in zip(*((lane.outputs, lane.letters) for lane in lanes), strict=True)
    )
    assert findings.fates == {"accepted": accepted, "duplicate": letters}
    (found,) = findings.addresses
    gaps = [gap for lane in lanes for gap in lane.gaps]
    needed = sorted(each for lane in lanes for each in lane.needed)
    assert (found.accepted, found.duplicates) == (accepted, letters)
    assert found.missed == sum(gap > ledger.ring for gap in gaps) > 0
    assert found.copies == len(needed)
    shares = [needed[ceil(share * len(needed)) - 1] for share in (0.99, 0.999, 1)]
    assert [found.needed_99, found.needed_999, found.needed_all] == shares
    assert sum(each.caught + each.missed for each in findings.distances) == len(needed)
    assert sum(each.missed for each in findings.distances) == found.missed
    assert sum(slot.accepted for slot in findings.slots) == accepted
    assert sum(slot.duplicates for slot in findings.slots) == letters


def test_what_is_changed_or_made_up_is_named(spark: SparkSession) -> None:
    ledger = Ledger("in", records=600, ring=60, partitions=1, seed=3)
    (lane,) = ledger.lanes
    last = len(lane.outputs)
    changed = lane.outputs[5]
    lane.outputs[5] = changed._replace(row=changed.row._replace(value=b"other"))
    # A dead letter of a copy whose record went out all the same, with its own time.
    times = [row.time_ms for row in lane.inputs]
    both = next(e for e in lane.letters if times.count(lane.inputs[e.input_offset].time_ms) == 1)
    lane.outputs.append(Entry(both.input_offset, lane.inputs[both.input_offset]))
    lane.letters.append(lane.letters[0])
    stray = lane.letters[1].row
    headers = [(k, b"999" if k == DeadLetter.OFFSET else v) for k, v in stray.headers]
    lane.letters.append(Entry(999, stray._replace(headers=headers)))
    wrong = lane.letters[2].row
    other = next(e for e in lane.outputs if e.row.key != wrong.key)
    original = f"in-0@{other.input_offset}".encode()
    headers = [(k, original if k == DeadLetter.ORIGINAL else v) for k, v in wrong.headers]
    lane.letters[2] = lane.letters[2]._replace(row=wrong._replace(headers=headers))
    letters = len(lane.letters)
    assert named(judged(spark, ledger)) == {
        "no-fate": {f"in-0@{changed.input_offset}"},
        "unknown-output": {"in.unique-0@5"},
        "two-fates": {f"in.unique-0@{last}", f"in.dlq-0@{letters - 2}"},
        "unknown-letter": {f"in.dlq-0@{letters - 1}"},
        "false-duplicate": {"in.dlq-0@2"},
    }


def test_a_duplicate_that_leaves_no_trace_is_none_where_duplicates_are_dropped(
    spark: SparkSession,
) -> None:
    ledger = Ledger("in", records=600, ring=60, partitions=1, seed=4)
    (lane,) = ledger.lanes
    duplicates = len(lane.letters)
    lane.letters.clear()
    skipped = ledger.victims(lane)[0]
    lane.outputs[:] = [each for each in lane.outputs if each.input_offset != skipped]
    findings = judged(spark, ledger, {"on_duplicate": "drop"})
    assert named(findings) == {"no-fate": {f"in-0@{skipped}"}}
    assert findings.fates["excused: duplicate without a trace"] == duplicates > 0


def test_what_came_after_the_cut_may_have_no_fate_yet(spark: SparkSession) -> None:
    ledger = Ledger("in", records=600, ring=60, partitions=2, seed=5)
    # A record without a time goes out with that of its decision, and is still the same record.
    ledger.lanes[0].inputs[0] = ledger.lanes[0].inputs[0]._replace(time_ms=0)
    for lane in ledger.lanes:
        lane.outputs[:] = [each for each in lane.outputs if each.input_offset < 220]
        lane.letters[:] = [each for each in lane.letters if each.input_offset < 220]
    findings = judged(spark, ledger, ends=80)
    assert named(findings) == {}
    assert findings.fates["excused: after the cut"] == 2 * 80
    assert sum(n for fate, n in findings.fates.items() if "excused" not in fate) == 2 * 220


def write(broker: Broker, topic: str, lanes: list[list[Row]]) -> None:
    admin = AdminClient(dict(broker.client_properties))
    # The times of the ledger are years old: by time, all of it could be deleted at once.
    new = NewTopic(topic, len(lanes), 1, config={"retention.ms": "-1"})
    admin.create_topics([new])[topic].result(30)
    producer = Producer({**broker.client_properties, "enable.idempotence": True})
    for number, lane in enumerate(lanes):
        for time_ms, key, value, headers in lane:
            sent: list[tuple[str, str | bytes | None]] = [*headers]
            producer.produce(topic, value, key, partition=number, timestamp=time_ms, headers=sent)
            producer.poll(0)
    assert producer.flush(60) == 0


def commit(broker: Broker, group: str, ends: dict[tuple[str, int], int]) -> None:
    consumer = Consumer({**broker.client_properties, "group.id": group})
    places = [TopicPartition(*place, offset) for place, offset in ends.items()]
    consumer.commit(offsets=places, asynchronous=False)
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


@pytest.mark.broker
def test_twenty_faults_of_each_kind_are_found_and_named(broker: Broker, tmp_path: Path) -> None:
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
    arguments = ["reconcile", "--config", str(config), "--json", "--html", str(page)]
    done = subprocess.run(
        [sys.executable, "-c", COMMAND, *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1, done.stderr
    findings = from_json(done.stdout)
    assert named(findings) == expected
    assert findings.faults_total["no-fate"] == 2 * EACH
    assert json.loads(done.stdout)["faultless"] is False
    written = page.read_text("utf-8")
    assert all(place in written for places in expected.values() for place in places)
    assert "://" not in written


@pytest.mark.broker
def test_a_group_that_has_committed_nothing_is_told(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    ledger = Ledger(f"idle-{uuid4().hex[:8]}", records=4, ring=2, partitions=1, seed=1)
    for topic in (ledger.topic, ledger.output, ledger.dead_letter):
        write(broker, topic, [[]])
    config = load(config_file(tmp_path, broker, f"g-{uuid4().hex[:8]}", ledger), {})
    with pytest.raises(PipelineError, match="has committed nothing") as told:
        reconcile(spark, config, Cluster(broker.bootstrap_servers, {}))
    assert told.value.exit_code == CONTRADICTION


@pytest.mark.broker
def test_inputs_that_are_gone_prove_nothing(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    group = f"g-{uuid4().hex[:8]}"
    ledger = Ledger(f"gone-{uuid4().hex[:8]}", records=40, ring=5, partitions=1, seed=1)
    write(broker, ledger.topic, [lane.inputs for lane in ledger.lanes])
    for topic in (ledger.output, ledger.dead_letter):
        write(broker, topic, [[]])
    commit(broker, group, {(ledger.topic, 0): 40})
    gone = TopicPartition(ledger.topic, 0, 40)
    # Its own name: futures never resolve once their client is collected.
    admin = AdminClient(dict(broker.client_properties))
    admin.delete_records([gone])[gone].result(30)
    config = load(config_file(tmp_path, broker, group, ledger), {})
    with pytest.raises(PipelineError, match="nothing to prove") as told:
        reconcile(spark, config, Cluster(broker.bootstrap_servers, {}))
    assert told.value.exit_code == CONTRADICTION


@pytest.mark.broker
@pytest.mark.parametrize("scope", ["partition", "address"])
def test_a_service_that_is_killed_commits_no_fault_and_none_is_seen_while_it_runs(
    spark: SparkSession, broker: Broker, tmp_path: Path, scope: str
) -> None:
    client, group = broker.client_properties, f"g-{uuid4().hex[:8]}"
    with world_of(Manner(scope=scope))(
        client, tmp_path, group, manner=Manner(scope=scope)
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
        amid = reconcile(spark, config, Cluster(broker.bootstrap_servers, {}))
        assert named(amid) == {}, amid.faults
        world.wait_decided()
        service.stop()
        findings = reconcile(spark, config, Cluster(broker.bootstrap_servers, {}))
        assert named(findings) == {}
        outputs, letters = (
            sum(map(len, world.read(topic).values())) for topic in (world.output, world.letters)
        )
        assert findings.fates == {"accepted": outputs, "duplicate": letters}
        assert outputs + letters == world.sent
        world.verify_fates()
