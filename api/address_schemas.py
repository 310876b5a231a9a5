"""Schemas of lists of addresses. See `schemas.py`."""

from datetime import datetime
from typing import Self

from pydantic import Field

from api.schemas import Document, Held, maybe_time
from service.queries.addresses import AddressRow


class AddressItem(Document):
    """An address in a list: what is known of it without loading it into memory."""

    address: str = Field(description="The address.")
    strategy: str = Field(description="How duplicates are recognised: `ring`, `window` and so on.")
    ids_held: int | None = Field(
        description="Or publishers. Null where only loading it into memory would tell."
    )
    capacity: int = Field(description="Of all partitions that hold something of it.")
    fill: float | None = Field(description="From 0 to 1, of the fullest partition.")
    bytes: int = Field(description="Of memory; 0 where it is not in memory.")
    horizon_ms: int | None = Field(
        description="How far back it remembers, where it remembers least; null until it forgot."
    )
    oldest_time: datetime | None = Field(
        description="Time of the oldest id held; null without one."
    )
    newest_time: datetime | None = Field(
        description="Time of the newest id held; null without one."
    )
    accepted: int = Field(description="Records since the time of `counted_since`.")
    duplicates: int = Field(description="Duplicates since the time of `counted_since`.")
    partitions: int = Field(description="How many partitions hold something of it.")

    @classmethod
    def of(cls, row: AddressRow) -> Self:
        """Describe it."""
        held = Held.of(row.partitions)
        return cls(
            address=row.address,
            strategy=row.strategy,
            ids_held=held.ids_held,
            capacity=held.capacity,
            fill=held.fill,
            bytes=held.bytes,
            horizon_ms=held.horizon_ms,
            oldest_time=maybe_time(held.oldest_time_ms),
            newest_time=maybe_time(held.newest_time_ms),
            accepted=row.accepted,
            duplicates=row.duplicates,
            partitions=len(row.partitions),
        )


class Addresses(Document):
    """A page of addresses."""

    addresses: tuple[AddressItem, ...] = Field(description="In the order that was asked for.")
    as_of: datetime = Field(
        description="When it was asked which addresses there are and in which order they stand:"
        " just now where they are few, up to a minute ago where they are a million or more."
        " What each one holds is read now."
    )
    counted_since: datetime | None = Field(
        description="When the last of the processes started that count."
    )
    next_page_token: str | None = Field(description="Null at the end.")
    complete: bool = Field(description="False: other instances may know more.")
