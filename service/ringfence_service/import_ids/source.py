"""ID source: the ids of the records of a live topic, as their route would have read them.

The records are the originals: a later duplicate refers to their position. Nothing is decided here.
If an id occurs twice the first record counts, as it would for the service.
"""

from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Message

from ringfence_client.headers import Reason, id_text
from ringfence_service.config.addresses import BRIDGE, AddressBook, settings_of
from ringfence_service.dedup.claim import claim_of, identifier_of, is_stamp
from ringfence_service.dedup.record import RejectedError
from ringfence_service.dedup.route import InputPartition, InputRoute
from ringfence_service.kafka.io import read_headers
from ringfence_service.kafka.model import UNREADABLE, UNREADABLE_CAUSE
from ringfence_state.model import PartitionId

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class IdLine(NamedTuple):
    """An id to import into an address, as the API's JSON line."""

    address: str
    row: dict[str, Any]


class IdSource:
    """Reads records like those of one input; counts the records that are left out."""

    def __init__(self, route: InputRoute, book: AddressBook, address: str | None = None) -> None:
        """`address` replaces the address that the route would give to each record."""
        self._input_partition = InputPartition(PartitionId(route.topic, 0), route, 0)
        self._book = book
        self._address = address
        self._identifier = identifier_of(route.settings.id)
        self.left_out = Counter[str]()
        """Number of records that are not imported, by reason."""

    def line(self, message: Message) -> IdLine | None:
        """Return the id of a record to import; None if the record is left out."""
        try:
            return self._line(message)
        except RejectedError as error:
            self.left_out[error.why.cause] += 1
            return None

    def _line(self, message: Message) -> IdLine | None:
        (headers,) = read_headers([message])
        if headers is UNREADABLE:
            raise RejectedError(Reason.UNREADABLE_HEADERS, UNREADABLE_CAUSE)
        address = self._address or self._input_partition.address(message, headers or ())
        settings = settings_of(self._book, address)
        if not settings.remembered_by.holds_ids or not settings.remembers:
            self.left_out[
                f"their address imports no ids (strategy {settings.strategy}, or size 0)"
            ] += 1
            return None
        names = settings.remembered_by.publisher_headers
        claim = claim_of(self._identifier, message, headers or (), names)
        if claim.identifier is None:
            self.left_out["they have no id"] += 1
            return None
        if claim.publisher is not None:
            self.left_out["their window keeps ids of each publisher, which are not imported"] += 1
            return None
        is_stamped = self._identifier is None and is_stamp(claim.identifier)
        return IdLine(BRIDGE + address if is_stamped else address, _row(message, claim.identifier))


def _row(message: Message, identifier: bytes) -> dict[str, Any]:
    kind, time_ms = message.timestamp()
    is_known = kind != TIMESTAMP_NOT_AVAILABLE and time_ms >= 0
    return {
        "id": id_text(identifier),
        "topic": message.topic(),
        "partition": message.partition(),
        "offset": message.offset(),
        "time": _written(time_ms) if is_known else None,
    }


def _written(time_ms: int) -> str:
    return (_EPOCH + timedelta(milliseconds=time_ms)).isoformat()
