"""Publisher numbers: checks whether a sequence number can be set, and in which partition."""

from collections.abc import Collection, Iterable

from ringfence_service.config.addresses import AddressBook, settings_of
from ringfence_service.kafka.topics import by_address
from ringfence_service.queries.errors import NotPossible
from ringfence_service.queries.publishers import PublisherProgress, SetSequence
from ringfence_service.queries.status import ServiceStatus
from ringfence_state.model import PartitionId


def check_change(change: SetSequence, book: AddressBook) -> None:
    """Raise NotPossible if the address has no such number."""
    settings = settings_of(book, change.address)
    numbers = settings.remembered_by.numbers
    if numbers is None:
        sentence = (
            f"The address {change.address} has strategy {settings.strategy}, which has no sequence "
            "numbers; set sequence, ordered or audit for it."
        )
        raise NotPossible(sentence)
    if numbers.has_streams != (change.stream is not None):
        raise NotPossible("Give a stream with the strategy ordered, and only with it.")
    if change.missing and not numbers.has_missing:
        raise NotPossible("A number covers all lower ones; only audit accepts missing numbers.")


def written_partition(
    change: SetSequence, positions: Iterable[PublisherProgress], deciding: Collection[PartitionId]
) -> PartitionId:
    """Return the input partition that a publisher writes to; NotPossible if it is not known.

    `positions` are the publisher's known numbers, `deciding` the input partitions decided here.
    """
    if change.topic is not None and change.partition is not None:
        return PartitionId(change.topic, change.partition)
    written = {
        PartitionId(position.topic, position.partition)
        for position in positions
        if position.address == change.address
    }
    found = list(written or deciding)
    if len(found) != 1:
        sentence = (
            f"The partition that {change.publisher} writes to is not known here; "
            "name topic and partition, and ask the instance that owns it."
        )
        raise NotPossible(sentence)
    return found[0]


def deciding_inputs(statuses: Iterable[ServiceStatus], group_id: str) -> list[PartitionId]:
    """Return the input partitions with a changelog, of these workers or instances."""
    return [
        each.source
        for status in statuses
        for each in status.partitions
        if each.changelog_next_offset is not None and each.topic != by_address(group_id)
    ]
