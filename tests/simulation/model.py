"""Model: what had to become of each record, by the slowest obvious rule.

The model knows the input, the transactions' batches (who committed which offsets, in order) and
the ring sizes of each life. It resizes the ring of an address when a batch first touches it.
"""

from collections.abc import Iterator
from typing import NamedTuple

from ringfence.headers import Reason
from state.edit import Source
from tests.oracle.model import DequeRing
from tests.simulation.scenario import OUTPUT_LIMIT_BYTES, Scenario, Sent

Place = tuple[str, int, int]


class Expected(NamedTuple):
    """Accepted when there is no reason; dropped when it leaves no trace."""

    reason: Reason | None = None
    original: str | None = None
    dropped: bool = False


class Held(NamedTuple):
    """One ring with the place that each id was accepted at."""

    ring: DequeRing
    origins: dict[bytes, str]
    order: list[bytes]


class Model:
    """Replays the batches of one partition after another."""

    def __init__(self, case: Scenario, sent: dict[Place, Sent]) -> None:
        self._case = case
        self._sent = sent
        self.expected: dict[Place, Expected] = {}
        self.rings: dict[tuple[Source, str], Held] = {}

    def batch(self, source: Source, start: int, end: int, life: int) -> None:
        """Decide the offsets from `start` up to `end` in one batch of this life."""
        capacities = self._case.capacity_of(life)
        touched: set[str] = set()
        for place, sent in self._records(source, start, end):
            if sent.address is not None and sent.address not in touched:
                touched.add(sent.address)
                self._held(source, sent.address).ring.resize(capacities[sent.address])
            self.expected[place] = self._judge(place, sent)

    def _records(self, source: Source, start: int, end: int) -> Iterator[tuple[Place, Sent]]:
        for offset in range(start, end):
            place = (*source, offset)
            yield place, self._sent[place]

    def _held(self, source: Source, address: str) -> Held:
        return self.rings.setdefault((source, address), Held(DequeRing(0), {}, []))

    def _judge(self, place: Place, sent: Sent) -> Expected:
        if sent.address is None:
            return Expected(Reason.NO_ADDRESS)
        if not sent.valid:
            return Expected(Reason.INVALID_CLAIM)
        if sent.identifier is None and self._case.missing_id == "dead_letter":
            return Expected(Reason.MISSING_ID)
        if sent.expired:
            return Expected(Reason.EXPIRED)
        held = self._held(sent.source, sent.address)
        if sent.identifier is not None and held.ring.judge(sent.identifier):
            original = held.origins[sent.identifier]
            return Expected(Reason.DUPLICATE, original, self._case.on_duplicate == "drop")
        if len(sent.record.value or b"") >= OUTPUT_LIMIT_BYTES:
            return Expected(Reason.TOO_LARGE)
        if sent.identifier is not None:
            held.ring.remember(sent.identifier)
            held.origins[sent.identifier] = "{}-{}@{}".format(*place)
            held.order.append(sent.identifier)
        return Expected()
