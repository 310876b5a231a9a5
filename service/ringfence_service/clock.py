"""Clock: how the loop reads the time and waits. Also process exit and product version."""

import logging
import os
import sys
import time
import tomllib
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final, NoReturn, Protocol


class Clock(Protocol):
    """Time source of the loop; the simulation has its own implementation."""

    def monotonic_s(self) -> float:
        """Return seconds that never go back, for deadlines."""
        ...

    def wall_ms(self) -> int:
        """Return milliseconds since the epoch by the machine's clock, which may go back."""
        ...

    def sleep(self, seconds: float) -> None:
        """Block for so long."""
        ...


class SystemClock:
    """The clock of the operating system."""

    def monotonic_s(self) -> float:
        """Return seconds that never go back, for deadlines."""
        return time.monotonic()

    def wall_ms(self) -> int:
        """Return milliseconds since the epoch by the machine's clock, which may go back."""
        return time.time_ns() // 1_000_000

    def sleep(self, seconds: float) -> None:
        """Block the thread for so long."""
        time.sleep(seconds)


def leave(code: int) -> NoReturn:
    """Flush the log and both output streams, then exit at once with this code.

    A normal interpreter exit destroys each Kafka client in turn and waits for its threads. On a
    busy machine that takes seconds of the few that follow SIGTERM, although no work is left.
    """
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


_DISTRIBUTION: Final = "ringfence-server"


def product_version() -> str:
    """Return the version of the installed server, or that of this checkout."""
    try:
        return version(_DISTRIBUTION)
    except PackageNotFoundError:
        project_file = Path(__file__).parents[2] / "pyproject.toml"
        return str(tomllib.loads(project_file.read_text(encoding="utf-8"))["project"]["version"])
