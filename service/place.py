"""Place: an address within one slice, with its settings, its committed ring and a draft over it."""

from collections.abc import Iterator
from typing import NamedTuple

from ringfence.headers import Reason
from service.addresses import AddressBook, AddressSettings
from service.dead_letter import Envelope
from service.partition import Partition
from service.rejection import RejectedError
from service.route import ADDRESS_BYTES_MAX, Headers, UnrenderableError
from state.cache import AnyRing, Cache
from state.edit import Edit
from state.strategies.ring import RingDraft


class Place(NamedTuple):
    """What one address needs while a slice is decided."""

    name: str
    settings: AddressSettings
    ring: AnyRing
    draft: RingDraft


class Places:
    """The addresses of one slice, opened when they are met first."""

    def __init__(self, partition: Partition, book: AddressBook, cache: Cache) -> None:
        self._partition = partition
        self._book = book
        self._cache = cache
        self._open: dict[str, Place] = {}
        self._admitted: set[str] = set()
        self._deletions: list[Edit] = []
        self._envelopes: dict[str, Envelope] = {}

    def __iter__(self) -> Iterator[Place]:
        """In the order in which they were met."""
        return iter(self._open.values())

    def find(self, key: bytes | None, headers: Headers) -> Place:
        """The place of a record; RejectedError when it names no address."""
        address = self._partition.route.address.constant
        if address is None:
            address = self._address(key, headers)
        return self._open.get(address) or self._opened(address)

    def check_room(self, place: Place) -> None:
        """RejectedError where the partition holds as many addresses as it may."""
        held, limit = self._partition.addresses, place.settings.addresses_max
        if place.name in held or place.name in self._admitted:
            return
        if len(held) + len(self._admitted) >= limit:
            cause = f"the partition holds {limit} addresses already"
            raise RejectedError(Reason.TOO_MANY_ADDRESSES, cause)

    def admit(self, place: Place) -> None:
        """An id of this address is remembered from now on."""
        self._admitted.add(place.name)

    def envelope(self, place: Place) -> Envelope:
        """What its dead letters have in common; most addresses of a slice have none."""
        found = self._envelopes.get(place.name)
        if found is None:
            found = self._envelopes[place.name] = Envelope(self._partition.source, place.name)
        return found

    def deletions(self) -> list[Edit]:
        """What the addresses opened since the last call have outlived."""
        deletions, self._deletions = self._deletions, []
        return deletions

    def _address(self, key: bytes | None, headers: Headers) -> str:
        try:
            address = self._partition.route.address.render(key, headers, "")
        except UnrenderableError as error:
            raise RejectedError(Reason.NO_ADDRESS, f"no address: {error}") from None
        if not address or len(address.encode()) > ADDRESS_BYTES_MAX:
            cause = f"the address is empty or longer than {ADDRESS_BYTES_MAX} bytes"
            raise RejectedError(Reason.NO_ADDRESS, cause)
        return address

    def _opened(self, address: str) -> Place:
        source, store = self._partition.source, self._partition.store
        assert store is not None  # only running partitions are read
        settings = self._book.settings(address)
        ring = self._cache.ring(source, store, address)
        draft = ring.draft(settings.id_cache_size, source)
        self._deletions += draft.deletions(address)
        place = Place(address, settings, ring, draft)
        self._open[address] = place
        return place
