"""What the tests of a crew share: a supervisor on this thread, and a scene on another."""

import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path

from ringfence_service.config.addresses import AddressBook
from ringfence_service.config.kafka_properties import KafkaSettings
from ringfence_service.config.model import ApiSettings, Config, ServiceSettings
from ringfence_service.supervisor.supervisor import Supervisor
from tests.support.waiting import LIMIT_S, eventually


def config_of(workers: int) -> Config:
    return Config(
        KafkaSettings({"bootstrap.servers": "kafka:9092"}, {}, {}, {}),
        ServiceSettings(group_id="g", workers=workers, transaction_timeout_ms=1_000),
        ApiSettings(),
        (),
        AddressBook.of({}),
    )


def supervisor_of(folder: Path, behaviour: str, workers: int = 2) -> Supervisor:
    program = ("-m", "tests.unit.service.supervisor.dummy", behaviour)
    return Supervisor(config_of(workers), folder, hang_limit_s=LIMIT_S, program=program)


def run(supervisor: Supervisor) -> None:
    """Run until it ends by itself."""
    supervisor.start()
    try:
        supervisor.run()
    finally:
        supervisor.kill()


def play(supervisor: Supervisor, scene: Callable[[], None]) -> None:
    """Run until the scene is over, and raise what it raised."""
    failures: list[BaseException] = []

    def act() -> None:
        try:
            scene()
        except BaseException as failure:  # noqa: BLE001 - it is raised again
            failures.append(failure)
        supervisor.stop()

    thread = threading.Thread(target=act)
    thread.start()
    try:
        run(supervisor)
    finally:
        thread.join(LIMIT_S)
    if failures:
        raise failures[0]


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    except (FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
        return False


def lives(folder: Path, worker: int = 0) -> list[int]:
    """The ids of all processes that this worker has had."""
    file = folder / f"lives-{worker}"
    return [int(line) for line in file.read_text().splitlines()] if file.exists() else []


def freeze(pid: int | None) -> int:
    """SIGSTOP, and wait until every thread stands; tells the id."""
    assert pid is not None, "it does not run"
    os.kill(pid, signal.SIGSTOP)
    tasks = Path(f"/proc/{pid}/task")
    eventually(lambda: all(state_of(task) == "T" for task in tasks.iterdir()))
    return pid


def state_of(task: Path) -> str:
    return (task / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
