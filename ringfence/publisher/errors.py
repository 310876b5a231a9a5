"""Publisher errors: one sentence each, with what to do next.

`AwayError` passes by itself and is retried; a `StoppedError` is final for this publisher, since
going on would lose or double messages. The others are raised by a call.
"""


class PublisherError(Exception):
    """Anything that a publisher complains of."""


class StoreError(PublisherError):
    """The store cannot be used: its disk, its format, or it belongs to another publisher."""


class StoreHeldError(StoreError):
    """Another live process, or another publisher of this one, has the store open."""


class StoreFullError(StoreError):
    """The store holds as much as it may; nothing was taken. Try again when some is acknowledged."""


class MessageRefusedError(PublisherError, ValueError):
    """A message that could never be delivered: too large, or with a header of ours."""


class AwayError(PublisherError):
    """Service or broker cannot be reached, or not yet; `retry_after_s` is their own wish, or 0."""

    def __init__(self, sentence: str, retry_after_s: float = 0) -> None:
        super().__init__(sentence)
        self.retry_after_s = retry_after_s


class StoppedError(PublisherError):
    """The publisher has stopped for good; what is in the store stays there."""


class PublishGapError(StoppedError):
    """The service has forgotten numbers that it had acknowledged: the store no longer has them."""


class NameInUseError(StoppedError):
    """Another user holds the name, or another publisher has taken it over."""


class RefusedError(StoppedError):
    """Kafka or the service refuses what no second attempt would mend."""


class ClosedError(PublisherError):
    """The publisher was closed."""
