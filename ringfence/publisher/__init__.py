"""Publisher: a Kafka producer whose resends never become duplicates."""

from ringfence.publisher.errors import (
    AwayError,
    ClosedError,
    MessageRefusedError,
    NameInUseError,
    PublisherError,
    PublishGapError,
    RefusedError,
    StoppedError,
    StoreError,
    StoreFullError,
    StoreHeldError,
)
from ringfence.publisher.message import Message
from ringfence.publisher.publisher import Publisher

__all__ = [
    "AwayError",
    "ClosedError",
    "Message",
    "MessageRefusedError",
    "NameInUseError",
    "PublishGapError",
    "Publisher",
    "PublisherError",
    "RefusedError",
    "StoppedError",
    "StoreError",
    "StoreFullError",
    "StoreHeldError",
]
