"""A world of scope `address` or `id`: decisions are in the order of the topic by-address."""

import threading
from collections import defaultdict
from collections.abc import Mapping
from types import TracebackType
from typing import Any

from confluent_kafka import KafkaException, TopicPartition

from ringfence_client.headers import DUPLICATE_ID, ORIGIN
from ringfence_service.kafka.topics import BY_ADDRESS, by_address, changelog, fallback
from tests.broker.reading import committed, drained, follow
from tests.broker.topics import create_topic
from tests.broker.workload import (
    PARTITIONS,
    Fates,
    Letter,
    Record,
    Seen,
    judged_where,
    seen,
)
from tests.broker.world import Manner, World, letter_of, same

Lane = tuple[int, bytes, bytes | None]
"""A partition of the input, an address, and with scope `id` an id: what keeps its order."""


def world_of(manner: Manner) -> type[World]:
    """The world that services of this manner live in."""
    return World if manner.scope == "partition" else CarriedWorld


class CarriedWorld(World):
    """Reads by-address all the time: what was decided is deleted there."""

    def __init__(self, *arguments: Any, manner: Manner, **more: Any) -> None:
        service = f"{manner.service}\nby_address_partitions = {PARTITIONS}"
        super().__init__(*arguments, manner=manner._replace(service=service), **more)
        self._carried: dict[int, list[Seen]] = defaultdict(list)
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._read, daemon=True)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ends.set()
        super().__exit__(kind, error, trace)

    def create(self, *topics: str, replicas: int = 1) -> None:
        super().create(*topics, replicas=replicas)
        if not topics:
            keep = {"retention.ms": "-1"}
            create_topic(self.client, self.deciding, PARTITIONS, keep, replicas)
            self._thread.start()

    @property
    def deciding(self) -> str:
        return by_address(self.group)

    @property
    def changelog(self) -> str:
        return changelog(self.group, BY_ADDRESS)

    @property
    def owned(self) -> int:
        return 2 * PARTITIONS

    @property
    def decided(self) -> int:
        """How many records lie behind the committed offsets of the second hop."""
        group = f"{self.group}.{BY_ADDRESS}"
        try:
            offsets = committed(self.client, group, self.deciding, PARTITIONS)
        except KafkaException:
            return 0  # a transaction is open, or the broker is away
        carried = {number: list(rows) for number, rows in self._carried.items()}
        return sum(row.offset < offsets[n] for n, rows in carried.items() for row in rows)

    def verify_fates(self) -> None:
        """Every input has one fate, the model's, in order and unchanged."""
        fates = self.judged()
        assert fates.letters, "the workload has no duplicates, it proves nothing"
        outputs = {n: [each.record for each in rows] for n, rows in self.read(self.output).items()}
        letters = {n: list(map(letter_of, rows)) for n, rows in self.read(self.letters).items()}
        same("the output", self._lanes(outputs), self._lanes(fates.outputs))
        same("the dead letters", self._lanes(letters), self._lanes(fates.letters))
        for glimpse in self._glimpses:
            for number, rows in glimpse.items():
                early = [each.record for each in rows]
                assert early == outputs[number][: len(early)], "the output was read otherwise"
        stray = drained(self.client, fallback(self.group), 1)
        assert not stray, f"the fallback has dead letters: {stray[:3]}"

    def judged(self) -> Fates:
        carried = [(n, _as_sent(row)) for n, rows in self._carried.items() for row in rows]
        places = [(row.partition, row.offset) for _, row in carried]
        assert len(places) == len(set(places)) == self._sent, "each input is passed on once"
        return judged_where(self.input, carried)

    def _lanes(self, rows: Mapping[int, list[Record] | list[Letter]]) -> list[tuple[Lane, object]]:
        """What came by one partition to one address, in order, one lane after the other."""
        found: dict[Lane, list[object]] = defaultdict(list)
        for number, records in rows.items():
            for record in records:
                headers = dict(record.headers)
                identifier = headers.get(DUPLICATE_ID) if self.manner.scope == "id" else None
                found[number, headers["addr"] or b"", identifier].append(record)
        lanes = sorted(found, key=lambda lane: (lane[:2], lane[2] or b""))
        return [(lane, record) for lane in lanes for record in found[lane]]

    def _read(self) -> None:
        # Decided records are deleted after a while: a late reader would miss them.
        places = [TopicPartition(self.deciding, number, 0) for number in range(PARTITIONS)]
        for message in follow(self.client, places, self._ends):
            self._carried[message.partition() or 0].append(seen(message))


def _as_sent(carried: Seen) -> Seen:
    """A record where it lay in the input."""
    *headers, (name, told) = carried.record.headers
    assert name == ORIGIN, "the last header tells where it came from"
    source, _, offset = (told or b"").rpartition(b"@")
    partition = int(source.rpartition(b"-")[2])
    return Seen(partition, int(offset), carried.record._replace(headers=tuple(headers)))
