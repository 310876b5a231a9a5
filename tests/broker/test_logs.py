"""Logs and offsets that are not what they were: refused with the cause, never passed in silence."""

import json
import os
import re
import subprocess
import time
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from ringfence_state.segment import FORMAT
from tests.broker import kafka_tools
from tests.broker.desk import SERVICE_ENDS_S, Desk, sentence
from tests.broker.topics import create_topic
from tests.support.pages import block
from tests.support.waiting import eventually

pytestmark = pytest.mark.broker

OPERATIONS: Final = Path(__file__).parents[2] / "docs" / "operations.md"

ENDS_WITHIN_S = 25.0
"""Less than the pause after which the inputs are looked at anyway."""


@pytest.fixture
def remembering(desk: Desk) -> Desk:
    """A group that has decided three records, and runs no more."""
    desk.create()
    desk.send(b"1", b"2", b"3")
    desk.serve_to_end()
    return desk


@pytest.mark.row(19)
def test_a_changelog_without_its_first_records_is_refused_until_a_setting_accepts_the_loss(
    remembering: Desk,
) -> None:
    desk = remembering
    allow_deletion(desk, desk.changelog)
    desk.truncate(desk.changelog, below=desk.end(desk.changelog))
    assert f"changelog {desk.changelog}-0 below offset" in desk.refusal()
    desk.forget_group()
    desk.serve_to_end(service='on_reset_offset = "keep_state"')
    assert (desk.count(desk.output), desk.count(desk.letters)) == (6, 0)
    desk.send(b"1")
    desk.serve_to_end()
    assert (desk.count(desk.output), desk.count(desk.letters)) == (6, 1)


@pytest.mark.row(19)
def test_a_foreign_record_in_the_changelog_is_named(remembering: Desk) -> None:
    producer = Producer(remembering.client)
    producer.produce(remembering.changelog, key=b"foreign", value=b"?", partition=0)
    assert producer.flush(20) == 0
    place = f"{remembering.changelog}-0@{remembering.end(remembering.changelog) - 1}"
    said = remembering.refusal()
    assert "this version did not write" in said
    assert place in said


@pytest.mark.row(31)
@pytest.mark.parametrize("which", ["input", "changelog"])
def test_a_topic_that_is_created_again_while_the_service_runs_ends_it(
    desk: Desk, which: str
) -> None:
    desk.create()
    desk.send(b"1", b"2", b"3")
    process = desk.service()
    eventually(lambda: desk.committed() == 3, process)
    topic = desk.input if which == "input" else desk.changelog
    desk.delete(topic)
    create_topic(desk.client, topic, 1, {"cleanup.policy": "compact"} if which != "input" else {})
    desk.send(*(b"new %d" % number for number in range(12)))
    begun_s = time.monotonic()
    eventually(lambda: process.ended or not process.workers(), process)
    assert time.monotonic() - begun_s < ENDS_WITHIN_S, process.tail()
    assert process.wait(SERVICE_ENDS_S) == 5, process.tail()
    told = sentence(process.tail())
    if which == "input":  # with a topic the broker deletes the offsets of groups, in a while
        assert f"{topic}-0 was reset by hand or has expired" in told or f"{topic} was del" in told
    else:
        assert f"{topic} was deleted and created again" in told
    assert (desk.count(desk.output), desk.count(desk.letters)) == (3, 0)


@pytest.mark.row(20)
@pytest.mark.parametrize("change", ["ahead", "deleted"])
def test_an_offset_that_was_set_ahead_or_deleted_is_refused(remembering: Desk, change: str) -> None:
    remembering.send(b"4", b"5")
    if change == "ahead":
        remembering.reset(5)
    else:
        remembering.forget_group()
    assert "was reset by hand or has expired" in remembering.refusal()


@pytest.mark.row(20)
def test_records_deleted_before_they_were_decided_are_reported_and_skipped_on_request(
    remembering: Desk,
) -> None:
    desk = remembering
    desk.send(b"1", b"4", b"5")
    desk.truncate(desk.input, below=4)
    said = desk.refusal()
    assert "the group is at 3" in said
    assert "on_lost_offset" in said
    desk.serve_to_end(service='on_lost_offset = "earliest"')
    assert (desk.count(desk.output), desk.count(desk.letters)) == (5, 0)


@pytest.mark.long
@pytest.mark.row(21)
def test_hanging_transactions_in_an_input_and_in_a_changelog_are_reported(
    desk: Desk, tmp_path: Path
) -> None:
    desk.create(desk.input, partitions=2)
    desk.create(desk.output, desk.letters)
    create_topic(desk.client, desk.changelog, 2, {"cleanup.policy": "compact"})
    hanging = Producer(
        {**desk.client, "transactional.id": desk.group, "transaction.timeout.ms": 300_000}
    )
    hanging.init_transactions(20)
    hanging.begin_transaction()
    hanging.produce(desk.input, value=b"never committed", partition=1)
    hanging.produce(desk.changelog, key=b"never", value=b"committed", partition=0)
    assert hanging.flush(20) == 0
    service = desk.service()
    service.wait_complaint(f"{desk.changelog}-0 to be readable from offset 0")

    def is_counted() -> bool:
        return "ringfence_held_back_partitions 1.0" in service.get("/metrics")[1]

    eventually(is_counted, service)
    held = next(line for line in service.log.read_text().splitlines() if "input_held_back" in line)
    (offset,) = re.findall(r"from offset (\d+)", held)
    abort_as_on_the_page(desk, tmp_path, desk.input, 1, offset)
    hanging.abort_transaction(20)
    eventually(lambda: service.get("/readyz")[0] == 200, service)
    service.stop()


@pytest.mark.row(28)
def test_what_a_newer_version_wrote_is_refused_and_the_documented_way_back_works(
    remembering: Desk,
) -> None:
    desk = remembering
    desk.reset(3, metadata=json.dumps({"f": FORMAT + 1, "more": "than we know"}))
    newer = f"state format {FORMAT + 1}, this version reads {FORMAT}; run the newer version"
    assert newer in desk.refusal()
    desk.reset(3)
    assert "was reset by hand" in desk.refusal()
    desk.delete(desk.changelog)
    desk.send(b"1", b"1")
    desk.serve_to_end()
    assert (desk.count(desk.output), desk.count(desk.letters)) == (4, 1)


def abort_as_on_the_page(desk: Desk, folder: Path, topic: str, partition: int, at: str) -> None:
    """Type the page's commands, with names, numbers and address of this test."""
    commands = block(OPERATIONS.read_text("utf-8"), "sh", "kafka-transactions.sh")
    for named, here in (
        ("kafka:9092", str(desk.client["bootstrap.servers"])),
        ("--topic orders --partition 3", f"--topic {topic} --partition {partition}"),
        ("--start-offset 1042", f"--start-offset {at}"),
    ):
        assert named in commands
        commands = commands.replace(named, here)
    kafka_tools.install("kafka-transactions.sh", folder)
    path = f"{folder}{os.pathsep}{os.environ['PATH']}"
    subprocess.run(["sh", "-ec", commands], env={**os.environ, "PATH": path}, check=True)


def allow_deletion(desk: Desk, topic: str) -> None:
    """As an operator may who is short of space: what is compacted alone cannot be deleted."""
    settings = {"cleanup.policy": "compact,delete", "retention.ms": "-1"}
    entries = [
        ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        for name, value in settings.items()
    ]
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
    admin = AdminClient({**desk.client})
    admin.incremental_alter_configs([resource])[resource].result(30)
