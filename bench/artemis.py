"""Artemis benchmark: durable messages into a queue and out of it, with duplicate detection.

This is a different job from that of the arms: no topic is read, no transaction spans input and
output, and a duplicate vanishes. So it has its own table, in messages per second instead of ratios.
"""

import shutil
import subprocess
from typing import NamedTuple

from bench.java import classpath
from bench.venue import FOLDER
from tools.broker.config import choose_ports
from tools.errors import ToolError
from tools.jars import java_command

MESSAGES = 200_000
VALUE_BYTES = 200
DUPLICATE_SHARE = 0.1
ID_CACHE_SIZE = 20_000
_TIMEOUT_S = 300


class Queue(NamedTuple):
    """One run: messages sent and received, and its duration."""

    sent: int
    received: int
    seconds: float

    @property
    def rate(self) -> float:
        """Sent messages per second, until the last one was received."""
        return self.sent / self.seconds


def artemis() -> Queue:
    """Run `DuplicatePeer` on an embedded Artemis broker with its journal on disk."""
    folder = FOLDER / "artemis"
    shutil.rmtree(folder, ignore_errors=True)
    port = choose_ports(folder / "none").client
    given = (folder, port, MESSAGES, VALUE_BYTES, DUPLICATE_SHARE, ID_CACHE_SIZE)
    command = [java_command(), "-Xmx1g", "-cp", classpath("artemis", "DuplicatePeer")]
    done = subprocess.run(
        [*command, "DuplicatePeer", *map(str, given)],
        check=False,
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
    )
    shutil.rmtree(folder, ignore_errors=True)
    if done.returncode:
        raise ToolError(f"Artemis ended with {done.returncode}: {done.stderr[-2000:]}")
    sent, received, seconds = done.stdout.split()
    return Queue(int(sent), int(received), float(seconds))
