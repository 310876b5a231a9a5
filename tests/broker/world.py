"""A world of its own for one test: topics, a group, services that come and go, and the judgement.

`verify` reads the topics with read_committed and compares them with the model: every input has
exactly one fate, in order and unchanged, and what is remembered is what the model remembers.
"""

import json
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

from confluent_kafka import (
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)

from ringfence_client.headers import DeadLetter
from ringfence_service.kafka.topics import changelog, fallback
from ringfence_state.keys import address_of
from ringfence_state.model import PartitionId
from ringfence_state.rocksdb_store import RocksStores
from ringfence_state.segment import Segment, decode
from tests.broker.reading import committed, drained, still_open
from tests.broker.service import Service, Stage, configuration
from tests.broker.topics import create_topic
from tests.broker.workload import (
    CAPACITY,
    PARTITIONS,
    Fates,
    Letter,
    Place,
    Record,
    Seen,
    judged,
    records,
)
from tests.support.waiting import eventually

SEND_S = 60.0

T = TypeVar("T")
Note = Callable[[TopicPartition | None, Record], None]
"""Receives the place where a record was acknowledged, or None if it was not."""


class Manner(NamedTuple):
    """How a world's services are configured beyond what all of them have, as lines of TOML."""

    workers: int = 1
    scope: str = "partition"
    service: str = ""
    consumer: str = ""
    route: str = ""
    api: str = ""
    session_ms: int = 6_000
    batch_records: int = 200


PLAIN: Final = Manner()


class World(Stage):
    """The topics, group and services of one test, with the checks against the model."""

    def __init__(
        self,
        client: Mapping[str, str],
        folder: Path,
        group: str,
        *,
        count: int = 3000,
        seed: int = 1,
        work: Sequence[tuple[int, Record]] | None = None,
        settings: str = f"id_cache_size = {CAPACITY}",
        service_client: Mapping[str, str] | None = None,
        manner: Manner = PLAIN,
    ) -> None:
        """`work` is what is sent, the model's own by default; `settings` are of all addresses."""
        is_scattered = manner.scope != "partition"
        super().__init__(client, folder, group)
        self.input, self.output = f"{group}-in", f"{group}-out"
        self.letters = f"{group}-in.dlq"
        self.inputs = [self.input]
        self.service_client = service_client or client
        self._settings = settings
        self.manner = manner
        self._left = list(work or records(count, seed, is_scattered=is_scattered))
        self._sent = 0
        self._glimpses: list[dict[int, list[Seen]]] = []

    def create(self, *topics: str, replicas: int = 1) -> None:
        for topic in topics or (self.input, self.output, self.letters):
            # The workload's timestamps are years old: by time, all of it could be deleted at once.
            create_topic(self.client, topic, PARTITIONS, {"retention.ms": "-1"}, replicas)

    def service(
        self, port: int | None = None, instance: str = "0", volume: str = "state"
    ) -> Service:
        """A service, not yet started; with another volume it is the same one on another node."""
        name = f"{instance}-{volume}"
        return self.written(name, lambda at: self.config_text(at, instance, volume), port=port)

    def started(self, instance: str = "0", volume: str = "state") -> Service:
        """The same, started."""
        service = self.service(instance=instance, volume=volume)
        service.start()
        return service

    def store_folder(self, instance: str = "0", volume: str = "state") -> Path:
        return self.folder / volume / self.group / instance

    def config_text(self, port: int, instance: str, volume: str) -> str:
        return configuration(
            self.service_client,
            self.group,
            self.folder / volume,
            port,
            service=f"""
instance = "{instance}"
batch_records_max = {self.manner.batch_records}
transaction_timeout_ms = 3000
workers = {self.manner.workers}
{self.manner.service}
[kafka.consumer]
{self.manner.consumer}""",
            api=self.manner.api,
            rest=f"""
[[routes]]
inputs = {json.dumps(self.inputs)}
scope = "{self.manner.scope}"
{self.manner.route}
address = "{{header:addr}}"
output = "{self.output}"
[addresses."#"]
{self._settings}""",
            session_ms=self.manner.session_ms,
        )

    def is_announced(self) -> bool:
        """Whether the metadata topic names an instance, which it does once that has joined."""
        told = drained(self.client, f"{self.group}.config", 1)
        return any(b"instance" in (each.record.key or b"") for each in told)

    def send(self, count: int | None = None, note: Note = lambda _place, _record: None) -> None:
        """The next records of the workload, all that are left by default; `note` hears of each."""
        now, self._left = self._left[:count], self._left[len(self._left[:count]) :]
        room = {"queue.buffering.max.messages": len(now) + 1}
        producer = Producer({**self.client, "enable.idempotence": True, "linger.ms": 5, **room})
        for partition, record in now:
            producer.produce(
                self.input,
                key=record.key,
                value=record.value,
                headers=list(record.headers),
                timestamp=record.timestamp_ms,
                partition=partition,
                on_delivery=partial(_tell, note, record),
            )
        assert producer.flush(SEND_S) == 0, f"the workload was not taken within {SEND_S} s"
        self._sent += len(now)

    @property
    def deciding(self) -> str:
        """The topic whose partitions decide."""
        return self.input

    @property
    def changelog(self) -> str:
        """Where the decisions are remembered."""
        return changelog(self.group, self.input)

    @property
    def owned(self) -> int:
        """How many partitions an instance that is alone owns."""
        return PARTITIONS

    @property
    def sent(self) -> int:
        """How many records were sent."""
        return self._sent

    @property
    def decided(self) -> int:
        """How many input records are committed."""
        try:
            return sum(committed(self.client, self.group, self.input, PARTITIONS).values())
        except KafkaException:
            return 0  # a transaction is open, or the broker is away

    def wait_decided(self, count: int | None = None) -> None:
        """Until so many inputs, all that were sent by default, are committed."""
        wanted = self._sent if count is None else count
        eventually(lambda: self.decided >= wanted, *self._services)

    def glimpse(self) -> dict[int, list[Seen]]:
        """Read the output now, as a consumer downstream would; `verify` holds it to that."""
        self._glimpses.append(self.read(self.output))
        return self._glimpses[-1]

    def read(self, topic: str) -> dict[int, list[Seen]]:
        """Everything that is committed, by partition."""
        found: dict[int, list[Seen]] = {number: [] for number in range(PARTITIONS)}
        for each in drained(self.client, topic, PARTITIONS):
            found[each.partition].append(each)
        return found

    def conclude(self, service: Service, instance: str = "0", volume: str = "state") -> None:
        """Have the last one decide all that is left, end it, and hold everything to the model."""
        self.send()
        self.wait_decided()
        service.wait_ready(self.owned)
        service.stop()
        self.verify()
        self.verify_store(instance, volume)

    def verify(self) -> None:
        """Hold the topics against the model."""
        self.verify_fates()
        self.verify_changelog()
        self.verify_nothing_is_open()

    def verify_fates(self) -> None:
        """Every input has one fate, the model's, in order and unchanged."""
        fates = self.judged()
        assert fates.letters, "the workload has no duplicates, it proves nothing"
        outputs, letters = self.read(self.output), self.read(self.letters)
        for number in range(PARTITIONS):
            where = f"partition {number} of the "
            written = [each.record for each in outputs[number]]
            same(where + "output", written, fates.outputs[number])
            rejected = [letter_of(each) for each in letters[number]]
            same(where + "dead letters", rejected, fates.letters[number])
            for glimpse in self._glimpses:
                early = glimpse[number]
                same(where + "output read meanwhile", early, outputs[number][: len(early)])
        stray = drained(self.client, fallback(self.group), 1)
        assert not stray, f"the fallback has dead letters: {stray[:3]}"

    def verify_changelog(self) -> None:
        """What is remembered is what the model remembers."""
        held, model = _held(self.fold(), self.run_of), self.judged().rings
        for place in sorted(held.keys() | model.keys()):
            same(f"changelog of {place}", held.get(place, []), model.get(place, []))

    def run_of(self, value: bytes) -> Segment:
        """Decode a run in the format of the version that wrote it."""
        return decode(value)

    def judged(self) -> Fates:
        inputs = self.decided_in_order()
        assert len(inputs) == self._sent, "the workload itself was not written once and whole"
        return judged(self.input, inputs)

    def decided_in_order(self) -> list[Seen]:
        """Every input, those of one deciding partition in the order in which it decides them."""
        return [each for part in self.read(self.input).values() for each in part]

    def fold(self) -> dict[tuple[int, bytes], bytes]:
        """The last value of each changelog key, by partition."""
        latest: dict[tuple[int, bytes], bytes | None] = {}
        for each in drained(self.client, self.changelog, PARTITIONS):
            latest[each.partition, each.record.key or b""] = each.record.value
        return {key: value for key, value in latest.items() if value is not None}

    def verify_store(self, instance: str = "0", volume: str = "state") -> None:
        """The store of a service that has ended is the fold of its changelog, or a prefix's."""
        fold = self.fold()
        stores = RocksStores(self.store_folder(instance, volume))
        for number in range(PARTITIONS):
            store = stores.open(PartitionId(self.deciding, number))
            held, position = dict(store.scan(b"r")), store.position()
            store.close()
            wanted = {key: value for (part, key), value in fold.items() if part == number}
            differ = {key for key in held.keys() | wanted if held.get(key) != wanted.get(key)}
            assert not differ, (
                f"the store of partition {number} differs from its changelog; "
                f"it stands at {position}, and differs in {sorted(differ)[:5]}"
            )

    def verify_nothing_is_open(self) -> None:
        """No transaction is left open: what is stable reaches to the end."""
        for topic in {self.output, self.letters, self.changelog, self.deciding}:
            assert not still_open(self.client, topic), f"a transaction is still open on {topic}"


def _tell(note: Note, record: Record, error: KafkaError | None, message: Message) -> None:
    place = TopicPartition(message.topic() or "", message.partition() or 0, message.offset() or 0)
    note(None if error is not None else place, record)


def same(what: str, got: Sequence[T], wanted: Sequence[T]) -> None:
    for place, (one, other) in enumerate(zip(got, wanted, strict=False)):
        assert one == other, f"{what}, record {place}: {one} instead of {other}"
    assert len(got) == len(wanted), f"{what}: {len(got)} records instead of {len(wanted)}"


def letter_of(each: Seen) -> Letter:
    """A dead letter without what depends on the clock and what is there for people."""
    key, value, headers, _ = each.record
    theirs = tuple(header for header in headers if not header[0].startswith("ringfence."))
    ours = {name: told for name, told in headers if told is not None}
    wanted = (
        DeadLetter.REASON,
        DeadLetter.TOPIC,
        DeadLetter.PARTITION,
        DeadLetter.OFFSET,
        DeadLetter.ORIGINAL,
    )
    return Letter(key, value, theirs, *(ours.get(name, b"missing") for name in wanted))


def _held(
    fold: Mapping[tuple[int, bytes], bytes], run_of: Callable[[bytes], Segment]
) -> dict[Place, list[bytes]]:
    """The ids that each ring of a changelog holds, oldest first."""
    rings: dict[Place, list[Segment]] = defaultdict(list)
    for (partition, key), value in fold.items():
        rings[partition, address_of(key).encode()].append(run_of(value))
    held = {}
    for place, runs in rings.items():
        runs.sort(key=lambda run: run.first)
        floor = runs[-1].floor
        numbered = ((run.first + row, each) for run in runs for row, each in enumerate(run.ids))
        held[place] = [identifier for number, identifier in numbered if number >= floor]
    return held
