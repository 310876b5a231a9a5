"""Traffic: how many records came to each address since the process started, and what they were.

Counted once for each address of a transaction, after its commit. Only addresses of which something
is held are counted, so `addresses_max` bounds the table as it bounds them.
"""

from collections import Counter
from collections.abc import Collection, Mapping
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from service.plan import Tally


class Counted(NamedTuple):
    """What came to one address."""

    accepted: int
    duplicates: int


class Traffic:
    """By address."""

    def __init__(self, since_ms: int) -> None:
        self.since_ms = since_ms
        """From when on it was counted."""
        self._accepted: Counter[str] = Counter()
        self._duplicates: Counter[str] = Counter()

    def of(self, address: str) -> Counted:
        """What came to an address."""
        return Counted(self._accepted[address], self._duplicates[address])

    @property
    def addresses(self) -> AbstractSet[str]:
        """Those to which anything came."""
        return self._accepted.keys() | self._duplicates.keys()

    def add(self, tally: Tally, held: Collection[AbstractSet[str]]) -> None:
        """Count what was committed; `held` are the addresses of the partitions that decided it."""
        _add(self._accepted, tally.accepted, held)
        _add(self._duplicates, tally.duplicates, held)


def _add(
    counts: Counter[str], tally: Mapping[tuple[str, str], int], held: Collection[AbstractSet[str]]
) -> None:
    for (_route, address), records in tally.items():
        if records and (address in counts or any(address in each for each in held)):
            counts[address] += records
