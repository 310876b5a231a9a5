"""In the service's place: sessions over HTTP, a judge that reads a real topic, and real acks.

What it knows is lost with it, so it is never killed; it may be down for a while.
"""

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from confluent_kafka import Consumer, Message, Producer, TopicPartition

from ringfence.headers import EPOCH, NUMBER, PUBLISHER
from ringfence.topics import acknowledgements
from tests.fakes.admin_api import AdminApi, Request, served
from tests.fakes.judge import Judge, Sent


class StandIn(AdminApi):
    """See the module; for one publisher, on an address that is called like its topic."""

    def __init__(self, client: Mapping[str, str], topic: str, partitions: int, group: str) -> None:
        super().__init__(Judge(), topic)
        self.partitions_written: set[int] = set()
        self._lock = threading.Lock()
        self._producer = Producer({**client, "linger.ms": 1})
        self._consumer = Consumer(
            {**client, "group.id": "stand-in", "enable.auto.commit": False, "fetch.wait.max.ms": 20}
        )
        self._consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
        self._acks = acknowledgements(group)

    def answer(self, request: Request) -> tuple[int, dict[str, str], str]:
        with self._lock:
            return super().answer(request)

    def decide(self) -> None:
        """Read some, judge them, acknowledge."""
        messages = self._consumer.consume(1000, 0.02)
        with self._lock:
            for message in messages:
                assert message.error() is None, message.error()
                self._take(message)
            before = len(self.judge.acks)
            self.judge.judge(10**6)
            for number in self.judge.acks[before:]:
                self._acknowledge(number)
        self._producer.flush(5)

    def _take(self, message: Message) -> None:
        said = dict(message.headers() or [])
        assert said[PUBLISHER] == b"author", said
        self.partitions_written.add(message.partition() or 0)
        value = message.value()
        assert not isinstance(value, str)
        self.judge.log.append(Sent(int(said[NUMBER] or 0), int(said[EPOCH] or 0), value))

    def _acknowledge(self, number: int) -> None:
        key = json.dumps([self.address, "author"], separators=(",", ":"))
        value = json.dumps({"sequence": number, "bookmark": f"1|{number}|"})
        self._producer.produce(self._acks, key=key.encode(), value=value.encode())

    def close(self) -> None:
        self._consumer.close()


@contextmanager
def deciding(stand_in: StandIn) -> Iterator[StandIn]:
    """Let it decide on a thread of its own, and answer."""
    ends = threading.Event()

    def run() -> None:
        while not ends.is_set():
            stand_in.decide()
        stand_in.close()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        with served(stand_in):
            yield stand_in
    finally:
        ends.set()
        thread.join(10)
