"""The newer format that the tests of upgrades use can be made of today's modules."""

import subprocess
import sys
from pathlib import Path

from tests.helm.versions import NEWER, with_newer_format
from tools.source_roots import python_path


def test_a_version_with_a_newer_format_reads_todays_and_writes_its_own(tmp_path: Path) -> None:
    program = (
        "from ringfence_state.segment import FORMAT;"
        "from ringfence_state import pending_group, redrive_progress;"
        "from ringfence_state.strategies import registry; print(FORMAT, registry.__file__)"
    )
    folder = with_newer_format(tmp_path, "0.2.0")
    ran = subprocess.run(
        [sys.executable, "-c", program],
        env={"PYTHONPATH": python_path(folder)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stdout == f"{NEWER} {folder}/state/ringfence_state/strategies/registry.py\n"
