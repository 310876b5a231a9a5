"""Publisher: a Kafka producer whose resends never become duplicates."""

from ringfence_client.publisher.errors import (
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
from ringfence_client.publisher.message import Message
from ringfence_client.publisher.publisher import Publisher

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
