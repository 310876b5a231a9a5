"""Scene for screenshots and browser tests: a shop's topics, a service, and publishers that resend.

Some addresses remember long enough and some do not, and some records have no id, so that every
page has something to show. Seeded; runs until its block ends.
"""

import json
import math
import os
import random
import subprocess
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tools.broker.cluster import Broker
from tools.demo.service import ATTACHED, HOST, SERVE, answers_ready, environment

TOPICS: Final = ("orders", "payments", "shipments")
PARTITIONS: Final = 4
BRANCHES: Final = (
    ("orders", "berlin", 34),
    ("orders", "lyon", 21),
    ("orders", "porto", 12),
    ("payments", "card", 27),
    ("payments", "transfer", 6),
    ("shipments", "parcel", 18),
    ("shipments", "freight", 2),
)
"""Topic, branch, and mean records per second."""
START_MAX_S: Final = 300.0

CONFIG: Final = """\
[kafka]
"bootstrap.servers" = {bootstrap_servers}
[service]
group_id = "shop"
workers = 2
batch_wait_ms = {batch_wait_ms}
state_dir = {state_dir}
create_topics = true
[api]
port = {port}
[[routes]]
name = "shop"
inputs = {inputs}
scope = "address"
address = "{{topic}}.{{header:branch}}"
output = "{{topic}}.unique"
dead_letter = "{{topic}}.dlq"
missing_id = "dead_letter"
[addresses."#"]
id_cache_size = 20000
[addresses."orders.*"]
id_cache_size = 4000
[addresses."payments.card"]
id_cache_size = 1500
[addresses."shipments.#"]
strategy = "window"
window_ms = 600000
window_size = 5000
"""


class Scene:
    """Context manager that runs the service and its load, and leaves no process behind."""

    def __init__(
        self, broker: Broker, folder: Path, port: int, extra: str = "", *, batch_wait_ms: int = 20
    ) -> None:
        self._broker = broker
        self._port = port
        self._log = folder / "service.log"
        self._config = folder / "ringfence.toml"
        config = CONFIG.format(
            bootstrap_servers=json.dumps(broker.bootstrap_servers),
            state_dir=json.dumps(str(folder / "state")),
            port=port,
            batch_wait_ms=batch_wait_ms,
            inputs=json.dumps(list(TOPICS)),
        )
        self._config.write_text(config + extra, encoding="utf-8")
        self._service: subprocess.Popen[bytes] | None = None
        self._ended = threading.Event()
        self._load = threading.Thread(target=self._publish, name="load", daemon=True)

    @property
    def url(self) -> str:
        """URL of the console."""
        return f"http://{HOST}:{self._port}"

    def __enter__(self) -> Self:
        admin = AdminClient({**self._broker.client_properties})
        names = [each for topic in TOPICS for each in (topic, f"{topic}.unique", f"{topic}.dlq")]
        topics = [NewTopic(name, num_partitions=PARTITIONS) for name in names]
        for created in admin.create_topics(topics, operation_timeout=30).values():
            created.result(timeout=30)
        self.start()
        self._load.start()
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        self._ended.set()
        self._load.join(10)
        self.stop()

    def start(self) -> None:
        """Start the service and wait until it is ready."""
        with self._log.open("ab") as log:
            self._service = subprocess.Popen(
                [*ATTACHED, str(os.getpid()), *SERVE, "--config", str(self._config)],
                cwd=Path(__file__).parents[2],
                env=environment(self._broker.bootstrap_servers),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        deadline_s = time.monotonic() + START_MAX_S
        while not answers_ready(self._port):
            if self._service.poll() is not None or time.monotonic() > deadline_s:
                raise RuntimeError(f"the service is not ready; see {self._log}")
            time.sleep(0.2)

    def stop(self) -> None:
        """Stop the service with SIGTERM."""
        if self._service is not None:
            self._service.terminate()
            self._service.wait(60)

    def _publish(self) -> None:
        chance = random.Random(7)
        producer = Producer({**self._broker.client_properties, "linger.ms": 20})
        sent: dict[str, list[str]] = {branch: [] for _, branch, _ in BRANCHES}
        started_s, turn = time.monotonic(), 0
        while not self._ended.wait(0.1):
            turn += 1
            # Two waves of different length make an hour's charts look like a day's.
            at_s = time.monotonic() - started_s
            load = 1 + 0.35 * math.sin(at_s / 47) + 0.2 * math.sin(at_s / 13)
            for topic, branch, per_second in BRANCHES:
                for _ in range(_times(per_second * load / 10, chance)):
                    _send(producer, topic, branch, sent[branch], chance)
            producer.poll(0)
        producer.flush(10)


def _times(mean: float, chance: random.Random) -> int:
    return int(mean) + (chance.random() < mean % 1)


def _send(
    producer: Producer, topic: str, branch: str, sent: list[str], chance: random.Random
) -> None:
    resends = chance.random() < (0.11 if topic == "payments" else 0.05) and len(sent) > 10
    name = chance.choice(sent[-400:]) if resends else f"{branch}-{len(sent) + 1:07d}"
    if not resends:
        sent.append(name)
    headers: list[tuple[str, str | bytes | None]] = [("branch", branch.encode())]
    if chance.random() > 0.004:
        headers.append(("_DUPL_ID", name.encode()))
    value = json.dumps({"number": name, "cents": chance.randint(199, 49_900), "currency": "EUR"})
    producer.produce(topic, key=name.encode(), value=value.encode(), headers=headers)
