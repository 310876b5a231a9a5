"""Traffic: how many records came to each address since the process started, and what they were.

Counted once for each address of a transaction, after its commit. Only addresses of which something
is held are counted, so `addresses_max` bounds the table as it bounds them.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
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

    def __contains__(self, address: object) -> bool:
        """Whether anything came to an address."""
        return address in self._accepted or address in self._duplicates

    def of(self, address: str) -> Counted:
        """What came to an address."""
        return Counted(self._accepted[address], self._duplicates[address])

    @property
    def addresses(self) -> AbstractSet[str]:
        """Those to which anything came."""
        return self._accepted.keys() | self._duplicates.keys()

    def counts(self, addresses: Sequence[str]) -> tuple[list[int], list[int]]:
        """How many were accepted of each, and how many were duplicates."""
        accepted, duplicates = self._accepted.get, self._duplicates.get
        return [accepted(each, 0) for each in addresses], [
            duplicates(each, 0) for each in addresses
        ]

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
