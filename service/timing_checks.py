"""Time limits that must fit each other: ours, and those of Kafka properties beside them."""

from collections.abc import Iterator
from typing import Final

from service.errors import Problem
from service.kafka_properties import KafkaSettings, Property
from service.sections import ServiceSettings

COMMIT_GRACE_MS: Final = 10_000
"""How long past the transaction timeout a commit of unknown outcome is asked for again."""

_POLL_INTERVAL_MS: Final = 300_000  # librdkafka's default for max.poll.interval.ms
_SOCKET_SLACK_MS: Final = 100


def timing_problems(kafka: KafkaSettings, service: ServiceSettings) -> Iterator[Problem]:
    """Yield each pair of limits that cannot hold together."""
    consumer = {**kafka.common, **kafka.consumer}
    producer = {**kafka.common, **kafka.producer}
    session_ms, transaction_ms = service.session_timeout_ms, service.transaction_timeout_ms
    poll_ms = _milliseconds(consumer.get("max.poll.interval.ms"), _POLL_INTERVAL_MS)
    if poll_ms < session_ms:
        what = f"max.poll.interval.ms is {poll_ms}, below service.session_timeout_ms ({session_ms})"
        yield Problem(what, "raise the one or lower the other")
    pause_ms = transaction_ms + COMMIT_GRACE_MS + service.batch_wait_ms
    if poll_ms <= pause_ms:
        what = (
            f"max.poll.interval.ms is {poll_ms}, but a batch whose commit is repeated may take "
            f"{pause_ms} ms (service.transaction_timeout_ms is {transaction_ms})"
        )
        yield Problem(what, f"write more than {pause_ms} or lower the transaction timeout")
    if service.batch_wait_ms >= transaction_ms:
        what = (
            f"service.batch_wait_ms is {service.batch_wait_ms}, and a transaction may not take "
            f"longer than service.transaction_timeout_ms ({transaction_ms})"
        )
        yield Problem(what, f"write less than {transaction_ms}, or raise the transaction timeout")
    socket_ms = _milliseconds(producer.get("socket.timeout.ms"), 0)
    if socket_ms > transaction_ms + _SOCKET_SLACK_MS:
        what = (
            f"socket.timeout.ms is {socket_ms}, longer than a transaction may take "
            f"(service.transaction_timeout_ms is {transaction_ms})"
        )
        mend = f"write at most {transaction_ms}, or set it in [kafka.consumer] only"
        yield Problem(what, mend)


def _milliseconds(value: Property | None, default_ms: int) -> int:
    """Read a property as a number; what is none is left for librdkafka to refuse."""
    text = str(value)
    return int(text) if text.isdecimal() else default_ms
