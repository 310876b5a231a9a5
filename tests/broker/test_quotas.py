"""A client quota of the broker: it delays the service, which says so, and costs nothing else."""

import json
import subprocess
from pathlib import Path

import pytest

from tests.broker import kafka_tools
from tests.broker.desk import Desk
from tests.support.waiting import eventually

pytestmark = [pytest.mark.broker, pytest.mark.usefixtures("embedded_kind")]

BYTES_PER_S = 5_000
"""With it the messages of the test take seconds, and one transaction less than its timeout."""
MESSAGES = 300


def limit(desk: Desk, folder: Path, client_id: str) -> None:
    """Give a client id a quota for what it sends."""
    kafka_tools.install("kafka-configs.sh", folder)
    command = [str(folder / "kafka-configs.sh"), "--bootstrap-server"]
    command += [str(desk.client["bootstrap.servers"]), "--alter", "--entity-type", "clients"]
    command += ["--entity-name", client_id, "--add-config", f"producer_byte_rate={BYTES_PER_S}"]
    subprocess.run(command, check=True, timeout=120)


def test_a_quota_is_told_by_name_and_every_message_has_one_fate(desk: Desk, tmp_path: Path) -> None:
    desk.create()
    limit(desk, tmp_path, f"ringfence-{desk.group}-0")
    desk.send(*(b"%d" % (number // 2) for number in range(MESSAGES)))
    service = desk.service()
    eventually(lambda: desk.committed() == desk.end(desk.input), service)
    lines = service.get("/metrics")[1].splitlines()
    (delayed,) = [each for each in lines if each.startswith("ringfence_throttled_seconds_total")]
    assert float(delayed.split()[-1]) > 0
    service.stop()
    assert "throttled" in {
        json.loads(each)["event"] for each in service.log.read_text().splitlines()
    }
    assert (desk.count(desk.output), desk.count(desk.letters)) == (MESSAGES // 2, MESSAGES // 2)
