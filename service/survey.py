"""Survey: what each address of a partition holds, and from when to when, as it was last looked at.

So what is asked about all addresses is answered without loading any. `surveyor.py` looks.
"""

from collections.abc import Iterable
from itertools import islice

from service.addresses import AddressBook
from state.strategies.strategy import Extent


class Survey:
    """Of one partition, from its takeover to its loss."""

    __slots__ = ("_book", "_stale", "extents", "rooms")

    def __init__(self) -> None:
        self.extents: dict[str, Extent] = {}
        """Of those that are known."""
        self.rooms: dict[str, int] = {}
        """How much each of those may hold."""
        self._stale: dict[str, None] = {}
        """Addresses to be looked at, in the order in which they came to be."""
        self._book: AddressBook | None = None
        """By which settings all of this was found."""

    def changed(self, address: str) -> None:
        """What it holds has changed."""
        self._stale[address] = None

    def begin(self, addresses: Iterable[str], book: AddressBook) -> bool:
        """Whether there is anything to be looked at; all of it, when the settings are others."""
        if book is not self._book:
            self._book = book
            self._stale.update(dict.fromkeys(addresses))
        return bool(self._stale)

    def next(self, limit: int) -> list[str]:
        """Those to be looked at now."""
        return list(islice(self._stale, limit))

    def found(self, address: str, told: Extent | None, room: int) -> None:
        """What a look has told; None where only loading it would."""
        self._stale.pop(address, None)
        if told is None:
            self.extents.pop(address, None)
            self.rooms.pop(address, None)
        else:
            self.extents[address] = told
            self.rooms[address] = room

    def is_current(self, address: str, book: AddressBook) -> bool:
        """Whether nothing has changed since it was looked at."""
        return book is self._book and address not in self._stale and address in self.extents
