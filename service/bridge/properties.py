"""Kafka properties of the two clusters: what the bridge keeps to itself, and why.

It owns whatever at-least-once, the order of messages or its group rest on. All else is passed on.
"""

from collections.abc import Mapping
from typing import Final

from service.environment import OURS
from service.errors import Problem
from service.kafka_properties import (
    OF_OFFSETS,
    OF_READERS,
    Elsewhere,
    KafkaSettings,
    Owned,
    no_servers,
    read_properties,
)
from service.librdkafka import CONSUMER_ONLY, PRODUCER_ONLY
from service.reading import Given

_REMOVE = "remove it"
_OFFSETS = "an offset is committed when its messages are delivered, and not before"
_GROUP = "partitions move by the rules of the bridge"
_ACKS = "what not every replica has acknowledged may be lost"
_TWICE = "without it the client itself doubles and reorders messages"
_TIMEOUT = "a message that is given up would leave a gap before the next ones"
_BATCH = "a whole batch must fit the queue of the producer"
_TRANSACTION = "the bridge delivers at least once and opens no transactions"
_NO_TOPIC = ("a mistyped topic must not come into being", "create the topic yourself")

_OWNED_OF_SOURCE: Final[Owned] = {
    **dict.fromkeys(OF_OFFSETS, (_OFFSETS, _REMOVE)),
    "auto.offset.reset": (
        "a lost offset must not skip messages silently",
        "remove it: the bridge begins with the earliest message, and a lost offset ends it",
    ),
    **OF_READERS,
    "enable.partition.eof": ("the bridge reads without end markers", _REMOVE),
    "group.id": ("the bridge names its group", "use bridge.group_id"),
    "group.instance.id": (_GROUP, _REMOVE),
    "group.protocol": (_GROUP, _REMOVE),
    "group.protocol.type": (_GROUP, _REMOVE),
    "group.remote.assignor": (_GROUP, _REMOVE),
    "partition.assignment.strategy": (_GROUP, _REMOVE),
    "session.timeout.ms": ("the bridge sets it", "use bridge.session_timeout_ms"),
    "heartbeat.interval.ms": ("it follows from the session", "use bridge.session_timeout_ms"),
    "allow.auto.create.topics": _NO_TOPIC,
    "topic.blacklist": ("it would hide topics in silence", "narrow bridge.topics"),
}

_OWNED_OF_TARGET: Final[Owned] = {
    "acks": (_ACKS, _REMOVE),
    "request.required.acks": (_ACKS, _REMOVE),
    "enable.idempotence": (_TWICE, _REMOVE),
    "enable.gapless.guarantee": (_TWICE, _REMOVE),
    "queuing.strategy": ("the order of messages rests on it", _REMOVE),
    "message.timeout.ms": (_TIMEOUT, _REMOVE),
    "delivery.timeout.ms": (_TIMEOUT, _REMOVE),
    "retries": (_TIMEOUT, _REMOVE),
    "message.send.max.retries": (_TIMEOUT, _REMOVE),
    "transactional.id": (_TRANSACTION, _REMOVE),
    "transaction.timeout.ms": (_TRANSACTION, _REMOVE),
    "delivery.report.only.error": ("failed deliveries are counted by it", _REMOVE),
    "partitioner": ("the bridge chooses the partition", "use bridge.keep_partition"),
    "batch.size": (_BATCH, _REMOVE),
    "batch.num.messages": ("a refused message is found by it", _REMOVE),
    "queue.buffering.max.kbytes": (_BATCH, _REMOVE),
    "queue.buffering.max.messages": (_BATCH, _REMOVE),
    "message.max.bytes": ("the limit of each topic decides", "set max.message.bytes of the topics"),
    "allow.auto.create.topics": _NO_TOPIC,
}

_OWNED: Final[Mapping[str, Owned]] = {"source": _OWNED_OF_SOURCE, "target": _OWNED_OF_TARGET}
_ELSEWHERE: Final[Mapping[str, Elsewhere]] = {
    "source": dict.fromkeys(PRODUCER_ONLY, "[bridge.target]"),
    "target": dict.fromkeys(CONSUMER_ONLY, "[bridge.source]"),
}


def read_cluster(
    cluster: str, given: Mapping[str, Given], problems: list[Problem]
) -> KafkaSettings:
    """Read `[bridge.source]` or `[bridge.target]`; each refused property adds a problem."""
    accepted = read_properties(given, _OWNED[cluster], _ELSEWHERE[cluster], problems)
    table, variable = f"bridge.{cluster}", f"{OURS}BRIDGE__{cluster.upper()}__BOOTSTRAP_SERVERS"
    problems.extend(no_servers(accepted, table, variable))
    return KafkaSettings(
        common={n: v for n, v in accepted.items() if n not in CONSUMER_ONLY | PRODUCER_ONLY},
        consumer={n: v for n, v in accepted.items() if n in CONSUMER_ONLY},
        producer={n: v for n, v in accepted.items() if n in PRODUCER_ONLY},
        admin={},
    )
