"""Kafka versions (`make test-versions`): runs the broker tests on every supported version.

`python -m tools.versions 3.9.2 4.4.0` runs them on these two only.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tools.broker.artifacts import versions
from tools.suites import Outcome, counted, show

TESTS: Final = (
    "tests/contract/test_log.py",
    "tests/broker/test_kill.py",
    "tests/broker/test_network.py",
    "tests/broker/test_takeover.py",
)
"""What the loop relies on in Kafka; then the service killed, cut off, and taken over."""


def main(chosen: Sequence[str]) -> int:
    """Test on these versions, or on all; return 1 if anything failed."""
    outcomes = [run(version) for version in chosen or versions()]
    show(outcomes, "Kafka")
    return 1 if any(each.failed or not each.passed for each in outcomes) else 0


def run(version: str) -> Outcome:
    """Run the tests in a process of their own, on a broker of this version."""
    print(f"\n── Kafka {version} ──", flush=True)
    started_s = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [sys.executable, "-m", "pytest", "-q", "--tb=short", f"--junitxml={report}"]
        code = subprocess.run(
            [*command, "-m", "broker and not long", *TESTS],
            check=False,
            env={**os.environ, "RINGFENCE_KAFKA_VERSION": version},
        ).returncode
        return counted(version, report, code, time.monotonic() - started_s)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
