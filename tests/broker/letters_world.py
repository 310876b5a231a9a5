"""A group with dead letters: one input of which half repeats the other, and what the API says."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple, cast

from confluent_kafka import Message, Producer

from ringfence_client.headers import DeadLetter
from ringfence_service.kafka.topics import BY_ADDRESS, changelog
from ringfence_state.redrive_progress import KIND
from tests.broker.reading import messages
from tests.broker.service import Stage
from tests.broker.topics import create_topic
from tests.support.waiting import eventually

PARTITIONS: Final = 4
READ_S: Final = 300.0
_OURS: Final = frozenset(name.value for name in DeadLetter)


class Letter(NamedTuple):
    """A committed record of a dead-letter topic."""

    value: bytes | None
    timestamp_ms: int
    own: tuple[tuple[str, bytes | None], ...]
    told: dict[str, str]


class Letters(Stage):
    """A group with one input, its service, and requests to the API about dead letters."""

    def __init__(
        self, client: Mapping[str, str], folder: Path, group: str, scope: str = "partition"
    ) -> None:
        super().__init__(client, folder, group)
        self.scope = scope
        self.input, self.output, self.letters = f"{group}-in", f"{group}-out", f"{group}-in.dlq"
        for topic in (self.input, self.output, self.letters):
            # Timestamps are years old: by time, all of it could be deleted at once.
            create_topic(self.client, topic, PARTITIONS, {"retention.ms": "-1"})
        self.service = self.serving(
            "service",
            service=f"transaction_timeout_ms = 20000\nby_address_partitions = {PARTITIONS}",
            rest=f"""
[[routes]]
name = "r"
inputs = ["{self.input}"]
scope = "{self.scope}"
address = "{{header:addr}}"
output = "{self.output}"
[addresses."#"]
id_cache_size = 1000000""",
        )

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

    def redrive(self, **order: object) -> str:
        """Begin one and return its id; retried on 503, as the metadata topic must be read first."""
        answer = self.service.answered("/v1/redrives", order)
        assert answer.status == 202, answer
        return str(answer.document["id"])

    def job(self, name: str) -> dict[str, Any]:
        answer = self.service.ask(f"/v1/redrives/{name}")
        unknown = {"state": "unknown", "progress": {"sent": 0}}
        return dict(answer.document) if answer.status == 200 else unknown

    def has_sent(self, name: str, count: int) -> bool:
        """Whether a redrive has come so far."""
        return bool(self.job(name)["progress"]["sent"] > count)

    def wait_job(self, name: str, state: str = "done") -> dict[str, Any]:
        """Until it has ended so."""
        found: list[dict[str, Any]] = []

        def has_ended() -> bool:
            found[:] = [self.job(name)]
            return bool(found[0]["state"] == state)

        self.until(has_ended)
        return found[0]

    def page(self, query: str) -> list[dict[str, Any]]:
        """Some dead letters; a busy machine may have read none in the time that it had."""
        found: list[dict[str, Any]] = []

        def has_some() -> bool:
            found[:] = self.service.told(f"/v1/dead-letters?{query}")["dead_letters"]
            return len(found) > 1

        self.until(has_some)
        return found

    def until(self, true: Callable[[], bool]) -> None:
        eventually(true, self.service)

    def wait_letters(self, count: int) -> None:
        """Until the service has written so many dead letters."""
        self.until(lambda: self.service.told("/v1/status")["dead_letters"] == count)

    def summary(self, query: str = "") -> dict[str, Any]:
        """The complete summary; on a busy machine one request may be too short to read them all."""
        found: list[dict[str, Any]] = []

        def is_complete() -> bool:
            found.append(self.service.told(f"/v1/dead-letters:summary?{query}"))
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
        return messages(self.client, topic)


def _letter(message: Message) -> Letter:
    # The binding types values as text too; what it hands over is always bytes or None.
    headers = cast("list[tuple[str, bytes | None]]", message.headers() or [])
    own = tuple((name, value) for name, value in headers if name not in _OURS)
    told = {name: (value or b"").decode() for name, value in headers if name in _OURS}
    return Letter(message.value(), message.timestamp()[1], own, told)
