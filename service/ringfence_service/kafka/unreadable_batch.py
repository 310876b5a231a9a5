"""Unreadable batch: what the client says of a batch in a log that it does not unpack.

If a zstd batch unpacks to more than `receive.message.max.bytes`, librdkafka never passes it, and
reports that twice a second. Its text has the first offset and the bytes in the log.
"""

import re
from typing import Final, NamedTuple, Self

from confluent_kafka import KafkaError

from ringfence_service.config.kafka_properties import RECEIVE
from ringfence_state.model import PartitionId

_PLACE: Final = re.compile(r"message at (\d+) of (\d+) bytes")


class UnreadableBatchFault(NamedTuple):
    """A batch that the client does not unpack."""

    first: int
    """Its first offset."""
    log_bytes: int | None
    """Its size in the log; None if the client does not report it."""

    @classmethod
    def of(cls, error: KafkaError, next_offset: int) -> Self:
        """Read an error `UNREADABLE_BATCH`; `next_offset` stands in if its text names none."""
        found = _PLACE.search(error.str())
        return cls(next_offset, None) if found is None else cls(int(found[1]), int(found[2]))

    def sentence(self, log: PartitionId, table: str = "kafka.consumer") -> str:
        """Return what its log waits for, and what to do in this table of the configuration."""
        size = "" if self.log_bytes is None else f" ({self.log_bytes} bytes in the log)"
        return (
            f"{log.topic}-{log.partition} to be readable: the batch at offset {self.first}{size} "
            f'unpacks to more than this client takes; raise "{RECEIVE}" in [{table}] and restart'
        )
