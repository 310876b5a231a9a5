"""Record of sends: the flights, and exactly what the publisher sent of each.

One thread writes, the others only read. A send is recorded before it is produced.
"""

from array import array
from collections.abc import Sequence

from tools.demo.flights import Flight
from tools.demo.plan import Send


class Books:
    """Counts of sends, per flight and in total."""

    def __init__(self, flights: Sequence[Flight]) -> None:
        self.flights = flights
        self.first_sent_ms = array("q", [0]) * len(flights)
        self.copies = array("L", [0]) * len(flights)
        self.sent = 0
        self.copies_sent = 0

    def enter(self, send: Send, now_ms: int) -> None:
        """Record one send."""
        if send.is_copy:
            self.copies[send.flight] += 1
            self.copies_sent += 1
        else:
            self.first_sent_ms[send.flight] = now_ms
        self.sent += 1
