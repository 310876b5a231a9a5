"""Topics: created, widened and deleted on a broker that may stand still for a while."""

import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic  # where the types are exported


def create_topic(
    client: Mapping[str, str],
    topic: str,
    partitions: int = 1,
    config: dict[str, str] | None = None,
    replicas: int = 1,
) -> None:
    # Its own name: futures never resolve once their client is collected.
    admin = AdminClient(dict(client))
    wanted = NewTopic(
        topic, num_partitions=partitions, replication_factor=replicas, config=config or {}
    )
    done(lambda: admin.create_topics([wanted], operation_timeout=30)[topic])


def delete_topic(client: Mapping[str, str], topic: str) -> None:
    """Delete a topic.

    A broker asks the controller, and asks again if the first answer is lost. The controller then
    answers that it does not know the topic, since the first request deleted it.
    """
    admin = AdminClient(dict(client))
    try:
        done(lambda: admin.delete_topics([topic], operation_timeout=30)[topic])
    except KafkaException as error:
        if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
            raise


_NOT_YET = {
    KafkaError.INVALID_REPLICATION_FACTOR,  # it stood still, and is fenced until it is heard of
    KafkaError.REQUEST_TIMED_OUT,
    KafkaError._TIMED_OUT,
}
_ALREADY = {KafkaError.TOPIC_ALREADY_EXISTS, KafkaError.INVALID_PARTITIONS}


def done(ask: Callable[[], "Future[None]"], limit_s: float = 120) -> None:
    """Have a broker change topics, and ask again one whose disk or processor stood still."""
    deadline, is_first = time.monotonic() + limit_s, True
    while True:
        try:
            ask().result(timeout=limit_s)
        except KafkaException as error:
            code = error.args[0].code()
            if not is_first and code in _ALREADY:
                return
            if code not in _NOT_YET or time.monotonic() > deadline:
                raise
            is_first = False
            time.sleep(0.2)  # noqa: TID251 - no sooner is it asked again
        else:
            return
