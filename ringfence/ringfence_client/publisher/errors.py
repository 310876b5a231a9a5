"""Errors of the publisher: each has one sentence that says what to do next.

`AwayError` is transient and retried. A `StoppedError` is final for this publisher, since going on
would lose or duplicate messages. The others are raised by a call.
"""


class PublisherError(Exception):
    """Base class of all errors of a publisher."""


class StoreError(PublisherError):
    """The store cannot be used: disk error, unknown format, or another publisher's store."""


class StoreHeldError(StoreError):
    """Another process, or another publisher in this process, has the store open."""


class StoreFullError(StoreError):
    """The store or its disk is full; no message was stored. Try again after acknowledgements."""


class MessageRefusedError(PublisherError, ValueError):
    """A message can never be delivered: too large, or it sets a header of the publisher."""


class AwayError(PublisherError):
    """Service or broker cannot be reached now; `retry_after_s` is the wait they ask for, or 0."""

    def __init__(self, sentence: str, retry_after_s: float = 0) -> None:
        super().__init__(sentence)
        self.retry_after_s = retry_after_s


class StoppedError(PublisherError):
    """The publisher has stopped for good; its messages stay in the store."""


class PublishGapError(StoppedError):
    """The service no longer knows numbers that it acknowledged, and the store has deleted them."""


class NameInUseError(StoppedError):
    """Another user holds the publisher's name, or another publisher has taken it over."""


class RefusedError(StoppedError):
    """Kafka or the service has refused a request that a retry cannot fix."""


class ClosedError(PublisherError):
    """The publisher is closed."""
