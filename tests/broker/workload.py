"""What is sent, and what must become of it by the dumb ring model.

Ids come again at random distances around the capacity of the ring, so that some repeats are
duplicates and some were just forgotten. Invariant: `judged` knows nothing of the service, only
the input log, the ring model and the names of the wire.
"""

import random
from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

from confluent_kafka import Message

from ringfence_client.headers import DUPLICATE_ID
from tests.oracle.model import DequeRing

PARTITIONS = 4
CAPACITY = 50
ADDRESSES = (b"a", b"b.c", b"d")
REPEATS = 0.15
MARK = "mark"
"""A header that no two records share."""
NOTES = (("note", None), ("note", b""), ("note", b"\x00\xff"))
FIRST_MS = 1_700_000_000_000

Headers = tuple[tuple[str, bytes | None], ...]
Place = tuple[int, bytes]
"""A partition and an address: what one ring remembers."""


class Record(NamedTuple):
    """What must arrive as it was sent."""

    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp_ms: int


class Seen(NamedTuple):
    """A record where it lies."""

    partition: int
    offset: int
    record: Record


class Letter(NamedTuple):
    """A dead letter, as far as the model foretells it."""

    key: bytes | None
    value: bytes | None
    headers: Headers
    reason: bytes
    topic: bytes
    partition: bytes
    offset: bytes
    original: bytes


class Fates(NamedTuple):
    """What the model says of an input log."""

    outputs: dict[int, list[Record]]
    letters: dict[int, list[Letter]]
    rings: dict[Place, list[bytes]]


def records(count: int, seed: int, *, is_scattered: bool = False) -> list[tuple[int, Record]]:
    """Records with their partitions; an id comes again by its own, or scattered by any of them."""
    chance = random.Random(seed)
    history: dict[object, list[bytes]] = defaultdict(list)
    made = []
    for number in range(count):
        place = (chance.randrange(PARTITIONS), chance.choice(ADDRESSES))
        mark = (MARK, b"%d" % number)
        headers: list[tuple[str, bytes | None]] = [("addr", place[1]), mark, *NOTES]
        if chance.random() < 0.97:
            past = history[place[1] if is_scattered else place]
            identifier = _identifier(chance, past, number)
            headers.insert(chance.randrange(len(headers) + 1), (DUPLICATE_ID, identifier))
        key = chance.choice([None, b"", b"k%d" % number])
        value = chance.choice([None, b"", b"v%d" % number, chance.randbytes(200)])
        made.append((place[0], Record(key, value, tuple(headers), FIRST_MS + number)))
    return made


def _identifier(chance: random.Random, past: list[bytes], number: int) -> bytes:
    identifier = b"id-%d" % number
    if past and chance.random() < REPEATS:
        identifier = past[-min(len(past), max(1, round(chance.gauss(CAPACITY, CAPACITY / 3))))]
    past.append(identifier)
    return identifier


def seen(message: Message) -> Seen:
    """A message as a value; its headers are asked once."""
    headers = tuple((header[0], _raw(header[1])) for header in message.headers() or ())
    record = Record(_raw(message.key()), _raw(message.value()), headers, message.timestamp()[1])
    return Seen(message.partition() or 0, message.offset() or 0, record)


def _raw(value: str | bytes | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value


def judged(topic: str, inputs: Iterable[Seen]) -> Fates:
    """Replay an input log through one model ring for each partition and address."""
    return judged_where(topic, ((each.partition, each) for each in inputs))


def judged_where(topic: str, decided: Iterable[tuple[int, Seen]]) -> Fates:
    """The same for records in the order of their decisions, each with what decides it."""
    rings: dict[Place, DequeRing] = defaultdict(lambda: DequeRing(CAPACITY))
    origins: dict[tuple[Place, bytes], str] = {}
    fates = Fates(defaultdict(list), defaultdict(list), {})
    for deciding, each in decided:
        headers = dict(each.record.headers)
        place = (deciding, headers["addr"] or b"")
        identifier = headers.get(DUPLICATE_ID)
        if identifier is not None and rings[place].judge(identifier):
            letter = _letter(topic, each, origins[place, identifier])
            fates.letters[each.partition].append(letter)
            continue
        fates.outputs[each.partition].append(each.record)
        if identifier is not None:
            rings[place].remember(identifier)
            origins[place, identifier] = f"{topic}-{each.partition}@{each.offset}"
    fates.rings.update({place: list(ring._ids) for place, ring in rings.items() if len(ring)})
    return fates


def _letter(topic: str, each: Seen, original: str) -> Letter:
    key, value, headers, _ = each.record
    place = (topic.encode(), b"%d" % each.partition, b"%d" % each.offset)
    return Letter(key, value, headers, b"duplicate", *place, original.encode())
