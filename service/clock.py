"""Clock: the only way in which the loop learns the time or waits."""

import time
from typing import Protocol


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
