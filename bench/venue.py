"""Venue of the benchmarks: one broker for all arms, and new topics for each run."""

import shutil
import uuid
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Final, cast

from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic  # where the types are exported

from bench.arms import Arm, Stage, running
from bench.machine import busy_s, cpu_s
from bench.progress import CpuTime, Pace, Point, follow, pace
from bench.workload import ADDRESS_HEADER, Workload, write
from ringfence_client.headers import DUPLICATE_ID
from ringfence_service.kafka.model import UNLIMITED
from tools.broker.cluster import Broker, open_broker
from tools.broker.config import choose_ports
from tools.jars import RUN_FOLDER

FOLDER: Final = RUN_FOLDER / "bench" / "venue"
_TIMEOUT_S: Final = 60
_NO_SETTINGS: Final[Mapping[str, str]] = {}
_ANY_TIME: Final = {"message.timestamp.after.max.ms": str(UNLIMITED)}


class Venue:
    """A broker whose input topics are kept, and whose other topics belong to single runs."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.client: dict[str, str | int | float | bool] = {**broker.client_properties}
        # The client outlives the broker, and would log its absence.
        self.admin = AdminClient({**self.client, "log_level": 0})
        self._inputs: dict[Workload, str] = {}
        self._runs = 0

    def input(self, workload: Workload) -> str:
        """Return the topic that holds the workload, writing it on first use."""
        if workload not in self._inputs:
            self._runs += 1
            topic = f"input-{self._runs}"
            is_ahead = workload.odd == "ahead"
            self.create(topic, workload.partitions, _ANY_TIME if is_ahead else {})
            write(workload, self.client, topic)
            self._inputs[workload] = topic
        return self._inputs[workload]

    def forget(self, workload: Workload) -> None:
        """Delete the topic of a workload, to free its disk space."""
        self._delete([self._inputs.pop(workload)])

    def create(
        self, topic: str, partitions: int, settings: Mapping[str, str] = _NO_SETTINGS
    ) -> None:
        """Create a topic that keeps all records, whatever their timestamps."""
        config = {"retention.ms": "-1", **settings}
        new_topic = NewTopic(topic, partitions, 1, config=config)
        self.admin.create_topics([new_topic])[topic].result(_TIMEOUT_S)

    @contextmanager
    def stage(self, arm: Arm, source: str, partitions: int, **setup: object) -> Iterator[Stage]:
        """Create topics and a folder for one run; delete all of them after the block.

        `output_settings` in the setup are those of the output topic.
        """
        output_settings = cast("Mapping[str, str]", setup.pop("output_settings", _NO_SETTINGS))
        self._runs += 1
        group = f"{arm.name}-{self._runs}"
        folder = FOLDER / group
        folder.mkdir(parents=True)
        output, dead_letter = f"{group}-unique", f"{group}-dead"
        self.create(output, partitions, output_settings)
        self.create(dead_letter, partitions)
        servers = self.broker.bootstrap_servers
        setup.setdefault("api_port", free_port())
        try:
            yield Stage(servers, source, output, dead_letter, group, folder, **setup)  # type: ignore[arg-type]
        finally:
            topics = self.admin.list_topics(timeout=_TIMEOUT_S).topics
            self._delete(
                [topic for topic in topics if topic.startswith((f"{group}-", f"{group}."))]
            )
            shutil.rmtree(folder, ignore_errors=True)

    def pace(self, arm: Arm, workload: Workload, **setup: object) -> Pace:
        """Run an arm over a whole workload; return how fast it was."""
        with self.reading(arm, workload, **setup) as stage, running(arm, stage) as one:
            points, used = list[Point](), list[CpuTime]()
            for point in self.follow(stage, workload, one.check):
                points.append(point)
                used.append(CpuTime(sum(cpu_s(one.pid).values()), busy_s()))
            return pace(points, used)

    def reading(
        self, arm: Arm, workload: Workload, **setup: object
    ) -> AbstractContextManager[Stage]:
        """Return a stage whose input is the workload."""
        if workload.has_addresses:
            setup["address"] = f"{{header:{ADDRESS_HEADER}}}"
        return self.stage(arm, self.input(workload), workload.partitions, **setup)

    def follow(
        self,
        stage: Stage,
        workload: Workload,
        check: Callable[[], None],
        records: int | None = None,
    ) -> Generator[Point]:
        """Yield the progress of the stage's group up to `records`, or the whole workload."""
        total = workload.records if records is None else records
        return follow(self.client, stage.group, stage.input, workload.partitions, total, check)

    def append(self, topic: str, partition: int = 0) -> int:
        """Append a record with a new id to a partition; return the end offset after it."""
        ends: list[int] = []
        identifier = uuid.uuid4().hex.encode()
        producer = Producer(self.client)
        producer.produce(
            topic,
            b"{}",
            key=identifier,
            partition=partition,
            headers=[(DUPLICATE_ID, identifier)],
            on_delivery=lambda _error, message: ends.append((message.offset() or 0) + 1),
        )
        producer.flush(_TIMEOUT_S)
        return ends[0]

    def read(self, topic: str, partitions: int) -> Iterator[Message]:
        """Yield every committed record of a topic that is no longer written to."""
        owned: dict[str, str | int | float | bool] = {
            "group.id": f"{topic}-audit",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
        consumer = Consumer({**self.client, **owned})
        consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
        reading = partitions
        while reading:
            for message in consumer.consume(10_000, 0.5):
                error = message.error()
                if error is None:
                    yield message
                elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - its name
                    reading -= 1
                else:
                    raise KafkaException(error)
        consumer.close()

    def _delete(self, topics: list[str]) -> None:
        for done in self.admin.delete_topics(topics).values():
            done.result(_TIMEOUT_S)


def free_port() -> int:
    """Return a free port."""
    return choose_ports(FOLDER / "none").client


@contextmanager
def open_venue() -> Iterator[Venue]:
    """Start a broker of the kind that the environment selects."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    with open_broker(Path(FOLDER) / "broker") as broker:
        yield Venue(broker)
    # Kept after a failure, for the logs of the arms and the broker.
    shutil.rmtree(FOLDER, ignore_errors=True)
