"""Trickle: records of many schemas at a steady rate, and what has become of each of them.

A record names one of the schemas that were new last, and now and then one that was not asked for
before. What always holds, whatever trouble the registry is in: each record has one fate, and is
accepted if the id of its schema is even, since only odd ones are refused one by one.
"""

import random
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Final

from confluent_kafka import Message, Producer

from bench.encoded import encoded, packed, with_schema
from bench.workload import Client
from ringfence_client.headers import DeadLetter, Reason

PER_S: Final = 200
NEW_EVERY: Final = 100
"""One record of so many is the first one of its schema."""
_RECENT: Final = 50
"""The others have one of so many schemas that were new last."""
_TICK_S: Final = 0.02
_FLUSH_S: Final = 30.0
_REST: Final = packed("avro", b'{"note":"a record of the first route"}')
_ACCEPTED: Final = "accepted"


class Trickle:
    """The records of one topic, numbered in the order in which they are sent."""

    def __init__(self, client: Client, topic: str, partitions: int) -> None:
        self._client, self._topic, self._partitions = client, topic, partitions
        self._chance = random.Random(1)
        self.schemas: list[int] = []
        """By record that was sent the id of its schema."""

    @contextmanager
    def running(self) -> Iterator[None]:
        """Send while the block runs; after it, all records are delivered."""
        is_over = threading.Event()
        with ThreadPoolExecutor(1) as pool:
            sending = pool.submit(self._send, is_over)
            try:
                yield
            finally:
                is_over.set()
            sending.result()

    def _send(self, is_over: threading.Event) -> None:
        producer = Producer({**self._client, "linger.ms": 5, "enable.idempotence": True})
        began_s = time.monotonic()
        while not is_over.wait(_TICK_S):
            while len(self.schemas) < (time.monotonic() - began_s) * PER_S:
                self._send_one(producer)
            producer.poll(0)
        left = producer.flush(_FLUSH_S)
        if left:
            raise TimeoutError(f"the broker did not take {left} records of the trickle in time")

    def _send_one(self, producer: Producer) -> None:
        number = len(self.schemas)
        newest = number // NEW_EVERY + 1
        age = self._chance.randrange(min(newest, _RECENT)) if number % NEW_EVERY else 0
        schema = newest - age
        producer.produce(
            self._topic,
            value_of(number, schema),
            key=b"%d" % number,
            partition=self._chance.randrange(self._partitions),
        )
        self.schemas.append(schema)


def fates(schemas: Sequence[int], decided: Iterable[Message]) -> Mapping[str, int]:
    """Return how many records of these schemas were accepted, and dead-lettered by reason.

    RuntimeError if one is lost, doubled or changed, or has a fate that it may not have.
    """
    seen, found, wrong = Counter[int](), Counter[str](), list[str]()
    for message in decided:
        number = int(message.key() or b"")
        schema = schemas[number]
        reason = dict(message.headers() or ()).get(DeadLetter.REASON)
        fate = reason.decode() if isinstance(reason, bytes) else _ACCEPTED
        seen[number] += 1
        found[fate] += 1
        if message.value() != value_of(number, schema):
            wrong.append(f"record {number} is changed")
        if fate != _ACCEPTED and (schema % 2 == 0 or fate != Reason.MISSING_ID):
            wrong.append(f"record {number}, of schema {schema}, is {fate}")
    for number in range(len(schemas)):
        if seen[number] != 1:
            wrong.append(f"record {number} came {seen[number]} times")
    if wrong:
        raise RuntimeError(f"{len(wrong):,} wrong fates: {'; '.join(wrong[:10])}")
    return found


def value_of(number: int, schema: int) -> bytes:
    """Return the payload of a record."""
    return with_schema(schema, encoded("avro", b"%036d" % number, _REST))
