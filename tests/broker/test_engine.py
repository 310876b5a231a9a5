"""The broker in a container, `RINGFENCE_BROKER=container`, run by an engine of the tests' own."""

import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tools.broker.engine import missing

pytestmark = pytest.mark.broker

ROOT: Final = Path(__file__).parents[2]
KILLED: Final = "test_a_kill_at_any_step_leaves_every_record_with_one_fate[mid_produce-700]"


def test_a_service_killed_while_its_broker_is_in_a_container_gives_every_record_one_fate() -> None:
    if reason := missing():
        pytest.skip(reason)
    engine = [sys.executable, "-m", "tools.broker.engine"]
    pytest_ = [sys.executable, "-m", "pytest", "-q", f"tests/broker/test_kill.py::{KILLED}"]
    done = subprocess.run(
        [*engine, *pytest_], cwd=ROOT, capture_output=True, text=True, timeout=540, check=False
    )
    assert "1 passed" in done.stdout, done.stdout[-5000:] + done.stderr[-3000:]
    assert done.returncode == 0
