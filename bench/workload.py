"""Workload: the input of every arm of a comparison, generated from a seed.

An id is a textual UUID, the key is the id, and a copy has the id and the key of a recently accepted
record of the same partition, so that every arm has the same duplicates to find.
"""

import random
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final, Literal, NamedTuple

from confluent_kafka import Producer

from bench.encoded import Encoding, encoded, packed, with_schema
from ringfence_client.headers import DUPLICATE_ID

ADDRESS_HEADER: Final = "address"
_PAYLOADS: Final = 2_000
_FLUSH_TIMEOUT_S: Final = 120
FOR_BULK: Final = {"linger.ms": 50, "queue.buffering.max.messages": 1_000_000}
_OPEN_MS_MAX: Final = 900_000
"""The broker's default of `transaction.max.timeout.ms`."""

LARGE_BYTES: Final = 70_000
"""Size of a large record's value; an output that takes no more than this refuses it as it is."""
_CUT_BYTES: Final = 20
"""Of an encoded value: within the id."""
_UNKNOWN_SCHEMAS: Final = 1_000
_UNKNOWN_NAMES: Final = 7
"""A producer of another registry has some schemas, and no other schema for each record."""
_AHEAD_MS: Final = 10 * 365 * 24 * 60 * 60 * 1000

Odd = Literal["", "anonymous", "keyless", "ahead", "large", "padded", "cut", "schemaless"]
"""How some records differ from the others: no id in a header, no key, a timestamp to come, a large
value that cannot be compressed, one that can, an encoded value that ends too early, and one that
names a schema that the registry does not have."""

Client = Mapping[str, str | int | float | bool]
"""The properties with which a Kafka client connects."""


class Workload(NamedTuple):
    """The shape of an input topic; `distance` is in accepted ids of one partition."""

    records: int = 2_000_000
    partitions: int = 4
    value_bytes: int = 200
    duplicate_share: float = 0.1
    distance: int = 1_000
    addresses: int = 1
    seed: int = 1
    seen_first: int = 0
    """Number of addresses that have one record each, before all other records."""
    id_in_value: bool = False
    """Whether the value has the id too, as its first member."""
    encoding: Encoding = "json"
    """How such a value is written."""
    odd: Odd = ""
    odd_every: int = 1
    """How some records of each partition differ: the first of so many."""

    @property
    def has_addresses(self) -> bool:
        """Whether records have an address header."""
        return self.addresses > 1 or self.seen_first > 0

    def is_odd(self, number: int) -> bool:
        """Whether the record of this number differs."""
        return bool(self.odd) and number // self.partitions % self.odd_every == 0


class Message(NamedTuple):
    """One record of the workload."""

    partition: int
    identifier: bytes
    value: bytes
    address: bytes


def messages(workload: Workload) -> Iterator[Message]:
    """Yield the records in the order of sending."""
    chance = random.Random(workload.seed)
    payloads = [_payload(chance, workload.value_bytes) for _ in range(_PAYLOADS)]
    rest = [packed(workload.encoding, payload) for payload in payloads]
    addresses = [f"bench.{number}".encode() for number in range(workload.addresses)]
    recent: list[deque[tuple[bytes, bytes]]] = [
        deque(maxlen=workload.distance) for _ in range(workload.partitions)
    ]
    for number in range(workload.records):
        partition = number % workload.partitions
        known = recent[partition]
        is_first = number < workload.seen_first
        if known and not is_first and chance.random() < workload.duplicate_share:
            identifier, address = known[chance.randrange(len(known))]
        else:
            identifier = _uuid(chance)
            address = addresses[chance.randrange(len(addresses))]
            if is_first:
                address = b"seen.%d" % number
            known.append((identifier, address))
        value = payloads[number % _PAYLOADS]
        if workload.id_in_value:
            value = encoded(workload.encoding, identifier, rest[number % _PAYLOADS])
        yield Message(partition, identifier, value, address)


def write(workload: Workload, client: Client, topic: str) -> None:
    """Send the whole workload to an empty topic."""
    _send(Producer({**client, **FOR_BULK}), workload, topic)


@contextmanager
def unseen(workload: Workload, client: Client, topic: str) -> Iterator[Callable[[], None]]:
    """Send the workload in one transaction; yield its commit, which makes all of it visible."""
    owned = {"transactional.id": topic, "transaction.timeout.ms": _OPEN_MS_MAX}
    producer = Producer({**client, **FOR_BULK, **owned})
    producer.init_transactions(_FLUSH_TIMEOUT_S)
    producer.begin_transaction()
    _send(producer, workload, topic)
    yield lambda: producer.commit_transaction(_FLUSH_TIMEOUT_S)


def _send(producer: Producer, workload: Workload, topic: str) -> None:
    produce(producer, workload, topic, messages(workload))
    left = producer.flush(_FLUSH_TIMEOUT_S)
    if left:
        raise TimeoutError(f"the broker did not take {left} records of the workload in time")


def produce(producer: Producer, workload: Workload, topic: str, chosen: Iterable[Message]) -> None:
    """Send messages of the workload; they are delivered with `flush`."""
    ahead_ms = int(time.time() * 1000) + _AHEAD_MS
    for number, (partition, identifier, value, address) in enumerate(chosen):
        odd = workload.odd if workload.is_odd(number) else ""
        key = None if odd == "keyless" else identifier
        timestamp_ms = ahead_ms if odd == "ahead" else 0
        sent = sent_as(odd, number, value)
        headers: list[tuple[str, str | bytes | None]] = []
        if odd != "anonymous":
            headers.append((DUPLICATE_ID, identifier))
        if workload.has_addresses:
            headers.append((ADDRESS_HEADER, address))
        while True:
            try:
                producer.produce(
                    topic, sent, key, partition, timestamp=timestamp_ms, headers=headers
                )
            except BufferError:
                producer.poll(0.05)
            else:
                break


def sent_as(odd: Odd, number: int, value: bytes) -> bytes:
    """Return the value of a record of this number that differs so from the others."""
    match odd:
        case "large":
            return random.Random(number).randbytes(LARGE_BYTES)
        case "padded":
            return value.ljust(LARGE_BYTES)
        case "cut":
            return value[:_CUT_BYTES]
        case "schemaless":
            return with_schema(_UNKNOWN_SCHEMAS + number % _UNKNOWN_NAMES, value)
        case _:
            return value


def _payload(chance: random.Random, size: int) -> bytes:
    """Return JSON of this size that compresses about as well as real records do."""
    words = [f'"field{chance.randrange(40)}":"{chance.getrandbits(40):x}"' for _ in range(size)]
    text = "{" + ",".join(words)
    whole = text[: text.rindex(",", 0, size - 10)]
    return f'{whole},"f":"'.ljust(size - 2, "0").encode() + b'"}'


def _uuid(chance: random.Random) -> bytes:
    digits = f"{chance.getrandbits(128):032x}"
    text = f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"
    return text.encode()
