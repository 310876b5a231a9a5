"""What cannot go well is said before or at the start: one sentence, its fix, its exit code.

The commands are real processes on a real broker; what they leave with is the contract.
"""

import json
import subprocess
from pathlib import Path

import pytest

from tests.broker.desk import Desk, sentence
from tests.broker.reading import drained
from tests.broker.service import ringfence
from tests.broker.topics import create_topic
from tests.support.waiting import eventually
from tools.broker.config import free_port

pytestmark = pytest.mark.broker


def command(word: str, config: Path) -> subprocess.CompletedProcess[str]:
    return ringfence(word, "--config", str(config))


def test_check_names_five_faults_at_once_each_with_its_fix(desk: Desk) -> None:
    desk.create(desk.input, partitions=3)
    desk.create(desk.letters)
    wide = {"cleanup.policy": "compact", "max.message.bytes": "2000000"}
    create_topic(desk.client, desk.changelog, 1, wide)
    config = desk.config(
        kafka='"enable.auto.commit" = true',
        service="batch_record_max = 10",
        more='[addresses."orders.#.eu"]\nid_cache_size = 10',
    )
    done = command("check", config)
    said = done.stdout
    assert done.returncode == 1, said + done.stderr
    assert "5 problems:" in said
    assert said.count("     fix: ") == 5
    for what, fix in (
        ("service.batch_record_max", "batch_records_max"),
        ("enable.auto.commit", "remove it"),
        ("orders.#.eu", "a final `#` for any number"),
        (f'"{desk.output}"', "create it"),
        (f'"{desk.changelog}" has 1 partitions', "on_partitions_added"),
    ):
        after = said.partition(what)[2]
        assert after, f"{what} is not named in\n{said}"
        assert fix in after.partition("fix: ")[2].partition("\n")[0], said


def test_check_tests_transactions_where_it_is_told_to_and_else_writes_nothing(desk: Desk) -> None:
    desk.create()
    address = f'[[routes]]\ninputs = ["{desk.input}-too"]\nscope = "address"'
    desk.create(f"{desk.input}-too", f"{desk.input}-too.unique", f"{desk.input}-too.dlq")
    config = desk.config(more=address)
    assert command("check", config).returncode == 0
    done = ringfence("check", "--probe", "--config", str(config))
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    assert desk.count(f"{desk.group}.config") == 2, "both committed records of one test"
    service = desk.service(more=address)
    service.wait_ready(14)
    service.stop()
    done = ringfence("check", "--probe", "--config", str(config))
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    keys = [each.record.key for each in drained(desk.client, f"{desk.group}.config", 1)]
    assert keys.count(b'["probe"]') >= 6
    assert keys.count(b'["broker"]') == 1


def test_serve_ends_with_3_when_the_broker_cannot_be_reached(desk: Desk) -> None:
    desk.client["bootstrap.servers"] = f"127.0.0.1:{free_port(0)}"
    done = command("serve", desk.config())
    assert done.returncode == 3, done.stderr
    assert desk.client["bootstrap.servers"] in sentence(done.stderr)


@pytest.mark.row(11)
def test_a_second_process_of_an_instance_ends_with_4(desk: Desk) -> None:
    desk.create()
    first = desk.service()
    eventually(lambda: first.is_ready, first)
    done = command("serve", desk.config())
    assert done.returncode == 4, done.stderr
    assert "set service.instance" in sentence(done.stderr)
    first.stop()


@pytest.mark.row(20)
def test_offsets_reset_by_hand_are_refused_until_the_operator_says_what_they_mean(
    desk: Desk,
) -> None:
    desk.create()
    desk.send(b"1", b"2", b"3")
    desk.serve_to_end()
    desk.reset(0)
    assert "on_reset_offset to keep_state or clear_state" in desk.refusal()
    desk.serve_to_end(service='on_reset_offset = "keep_state"')
    assert (desk.count(desk.output), desk.count(desk.letters)) == (3, 3)
    desk.reset(0)
    desk.serve_to_end(service='on_reset_offset = "clear_state"')
    assert (desk.count(desk.output), desk.count(desk.letters)) == (6, 3)
    desk.send(b"1")
    desk.serve_to_end()
    assert (desk.count(desk.output), desk.count(desk.letters)) == (6, 4)


@pytest.mark.row(19)
def test_a_recreated_changelog_is_refused_and_the_fix_works(desk: Desk) -> None:
    desk.create()
    desk.send(b"1", b"2", b"3")
    desk.serve_to_end()
    desk.delete(desk.changelog)
    create_topic(desk.client, desk.changelog, 1, {"cleanup.policy": "compact"})
    said = desk.refusal()
    assert "was deleted and created again" in said
    assert "delete the group's offsets and set service.on_reset_offset" in said
    desk.forget_group()
    desk.serve_to_end(service='on_reset_offset = "keep_state"')
    assert (desk.count(desk.output), desk.count(desk.letters)) == (6, 0)


def test_the_first_start_of_a_group_logs_json_alone_and_no_answer_that_is_a_fault(
    desk: Desk,
) -> None:
    desk.create()
    by_address = f"{desk.input}-too"
    desk.create(by_address, f"{by_address}.unique", f"{by_address}.dlq")
    service = desk.service(
        service="workers = 2", more=f'[[routes]]\ninputs = ["{by_address}"]\nscope = "address"'
    )
    service.wait_ready(14)
    eventually(lambda: '"ready"' in service.log.read_text(), service)
    events = [json.loads(line) for line in service.log.read_text().splitlines()]
    (ready,) = [each for each in events if each["event"] == "ready"]
    assert (ready["console"], ready["partitions"]) == (f"{ready['api']}/", 14)
    assert [event for event in events if event["logger"] == "librdkafka"] == []
    answers = [each for each in events if "which answered" in each.get("reason", "")]
    # One that does not come in time is no answer.
    assert [each for each in answers if "_TIMED_OUT" not in each["reason"]] == []
