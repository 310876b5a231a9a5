"""The books of the publisher: the flights, and exactly what was sent of each.

One thread writes, the others only read. What always holds: a send is in the books before it is
on its way.
"""

from array import array
from collections.abc import Sequence

from tools.demo.flights import Flight
from tools.demo.plan import Send


class Books:
    """What was sent, per flight and in all."""

    def __init__(self, flights: Sequence[Flight]) -> None:
        self.flights = flights
        self.first_sent_ms = array("q", [0]) * len(flights)
        self.copies = array("L", [0]) * len(flights)
        self.sent = 0
        self.copies_sent = 0

    def enter(self, send: Send, now_ms: int) -> None:
        """Write down one send."""
        if send.is_copy:
            self.copies[send.flight] += 1
            self.copies_sent += 1
        else:
            self.first_sent_ms[send.flight] = now_ms
        self.sent += 1
