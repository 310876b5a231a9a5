"""Held: logs that cannot be read on, because a transaction of somebody's is open in them.

Only what is committed is read, so records behind a transaction that never ends are not there for
us, and nothing looks wrong. The end of the log, asked of the cluster, tells that they are there.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final

from confluent_kafka import KafkaException

from service.clock import Clock
from service.cluster import Cluster
from state.edit import Source

_EVERY_S: Final = 5.0
HELD_S: Final = 20.0
"""So long a log stands still before it is told: a transaction is mostly shorter."""


class Held:
    """Asks from time to time, of the logs that stood still meanwhile."""

    def __init__(self, cluster: Cluster, clock: Clock, stable: Callable[[Source], int]) -> None:
        """`stable` asks the broker for the offset up to which a log can be read."""
        self._cluster = cluster
        self._clock = clock
        self._stable = stable
        self._looked_s = clock.monotonic_s()
        self._since: dict[Source, tuple[int, float]] = {}
        self.places: Mapping[Source, int] = {}
        """From which offset on each log is held back."""

    def look(self, positions: Callable[[], Mapping[Source, int]]) -> None:
        """Told where all reading stands. What is not answered now is asked later."""
        now_s = self._clock.monotonic_s()
        if now_s - self._looked_s < _EVERY_S:
            return
        self._looked_s = now_s
        standing = {}
        for log, position in positions().items():
            before, since_s = self._since.get(log, (position, now_s))
            standing[log] = (position, since_s if before == position else now_s)
        self._since = standing
        still = {log: at for log, (at, since_s) in standing.items() if now_s - since_s >= HELD_S}
        with suppress(KafkaException):
            self.places = self._held_back(still)

    def _held_back(self, still: Mapping[Source, int]) -> dict[Source, int]:
        ends = self._cluster.ends(still) if still else {}
        behind = {log: at for log, at in still.items() if at < ends[log]}
        # Who stands still for another reason could read on; and markers alone hold nobody back.
        return {log: at for log, at in behind.items() if self._stable(log) <= at}


def sentence(places: Mapping[Source, int]) -> str | None:
    """What is waited for, for people; None for nothing."""
    if not places:
        return None
    log, offset = min(places.items())
    more = f" and {len(places) - 1} more" if len(places) > 1 else ""
    return (
        f"{log.topic}-{log.partition}{more} to be readable from offset {offset} on: a transaction "
        f"is open there; kafka-transactions.sh describe-producers --topic {log.topic} "
        f"--partition {log.partition} names its producer id, and abort ends it"
    )
