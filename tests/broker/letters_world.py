"""A group with dead letters: one input of which half repeats the other, and what the API says."""

import json
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, NamedTuple, Self, cast

from confluent_kafka import Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from ringfence.headers import DeadLetter
from service.topics import BY_ADDRESS, changelog
from state.redriven import KIND
from tests.broker.conftest import create_topic
from tests.broker.service import Service
from tests.waiting import eventually
from tools.broker.config import _free_port as free_port

PARTITIONS: Final = 4
READ_S: Final = 300.0
ANSWER_S: Final = 20.0
_OURS: Final = frozenset(name.value for name in DeadLetter)


class Letter(NamedTuple):
    """A committed record of a dead-letter topic."""

    value: bytes | None
    timestamp_ms: int
    own: tuple[tuple[str, bytes | None], ...]
    told: dict[str, str]


class Letters:
    """See the module; a context manager that leaves no process behind."""

    def __init__(
        self, client: Mapping[str, str], folder: Path, group: str, scope: str = "partition"
    ) -> None:
        self.client = dict(client)
        self.folder = folder
        self.group = group
        self.scope = scope
        self.input, self.output, self.letters = f"{group}-in", f"{group}-out", f"{group}-in.dlq"
        self.port = free_port(0)
        self.service: Service | None = None
        for topic in (self.input, self.output, self.letters):
            # Timestamps are years old: by time, all of it could be deleted at once.
            create_topic(self.client, topic, PARTITIONS, {"retention.ms": "-1"})

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.service is not None and not self.service.ended:
            self.kill()

    def start(self) -> Service:
        """The service, from whatever it left."""
        properties = "\n".join(f'"{name}" = "{value}"' for name, value in self.client.items())
        path = self.folder / "ringfence.toml"
        path.write_text(
            f"[kafka]\n{properties}\n"
            f'[service]\ngroup_id = "{self.group}"\nstate_dir = "{self.folder / "state"}"\n'
            "session_timeout_ms = 6000\ntransaction_timeout_ms = 20000\n"
            f"by_address_partitions = {PARTITIONS}\n"
            f"[api]\nport = {self.port}\n"
            f'[[routes]]\nname = "r"\ninputs = ["{self.input}"]\nscope = "{self.scope}"\n'
            f'address = "{{header:addr}}"\noutput = "{self.output}"\n'
            '[addresses."#"]\nid_cache_size = 1000000\n',
            encoding="utf-8",
        )
        self.service = Service(path, self.port, self.folder / "service.log")
        self.service.start()
        return self.service

    def kill(self) -> None:
        """SIGKILL, and all that it started with it."""
        assert self.service is not None
        self.service.kill()

    def send(self, first: int, count: int, kind: str) -> None:
        """Records with the ids of these numbers; their values tell of which kind they are."""
        producer = Producer({**self.client, "linger.ms": 5, "queue.buffering.max.messages": 10**6})
        for number in range(first, first + count):
            producer.produce(
                self.input,
                key=b"k%d" % number,
                value=f"{kind}-{number}".encode(),
                headers=[
                    ("addr", b"a%d" % (number % 7)),
                    ("_DUPL_ID", b"id-%d" % number),
                    ("addr", b"twice"),
                    ("none", None),
                ],
                timestamp=1_500_000_000_000 + number,
                partition=number % PARTITIONS,
            )
            producer.poll(0)
        assert producer.flush(READ_S) == 0

    def ask(self, path: str, body: object = None, method: str | None = None) -> tuple[int, Any]:
        """Status and document; 0 while nobody listens."""
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{path}",
            method=method or ("GET" if body is None else "POST"),
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=ANSWER_S) as page:  # noqa: S310
                return page.status, json.load(page)
        except urllib.error.HTTPError as refusal:
            with refusal:
                return refusal.code, json.load(refusal)
        except OSError:
            return 0, {}

    def redrive(self, **order: object) -> str:
        """Begin one; its id. Asked again while it is told to: the config topic has to be read."""
        told: list[tuple[int, Any]] = []

        def is_answered() -> bool:
            told.append(self.ask("/v1/redrives", order))
            return told[-1][0] != 503

        self.until(is_answered)
        status, document = told[-1]
        assert status == 202, document
        return str(document["id"])

    def job(self, name: str) -> dict[str, Any]:
        status, document = self.ask(f"/v1/redrives/{name}")
        return document if status == 200 else {"state": "unknown", "progress": {"sent": 0}}

    def has_sent(self, name: str, count: int) -> bool:
        """Whether a redrive has come so far."""
        return bool(self.job(name)["progress"]["sent"] > count)

    def wait_job(self, name: str, state: str = "done") -> dict[str, Any]:
        """Until it has ended so."""
        self.until(lambda: self.job(name)["state"] == state)
        return self.job(name)

    def wait_ready(self) -> None:
        self.until(lambda: self.ask("/readyz")[0] == 200)

    def until(self, true: Callable[[], bool]) -> None:
        assert self.service is not None
        eventually(true, self.service)

    def wait_letters(self, count: int) -> None:
        """Until the service has written so many dead letters."""

        def all_there() -> bool:
            status, document = self.ask("/v1/status")
            return status == 200 and document["dead_letters"] == count

        self.until(all_there)

    def told(self, path: str) -> dict[str, Any]:
        """What is answered; asked again while the service does not know it yet."""
        found: list[dict[str, Any]] = []

        def is_answered() -> bool:
            status, document = self.ask(path)
            found.append(document)
            assert status in {0, 200, 503}, document
            return status == 200

        self.until(is_answered)
        return found[-1]

    def counted(self, query: str) -> int:
        """How many dead letters a filter lets through."""
        document = self.summary(query)
        return int(document["dead_letters"] + document["foreign"])

    def summary(self, query: str = "") -> dict[str, Any]:
        """What is told of them once all were looked at: a busy machine takes longer than asked."""
        found: list[dict[str, Any]] = []

        def is_complete() -> bool:
            found.append(self.told(f"/v1/dead-letters:summary?{query}"))
            return bool(found[-1]["complete"])

        self.until(is_complete)
        return found[-1]

    def marks(self) -> int:
        """How many marks of redrives the changelogs hold."""
        log = BY_ADDRESS if self.scope == "address" else self.input
        held: dict[tuple[bytes, int | None], bool] = {}
        for message in self.committed(changelog(self.group, log)):
            key = message.key() or b""
            if key.startswith(KIND):
                held[key, message.partition()] = message.value() is not None
        return sum(held.values())

    def values(self, topic: str) -> Counter[bytes]:
        """How often each value stands in a topic, as far as it is committed."""
        return Counter(letter.value or b"" for letter in self.read(topic))

    def read(self, topic: str) -> list[Letter]:
        """All that is committed, as what it says."""
        return list(map(_letter, self.committed(topic)))

    def committed(self, topic: str) -> Iterator[Message]:
        """All that is committed."""
        properties = {"group.id": f"{self.group}-reader", "enable.auto.commit": False}
        consumer = Consumer({**self.client, **properties})
        admin = AdminClient({**self.client})
        places = [
            TopicPartition(topic, number, 0)
            for number in admin.list_topics(topic, timeout=10).topics[topic].partitions
        ]
        ends = [consumer.get_watermark_offsets(place, timeout=10)[1] for place in places]
        left = [place for place, end in zip(places, ends, strict=True) if end]
        consumer.assign(left)
        deadline_s = time.monotonic() + READ_S
        try:
            while _is_short(consumer, left, [end for end in ends if end]):
                assert time.monotonic() < deadline_s, f"{topic} cannot be read to its end"
                for message in consumer.consume(5_000, 0.2):
                    if message.error() is None:  # else it passes by itself, or the time does
                        yield message
        finally:
            consumer.close()


def _is_short(consumer: Consumer, places: Sequence[TopicPartition], ends: Sequence[int]) -> bool:
    if not places:
        return False
    reached = consumer.position(list(places))
    return any(at.offset < end for at, end in zip(reached, ends, strict=True))


def _letter(message: Message) -> Letter:
    # The binding types values as text too; what it hands over is always bytes or None.
    headers = cast("list[tuple[str, bytes | None]]", message.headers() or [])
    own = tuple((name, value) for name, value in headers if name not in _OURS)
    told = {name: (value or b"").decode() for name, value in headers if name in _OURS}
    return Letter(message.value(), message.timestamp()[1], own, told)
