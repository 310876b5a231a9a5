"""Repartition key: what determines the partition of the repartition topic that decides a record.

With scope `address` that is the address. With scope `id` it is the address and the name under which
the record can repeat another one: its publisher where the strategy counts by publisher, else its
transaction group, else its id. A record without any of them has the key of its input partition, so
that such records keep their order.
Invariant: records with one publisher, one group, or one id outside of groups have one key.
"""

from typing import Final

from ringfence_client.headers import GROUP, Headers
from ringfence_service.config.addresses import AddressBook, settings_of
from ringfence_service.dedup.claim import claim_of, identifier_of
from ringfence_service.dedup.record import Record, RejectedError, name_of
from ringfence_service.dedup.route import InputPartition
from ringfence_state.model import Claim
from ringfence_state.segment import remembered
from ringfence_state.strategies.base import Strategy

BY_ID: Final = b"i"
_BY_INPUT: Final = b"n"
_BY_PUBLISHER: Final = b"p"
_BY_GROUP: Final = b"g"
_END: Final = b"\0"


def prefix_of(address: str, kind: bytes) -> bytes:
    """Return the start of all keys of an address with scope `id` that have names of this kind."""
    return b"%b%b%b" % (address.encode(), _END, kind)


class RepartitionKeys:
    """The keys of the records of one input partition."""

    def __init__(self, input_partition: InputPartition, book: AddressBook) -> None:
        settings = input_partition.route.settings
        self._input_partition = input_partition
        self._book = book
        self._is_by_id = settings.scope == "id"
        self._identifier = identifier_of(settings.id)

    def of(self, record: Record, headers: Headers) -> bytes:
        """Return the key of a record; RejectedError if it has no address."""
        address = self._input_partition.address(record, headers)
        if not self._is_by_id:
            return address.encode()
        groups = (value for name, value in headers if name == GROUP and value is not None)
        counting = _counting(self._book, address)
        names = frozenset() if counting is None else counting.publisher_headers
        try:
            claim = claim_of(self._identifier, record, headers, names)
        except RejectedError:  # the partition that decides it will dead-letter it
            return self.without_name(address)
        source = name_of(self._input_partition.source)
        return key_of(self._book, address, claim, next(groups, None), source)

    def of_claim(self, address: str, claim: Claim) -> bytes:
        """Return the key of a record of the address that claims this and is in no group."""
        if not self._is_by_id:
            return address.encode()
        return _named(address, claim, None) or self.without_name(address)

    def reads_ids_alone(self, address: str) -> bool:
        """Whether the keys of an address follow from id headers, where a record has no group."""
        return self._identifier is None and _counting(self._book, address) is None

    def without_name(self, address: str) -> bytes:
        """Return the key of records with scope `id` that claim nothing."""
        return prefix_of(address, _BY_INPUT) + name_of(self._input_partition.source)


def key_of(
    book: AddressBook, address: str, claim: Claim, group: bytes | None, source: bytes
) -> bytes:
    """Return the key of a record with scope `id`; `source` is the name of its input partition."""
    counting = _counting(book, address)
    if counting is None or not counting.claims(claim):
        claim = claim._replace(publisher=None)
    return _named(address, claim, group) or prefix_of(address, _BY_INPUT) + source


def _named(address: str, claim: Claim, group: bytes | None) -> bytes | None:
    if claim.publisher is not None:
        return prefix_of(address, _BY_PUBLISHER) + claim.publisher.encode()
    if group is not None:
        return prefix_of(address, _BY_GROUP) + group
    if claim.identifier is not None:
        return prefix_of(address, BY_ID) + remembered(claim.identifier)
    return None


def _counting(book: AddressBook, address: str) -> Strategy | None:
    """Return the strategy of an address if its state is kept by publisher."""
    strategy = settings_of(book, address).remembered_by
    return None if strategy.numbers is None else strategy
