"""Sequence of sends of an at-least-once publisher: each flight once, and again when in doubt.

Pure and seeded: the seed and the position of the kill determine the sequence. The first sends of
all flights are in the order of the data set, and every later send of a flight is a copy. The
publisher is in doubt when an acknowledgement is lost (the record was written, but the response did
not arrive), and after the service was killed.
"""

import heapq
import random
from collections.abc import Iterator
from typing import Final, NamedTuple

ACKNOWLEDGEMENT_LOST: Final = 0.085
"""The probability for every send, including copies; with the resends after the kill, a tenth of
all sends are copies."""

RESEND_AT_ONCE: Final = 0.5
SOON_SENDS: Final = (1, 50)
LATER_SENDS: Final = (2_000, 60_000)
"""How many sends a resend is delayed: milliseconds, or the equivalent of minutes of traffic."""

DOUBTED_NEWEST: Final = 2_000
DOUBTED_ANYWHERE: Final = 3_000


class Send(NamedTuple):
    """One message to send: the number of its flight, and whether it was sent before."""

    flight: int
    is_copy: bool


class Plan:
    """The sends of one publisher; `doubt` may be called between any two of them."""

    def __init__(self, flights: int, seed: int) -> None:
        self._flights = flights
        self._random = random.Random(seed)
        self._resends: list[tuple[int, int]] = []  # (due at this send, flight), a heap
        self._sends = 0
        self._originals = 0

    def sends(self, count_max: int) -> Iterator[Send]:
        """Yield the next sends, at most `count_max`; none if nothing is left to send now."""
        for _ in range(count_max):
            send = self._next()
            if send is None:
                return
            yield send

    def doubt(self) -> None:
        """After a kill of the service, resend the newest flights and a sample of all sent ones."""
        newest = range(max(0, self._originals - DOUBTED_NEWEST), self._originals)
        anywhere = self._random.sample(
            range(self._originals), k=min(DOUBTED_ANYWHERE, self._originals)
        )
        for flight in (*newest, *anywhere):
            heapq.heappush(self._resends, (self._sends, flight))

    def _next(self) -> Send | None:
        is_due = bool(self._resends) and self._resends[0][0] <= self._sends
        originals_left = self._originals < self._flights
        if is_due or (self._resends and not originals_left):
            send = Send(heapq.heappop(self._resends)[1], is_copy=True)
        elif originals_left:
            send = Send(self._originals, is_copy=False)
            self._originals += 1
        else:
            return None
        self._sends += 1
        if self._random.random() < ACKNOWLEDGEMENT_LOST:
            heapq.heappush(self._resends, (self._sends + self._wait_sends(), send.flight))
        return send

    def _wait_sends(self) -> int:
        at_once = self._random.random() < RESEND_AT_ONCE
        return self._random.randint(*(SOON_SENDS if at_once else LATER_SENDS))
