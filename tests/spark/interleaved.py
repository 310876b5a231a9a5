"""One address by many partitions, read in an order that nobody knows afterwards."""

import random
from collections.abc import Iterator
from typing import NamedTuple

from tests.oracle.model import DequeRing
from tests.spark.ledger import START_MS, Entry, Ledger, Row

PARTITIONS = 4
RECORDS = 1_500
REPEATS = 0.2


class Place(NamedTuple):
    partition: int
    offset: int


def sent(topic: str, ring: int, chance: random.Random) -> Ledger:
    """Ids that come again at distances around the ring, on any partition."""
    ledger = Ledger(topic, records=0, ring=ring, partitions=PARTITIONS, seed=0)
    names: list[str] = []
    for number in range(RECORDS):
        back = max(1, round(chance.gauss(ledger.ring / 2, ledger.ring / 3)))
        again = number > 0 and chance.random() < REPEATS
        names.append(names[-min(back, number)] if again else f"id-{number}")
        headers: list[tuple[str, bytes | None]] = [("_DUPL_ID", names[-1].encode())]
        row = Row(START_MS + number, b"%d" % number, b"v", headers)
        ledger.lanes[chance.randrange(PARTITIONS)].inputs.append(row)
    return ledger


def as_read(ledger: Ledger, chance: random.Random, *, at_once_max: int) -> Iterator[Place]:
    """Partitions in turns that chance chooses, so many records of one at once at most."""
    read = [0] * PARTITIONS
    left = {number for number in range(PARTITIONS) if ledger.lanes[number].inputs}
    while left:
        number = chance.choice(sorted(left))
        for _ in range(chance.randint(1, at_once_max)):
            if read[number] == len(ledger.lanes[number].inputs):
                left.discard(number)
                break
            yield Place(number, read[number])
            read[number] += 1


def decided(ledger: Ledger, order: Iterator[Place], faulty: int = 0) -> set[str]:
    """What a service makes of them; tells so many duplicates of the last few that it let out."""
    ring, let_out = DequeRing(ledger.ring), set[str]()
    origins: dict[bytes, str] = {}
    for count, (number, offset) in enumerate(order):
        lane, where = ledger.lanes[number], f"{ledger.topic}-{number}@{offset}"
        row = lane.inputs[offset]
        name = row.headers[0][1] or b""
        if ring.judge(name) and (name not in list(origins)[-10:] or len(let_out) == faulty):
            letter = ledger.letter(number, offset, row, name.decode(), origins[name])
            at_ms = START_MS + RECORDS + count // 10
            lane.letters.append(Entry(offset, letter._replace(time_ms=at_ms)))
            continue
        if ring.judge(name):
            let_out.add(where)
        ring.remember(name)
        origins.pop(name, None)
        origins[name] = where
        lane.outputs.append(Entry(offset, row))
    return let_out
