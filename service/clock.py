"""Clock: the only way in which the loop reads the time or waits. Also process exit and version."""

import logging
import os
import sys
import time
import tomllib
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final, NoReturn, Protocol


class Clock(Protocol):
    """The simulation has its own."""

    def monotonic_s(self) -> float:
        """Seconds that never go back; for deadlines."""
        ...

    def wall_ms(self) -> int:
        """Milliseconds since the epoch, as the machine believes."""
        ...

    def sleep(self, seconds: float) -> None:
        """Wait."""
        ...


class SystemClock:
    """See `Clock`."""

    def monotonic_s(self) -> float:
        """See `Clock.monotonic_s`."""
        return time.monotonic()

    def wall_ms(self) -> int:
        """See `Clock.wall_ms`."""
        return time.time_ns() // 1_000_000

    def sleep(self, seconds: float) -> None:
        """See `Clock.sleep`."""
        time.sleep(seconds)


def leave(code: int) -> NoReturn:
    """End now, with all that was written flushed.

    The interpreter's own end destroys each Kafka client in turn and waits for its threads: seconds
    on a busy machine, of the few that SIGTERM leaves, and nothing is left for them to do.
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
        project_file = Path(__file__).parents[1] / "pyproject.toml"
        return str(tomllib.loads(project_file.read_text(encoding="utf-8"))["project"]["version"])
