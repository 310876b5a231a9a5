"""Scattered: ids that come by any partition of any input, and the model of what becomes of them.

The value of a record is its number, so whatever comes out can be traced without trusting a header.
The model replays the topic by-address in its order, since that is the order of the decisions.
"""

import json
import random
from array import array
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple, cast

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from ringfence.headers import DUPLICATE_ID, ORIGIN, DeadLetter
from state.keys import address_of
from state.run import Run, decode
from tests.broker.meanwhile import Meanwhile
from tests.broker.reading import ends
from tests.broker.topics import create_topic
from tests.waiting import eventually

ADDRESSES: Final = 50
REPEATED: Final = 0.1
_FAR: Final = 1.2
"""How far back a repeated id may lie, in capacities: some have been forgotten by then."""


class Work(NamedTuple):
    """Records by their numbers: columns of equal length."""

    addresses: bytes
    ids: "array[int]"
    places: bytes
    """Which partition of all inputs each is written to."""


def work(count: int, places: int, capacity: int, seed: int) -> Work:
    """Ids anew, and a tenth of them again, on any partition."""
    chance = random.Random(seed)
    addresses, ids, sent = bytearray(), array("q"), dict[int, list[int]]()
    for number in range(count):
        address = chance.randrange(ADDRESSES)
        before = sent.setdefault(address, [])
        back = chance.randrange(1, int(capacity * _FAR))
        is_repeated = chance.random() < REPEATED and back <= len(before)
        ids.append(before[-back] if is_repeated else number)
        before.append(ids[-1])
        addresses.append(address)
    return Work(bytes(addresses), ids, bytes(chance.choices(range(places), k=count)))


def send(
    client: Mapping[str, str], todo: Work, inputs: Sequence[TopicPartition], first: int = 0
) -> None:
    """Write all of it; `first` is the number of its first record."""
    producer = Producer({**client, "enable.idempotence": True, "linger.ms": 20})
    for number, (address, identifier, place) in enumerate(zip(*todo, strict=True), first):
        where = inputs[place]
        if number % 10_000 == 0:
            producer.poll(0.1)
        producer.produce(
            where.topic,
            key=b"a%02d" % address,
            value=b"%d" % number,
            headers=[(DUPLICATE_ID, b"%d" % identifier)],
            partition=where.partition,
        )
        if len(producer) > 50_000:
            producer.flush(30)
    assert producer.flush(60) == 0, "the broker did not take the workload"


class Row(NamedTuple):
    """A record as somebody reads it."""

    number: int
    told: bytes
    """Where it came from, or which it repeats."""


class Reader(Meanwhile):
    """Reads a topic from its beginning on, committed records only, on a thread of its own."""

    def __init__(self, client: Mapping[str, str], topic: str, header: str | None) -> None:
        """`header` is what is kept of each record besides its number."""
        super().__init__(self._read)
        self.rows: dict[int, list[Row]] = defaultdict(list)
        self.count = 0
        self._header = header
        self._client, self._topic = client, topic
        self._reached: dict[int, int] = {}
        settings = {
            "group.id": "reader",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
        self._consumer = Consumer({**client, **settings, "enable.auto.commit": False})
        partitions = AdminClient(dict(client)).list_topics(topic).topics[topic].partitions
        self._consumer.assign([TopicPartition(topic, number, 0) for number in partitions])

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        self._consumer.close()

    def wait_level(self) -> None:
        """Until it has read all that is committed by now."""
        wanted = ends(self._client, self._topic, "read_committed")
        eventually(lambda: all(self._reached.get(each, 0) >= end for each, end in wanted.items()))

    def _read(self) -> None:
        while not self._ends.is_set():
            messages = self._consumer.consume(10_000, 0.05)
            for message in messages:
                error = message.error()
                if error is None:
                    row = Row(int(message.value() or b""), self._told(message))
                    self.rows[message.partition() or 0].append(row)
                    self.count += 1
                elif error.code() == KafkaError._PARTITION_EOF:
                    self._reached[message.partition() or 0] = message.offset() or 0

    def _told(self, message: Message) -> bytes:
        if self._header is None:
            return b""
        told = [header[1] for header in message.headers() or () if header[0] == self._header]
        return cast("bytes", told[-1] or b"") if told else b""


class Fates(NamedTuple):
    """What the model says."""

    accepted: set[int]
    repeats: dict[int, bytes]
    """By number: the place of the accepted one."""
    rings: dict[tuple[int, bytes], list[bytes]]
    """By deciding partition and address: the ids held, oldest first."""


def judged(carried: Mapping[int, Sequence[Row]], todo: Work, capacity: int) -> Fates:
    """Replay the order in which the partitions of by-address stand.

    An id is known while fewer than `capacity` ids were accepted after it.
    """
    fates = Fates(set(), {}, {})
    for partition, rows in carried.items():
        accepted: dict[int, list[int]] = defaultdict(list)
        last: dict[tuple[int, int], tuple[int, bytes]] = {}
        for number, place in rows:
            address, identifier = todo.addresses[number], todo.ids[number]
            ids = accepted[address]
            count, origin = last.get((address, identifier), (-capacity, b""))
            if len(ids) - count < capacity:
                fates.repeats[number] = origin
                continue
            ids.append(identifier)
            last[address, identifier] = (len(ids), place)
            fates.accepted.add(number)
        for address, ids in accepted.items():
            fates.rings[partition, b"a%02d" % address] = [b"%d" % i for i in ids[-capacity:]]
    return fates


INPUTS: Final = 2
PARTITIONS: Final = 6
"""Of each input: twelve together."""
TRACE: Final = ORIGIN
ORIGINAL: Final = str(DeadLetter.ORIGINAL)


def inputs_of(client: Mapping[str, str], group: str) -> list[TopicPartition]:
    """Make the topics; gives the partitions of the inputs."""
    keep = {"retention.ms": "-1"}
    for name in (*map(str, range(INPUTS)), "out", "dlq"):
        create_topic(client, f"{group}-{name}", PARTITIONS, keep)
    return [TopicPartition(f"{group}-{n}", p) for n in range(INPUTS) for p in range(PARTITIONS)]


def write_config(
    path: Path,
    client: Mapping[str, str],
    group: str,
    port: int,
    capacity: int,
    service: str = "",
    session_ms: int = 6_000,
) -> None:
    """What `serve` is told; `service` is more of that section."""
    kafka = "\n".join(f'"{name}" = "{value}"' for name, value in client.items())
    inputs = [f"{group}-{number}" for number in range(INPUTS)]
    path.write_text(
        f"""
[kafka]
{kafka}
[service]
group_id = "{group}"
state_dir = "{path.parent / "state"}"
session_timeout_ms = {session_ms}
transaction_timeout_ms = 10000
{service}
[api]
port = {port}
[[routes]]
inputs = {json.dumps(inputs)}
address = "{{key}}"
output = "{group}-out"
dead_letter = "{group}-dlq"
[addresses."#"]
id_cache_size = {capacity}
"""
    )


def rings_in(entries: Mapping[bytes, bytes]) -> dict[bytes, list[bytes]]:
    """The ids that each address holds by the fold of a changelog, oldest first."""
    runs: dict[bytes, list[Run]] = defaultdict(list)
    for key, value in entries.items():
        runs[address_of(key).encode()].append(decode(value))
    held = {}
    for address, found in runs.items():
        found.sort(key=lambda run: run.first)
        floor = found[-1].floor
        numbered = ((run.first + row, each) for run in found for row, each in enumerate(run.ids))
        held[address] = [identifier for number, identifier in numbered if number >= floor]
    return held


def verify(
    todo: Work,
    places: Sequence[TopicPartition],
    carried: Mapping[int, Sequence[Row]],
    outputs: Mapping[int, Sequence[Row]],
    letters: Mapping[int, Sequence[Row]],
    capacity: int,
) -> None:
    """Hold the topics against the model."""
    count, passed_on = len(todo.ids), [row.number for rows in carried.values() for row in rows]
    assert len(passed_on) == len(set(passed_on)) == count, "each is passed on once"
    fates = judged(carried, todo, capacity)
    out = [row.number for rows in outputs.values() for row in rows]
    rejected = {row.number: row.told for rows in letters.values() for row in rows}
    assert len(out) == len(set(out)), "none goes out twice"
    assert sum(map(len, letters.values())) == len(rejected), "none is dead-lettered twice"
    assert set(out) - fates.accepted == set(), "no duplicate within the ring was missed"
    assert fates.accepted - set(out) == set(), "nothing new was kept back"
    assert rejected == fates.repeats, "each dead letter names its original"
    assert len(rejected) > count // 20, "the workload has no duplicates, it proves nothing"
    last: dict[tuple[int, int], int] = defaultdict(lambda: -1)
    for partition, rows in outputs.items():
        for number, told in rows:
            assert told == b"", "what goes out does not carry its place"
            lane = (todo.places[number], todo.addresses[number])
            assert places[lane[0]].partition == partition, "it keeps the partition of its input"
            assert last[lane] < number, "what came by one partition to one address keeps its order"
            last[lane] = number
