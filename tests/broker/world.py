"""A world of its own for one test: topics, a group, services that come and go, and the judgement.

`verify` reads the topics with read_committed and compares them with the model: every input has
exactly one fate, in order and unchanged, and what is remembered is what the model remembers.
"""

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from ringfence.headers import DeadLetter
from service.topics import changelog, fallback
from state.edit import Source
from state.rocks import RocksStores
from state.run import Run, address_of, decode
from tests.broker.conftest import create_topic
from tests.broker.workload import CAPACITY, PARTITIONS, Letter, Place, Seen, judged, records, seen
from tools.broker.embedded import LAUNCH

REPOSITORY = Path(__file__).parents[2]
SERVE = ("-m", "service.cli", "serve", "--config")
VICTIM = ("-m", "tests.broker.victim")
CATCH_UP_S = 60.0
READ_S = 30.0
END_S = 10.0

T = TypeVar("T")


class Service:
    """One process of the service, or of the victim."""

    def __init__(self, config: Path, port: int, log: Path) -> None:
        self._config = config
        self._port = port
        self.log = log
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, victim: Mapping[str, str] | None = None) -> None:
        """Start it; with a step to be struck at, as the victim."""
        program = SERVE if victim is None else VICTIM
        attached = [sys.executable, "-I", "-S", str(LAUNCH), "attached", str(os.getpid())]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [*attached, sys.executable, *program, str(self._config)],
                cwd=REPOSITORY,
                env={**os.environ, **(victim or {})},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    @property
    def process(self) -> subprocess.Popen[bytes]:
        assert self._process is not None, "it was never started"
        return self._process

    @property
    def ended(self) -> bool:
        return self.process.poll() is not None

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def wait(self, limit_s: float = END_S) -> int:
        """The status it ends with."""
        try:
            return self.process.wait(timeout=limit_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"it still runs after {limit_s} s\n{self.tail()}") from None

    def stop(self) -> None:
        """SIGTERM, which has to end in status 0 within ten seconds."""
        self.signal(signal.SIGTERM)
        status = self.wait()
        assert status == 0, f"SIGTERM ended in status {status}\n{self.tail()}"

    def wait_until_stopped(self, limit_s: float = 30.0) -> None:
        """Until SIGSTOP took hold of it."""
        stat = Path(f"/proc/{self.process.pid}/stat")
        eventually(lambda: stat.read_text().rpartition(")")[2].split()[0] == "T", limit_s, self)

    def get(self, path: str) -> tuple[int, str]:
        """Status and body of a page; status 0 while nobody listens."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._port}{path}", timeout=5) as page:
                return page.status, page.read().decode()
        except urllib.error.HTTPError as refusal:
            with refusal:
                return refusal.code, refusal.read().decode()
        except OSError:
            return 0, ""

    def wait_ready(self, partitions: int = PARTITIONS, limit_s: float = CATCH_UP_S) -> None:
        """Until it is ready and owns so many partitions."""

        def is_ready() -> bool:
            return self.get("/readyz")[0] == 200 and len(self.partitions()) == partitions

        eventually(is_ready, limit_s, self)

    def wait_complaint(self, words: str, limit_s: float = 30.0) -> None:
        """Until it says on /readyz that it is not ready, with these words."""

        def complains() -> bool:
            status, body = self.get("/readyz")
            return status == 503 and words in body

        eventually(complains, limit_s, self)

    def partitions(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(self.get("/v1/partitions")[1])["partitions"]
        return found

    def tail(self) -> str:
        return self.log.read_text(errors="replace")[-3000:]


def eventually(true: Callable[[], bool], limit_s: float, *services: Service) -> None:
    deadline = time.monotonic() + limit_s
    while not true():
        if time.monotonic() > deadline:
            logs = "\n".join(service.tail() for service in services)
            raise AssertionError(f"not so within {limit_s} s: {true.__qualname__}\n{logs}")
        time.sleep(0.1)


class World:
    """See the module; a context manager that leaves no process behind."""

    def __init__(
        self,
        client: Mapping[str, str],
        folder: Path,
        group: str,
        *,
        count: int = 3000,
        seed: int = 1,
        service_client: Mapping[str, str] | None = None,
    ) -> None:
        self.client = dict(client)
        self.folder = folder
        self.group = group
        self.input, self.output = f"{group}-in", f"{group}-out"
        self.letters = f"{group}-in.dlq"
        self.inputs = [self.input]
        self._service_client = service_client or client
        self._left = records(count, seed)
        self._sent = 0
        self._services: list[Service] = []
        self._glimpses: list[dict[int, list[Seen]]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with ExitStack() as ends:
            for service in self._services:
                if not service.ended:
                    ends.callback(service.process.wait, 10)
                    service.process.kill()

    def create(self, *topics: str) -> None:
        for topic in topics or (self.input, self.output, self.letters):
            # The workload's timestamps are years old: by time, all of it could be deleted at once.
            create_topic(self.client, topic, PARTITIONS, {"retention.ms": "-1"})

    def service(self, port: int, instance: str = "0", volume: str = "state") -> Service:
        """A service, not yet started; with another volume it is the same one on another node."""
        config = self.folder / f"{instance}-{volume}.toml"
        config.write_text(self._config(port, instance, volume), encoding="utf-8")
        service = Service(config, port, self.folder / f"{instance}-{volume}.log")
        self._services.append(service)
        return service

    def store_folder(self, instance: str = "0", volume: str = "state") -> Path:
        return self.folder / volume / self.group / instance

    def _config(self, port: int, instance: str, volume: str) -> str:
        kafka = "\n".join(f'"{name}" = "{value}"' for name, value in self._service_client.items())
        return f"""
[kafka]
{kafka}
[service]
group_id = "{self.group}"
instance = "{instance}"
state_dir = "{self.folder / volume}"
batch_records_max = 200
session_timeout_ms = 6000
transaction_timeout_ms = 3000
[api]
port = {port}
[[routes]]
inputs = {json.dumps(self.inputs)}
scope = "partition"
address = "{{header:addr}}"
output = "{self.output}"
[addresses."#"]
id_cache_size = {CAPACITY}
"""

    def send(self, count: int | None = None) -> None:
        """The next records of the workload; all that are left by default."""
        producer = Producer({**self.client, "enable.idempotence": True, "linger.ms": 5})
        now, self._left = self._left[:count], self._left[len(self._left[:count]) :]
        for partition, record in now:
            producer.produce(
                self.input,
                key=record.key,
                value=record.value,
                headers=list(record.headers),
                timestamp=record.timestamp_ms,
                partition=partition,
            )
        assert producer.flush(30) == 0, "the broker did not take the workload within 30 s"
        self._sent += len(now)

    @property
    def decided(self) -> int:
        """How many input records are committed."""
        consumer = Consumer({**self.client, "group.id": self.group})
        try:
            places = [TopicPartition(self.input, number) for number in range(PARTITIONS)]
            return sum(max(0, place.offset) for place in consumer.committed(places, timeout=2))
        except KafkaException:
            return 0  # a transaction is open, or the broker is away
        finally:
            consumer.close()

    def wait_decided(self, count: int | None = None, limit_s: float = CATCH_UP_S) -> None:
        """Until so many inputs, all that were sent by default, are committed."""
        wanted = self._sent if count is None else count
        eventually(lambda: self.decided >= wanted, limit_s, *self._services)

    def glimpse(self) -> None:
        """Read the output now, as a consumer downstream would; `verify` holds it to that."""
        self._glimpses.append(self.read(self.output))

    def read(self, topic: str) -> dict[int, list[Seen]]:
        """Everything that is committed, by partition."""
        found: dict[int, list[Seen]] = {number: [] for number in range(PARTITIONS)}
        for each in _drained(self.client, topic, PARTITIONS):
            found[each.partition].append(each)
        return found

    def verify(self) -> None:
        """Hold the topics against the model."""
        inputs = [each for part in self.read(self.input).values() for each in part]
        assert len(inputs) == self._sent, "the workload itself was not written once and whole"
        fates = judged(self.input, inputs)
        assert fates.letters, "the workload has no duplicates, it proves nothing"
        outputs, letters = self.read(self.output), self.read(self.letters)
        for number in range(PARTITIONS):
            where = f"partition {number} of the "
            written = [each.record for each in outputs[number]]
            _same(where + "output", written, fates.outputs[number])
            rejected = [_letter(each) for each in letters[number]]
            _same(where + "dead letters", rejected, fates.letters[number])
            for glimpse in self._glimpses:
                early = glimpse[number]
                _same(where + "output read meanwhile", early, outputs[number][: len(early)])
        stray = _drained(self.client, fallback(self.group), 1)
        assert not stray, f"the fallback has dead letters: {stray[:3]}"
        assert _held(self.fold()) == fates.rings, "the changelog is not the model's ring"
        self._verify_nothing_is_open()

    def fold(self) -> dict[tuple[int, bytes], bytes]:
        """The last value of each changelog key, by partition."""
        latest: dict[tuple[int, bytes], bytes | None] = {}
        for each in _drained(self.client, changelog(self.group, self.input), PARTITIONS):
            latest[each.partition, each.record.key or b""] = each.record.value
        return {key: value for key, value in latest.items() if value is not None}

    def verify_store(self, instance: str = "0", volume: str = "state") -> None:
        """The store of a service that has ended is the fold of its changelog, or a prefix's."""
        fold = self.fold()
        stores = RocksStores(self.store_folder(instance, volume))
        for number in range(PARTITIONS):
            store = stores.open(Source(self.input, number))
            held = dict(store.scan(b"r"))
            store.close()
            wanted = {key: value for (part, key), value in fold.items() if part == number}
            assert held == wanted, f"the store of partition {number} differs from its changelog"

    def _verify_nothing_is_open(self) -> None:
        """No transaction is left open: what is stable reaches to the end."""
        for topic in (self.output, self.letters, changelog(self.group, self.input)):
            stable, end = (
                _ends(self.client, topic, level) for level in ("read_committed", "read_uncommitted")
            )
            assert stable == end, f"a transaction is still open on {topic}: {stable} of {end}"


def _same(what: str, got: Sequence[T], wanted: Sequence[T]) -> None:
    for place, (one, other) in enumerate(zip(got, wanted, strict=False)):
        assert one == other, f"{what}, record {place}: {one} instead of {other}"
    assert len(got) == len(wanted), f"{what}: {len(got)} records instead of {len(wanted)}"


def _letter(each: Seen) -> Letter:
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


def _held(fold: Mapping[tuple[int, bytes], bytes]) -> dict[Place, list[bytes]]:
    """The ids that each ring of a changelog holds, oldest first."""
    rings: dict[Place, list[Run]] = defaultdict(list)
    for (partition, key), value in fold.items():
        rings[partition, address_of(key).encode()].append(decode(value))
    held = {}
    for place, runs in rings.items():
        runs.sort(key=lambda run: run.first)
        floor = runs[-1].floor
        numbered = ((run.first + row, each) for run in runs for row, each in enumerate(run.ids))
        held[place] = [identifier for number, identifier in numbered if number >= floor]
    return held


def _drained(client: Mapping[str, str], topic: str, partitions: int) -> list[Seen]:
    """All that a read_committed consumer is given of a topic."""
    consumer = _reader(client, "read_committed")
    try:
        ends = _watermarks(consumer, topic, partitions)
        consumer.assign([TopicPartition(topic, number, 0) for number in ends])
        found: list[Seen] = []
        deadline = time.monotonic() + READ_S
        while any(
            place.offset < ends[place.partition]
            for place in consumer.position([TopicPartition(topic, n) for n, e in ends.items() if e])
        ):
            assert time.monotonic() < deadline, f"{topic} could not be read within {READ_S} s"
            for message in consumer.consume(5000, 0.1):
                assert message.error() is None, f"{topic}: {message.error()}"
                found.append(seen(message))
        return found
    finally:
        consumer.close()


def _reader(client: Mapping[str, str], level: str) -> Consumer:
    return Consumer(
        {
            **client,
            "group.id": "nobody",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "isolation.level": level,
            "fetch.wait.max.ms": 50,
        }
    )


def _watermarks(consumer: Consumer, topic: str, partitions: int) -> dict[int, int]:
    """The ends that the reader can reach: the last stable offsets for read_committed."""
    return {
        number: consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=READ_S)[1]
        for number in range(partitions)
    }


def _ends(client: Mapping[str, str], topic: str, level: str) -> dict[int, int]:
    consumer = _reader(client, level)
    try:
        return _watermarks(consumer, topic, PARTITIONS)
    finally:
        consumer.close()
