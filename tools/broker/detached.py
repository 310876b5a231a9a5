"""Development broker that survives the command that started it: up, down, status, topics.

It is running if and only if its data folder is locked. `broker.json` beside the data has its
process id and address; it is written before the broker is ready, so that `down` can end a start
that failed.
"""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic  # where the types are exported

from tools.broker.config import are_free
from tools.broker.embedded import DEFAULT_MACHINE, LAUNCH, STOP_TIMEOUT_S
from tools.broker.errors import BrokerError
from tools.broker.node import Node, is_running, log_tail, open_node, prepare
from tools.broker.ready import START_TIMEOUT_S, wait_until_ready
from tools.jars import exclusive

DEFAULT_FOLDER: Final = Path(__file__).parents[2] / ".run" / "broker"
KAFKA_PORT: Final = 9092
"""The port that Kafka's own quick start and most examples name."""

_POLL_S: Final = 0.05
_TOPIC_S: Final = 30.0


class State(NamedTuple):
    """The content of `broker.json`."""

    pid: int
    bootstrap_servers: str


def up(folder: Path = DEFAULT_FOLDER) -> str:
    """Start the broker unless it runs; return its bootstrap servers once it answers."""
    folder.mkdir(parents=True, exist_ok=True)
    with exclusive(folder / "command.lock", START_TIMEOUT_S + STOP_TIMEOUT_S):
        running = status(folder)
        if running is None:
            running = _start(folder)
        return running


def down(folder: Path = DEFAULT_FOLDER) -> bool:
    """Stop the broker and keep its data; return whether it was running."""
    if status(folder) is None:
        return False
    with exclusive(folder / "command.lock", START_TIMEOUT_S + STOP_TIMEOUT_S):
        _stop(folder, _read_state(folder).pid)
    return True


def status(folder: Path = DEFAULT_FOLDER) -> str | None:
    """Return the bootstrap servers of the running broker, or None."""
    if not (folder / "broker.json").exists() or not is_running(folder):
        return None
    return _read_state(folder).bootstrap_servers


def create_topic(name: str, partitions: int, folder: Path = DEFAULT_FOLDER) -> None:
    """Create a topic on the running broker; raise BrokerError if that is not possible."""
    running = status(folder)
    if running is None:
        raise BrokerError("The broker does not run: `ringfence broker up` starts it.")
    admin = AdminClient({"bootstrap.servers": running, "log_level": 0})
    created = admin.create_topics([NewTopic(name, partitions)], request_timeout=_TOPIC_S)
    try:
        created[name].result(_TOPIC_S)
    except KafkaException as error:
        cause = error.args[0].str().rstrip(".")
        raise BrokerError(f"Topic {name} was not created: {cause}.") from error


def _start(folder: Path) -> str:
    node = open_node(folder, KAFKA_PORT)
    pid = _launch(node)
    is_ready = _is_ready(node, pid)
    if not is_ready and not _exists(pid) and not are_free(node.ports):
        # Somebody else took a port after it was chosen.
        node = open_node(folder)
        pid = _launch(node)
        is_ready = _is_ready(node, pid)
    if not is_ready:
        _signal(pid, signal.SIGKILL)
        message = (
            f"The broker on {folder} did not answer within {START_TIMEOUT_S:.0f} s; look at its"
            f" log. {log_tail(node)}"
        )
        raise BrokerError(message)
    return node.bootstrap_servers


def _launch(node: Node) -> int:
    """Start the process of a node, and return its id."""
    command = prepare(node, {}, DEFAULT_MACHINE)
    launch = [sys.executable, "-I", "-S", str(LAUNCH), "detached"]
    with node.log_path.open("ab") as log:
        launched = subprocess.run(
            [*launch, *command],
            check=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            cwd=node.folder,
            timeout=START_TIMEOUT_S,
        )
    state = State(pid=int(launched.stdout), bootstrap_servers=node.bootstrap_servers)
    _write_state(node.folder, state)
    return state.pid


def _is_ready(node: Node, pid: int) -> bool:
    """Wait until a node answers; return False if it ends, or does not in time."""
    client_properties = {"bootstrap.servers": node.bootstrap_servers}
    return wait_until_ready(client_properties, lambda: _exists(pid), cluster_id=node.cluster_id)


def _stop(folder: Path, pid: int) -> None:
    for end in (signal.SIGTERM, signal.SIGKILL):
        _signal(pid, signal.SIGCONT)  # A frozen process handles no other signal.
        _signal(pid, end)
        deadline = time.monotonic() + STOP_TIMEOUT_S
        while time.monotonic() < deadline:
            if not is_running(folder):
                return
            time.sleep(_POLL_S)
    message = (
        f"{folder} is still in use after process {pid} was killed: stop the other process that"
        " serves it."
    )
    raise BrokerError(message)


def _write_state(folder: Path, state: State) -> None:
    written = folder / "broker.json.new"
    written.write_text(json.dumps(state._asdict()) + "\n", encoding="utf-8")
    written.replace(folder / "broker.json")


def _read_state(folder: Path) -> State:
    return State(**json.loads((folder / "broker.json").read_text(encoding="utf-8")))


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def _signal(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)
