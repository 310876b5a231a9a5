"""Arms of the comparisons: each a process that is started on the same topics and stopped."""

import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from bench.encoded import registry_url
from bench.java import classpath
from ringfence_service.config.templates import PLAIN
from ringfence_service.supervisor.heap import with_heap_tuned
from tools.broker.embedded import LAUNCH
from tools.jars import java_command
from tools.source_roots import python_path

ROOT: Final = Path(__file__).parents[1]
QUIX_PYTHON: Final = ROOT / ".venv" / "quix" / "bin" / "python"
ATTACHED: Final = (sys.executable, "-I", "-S", str(LAUNCH), "attached")
SAMPLES: Final = "samples.json"
_FLINK_OPENS: Final = tuple(
    f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in ("java.lang", "java.util")
)
"""What Flink's own configuration opens to it."""
_END_S: Final = 60


_WINDOW_MS: Final = 31 * 86_400_000
"""Longer than any run, and than the times of prefilled ids are apart."""


class Stage(NamedTuple):
    """The setting of one run: broker, topics, a folder, and the configuration of the arm."""

    bootstrap_servers: str
    input: str
    output: str
    dead_letter: str
    group: str
    folder: Path
    batch_records: int = 10_000
    batch_wait_ms: int = 20
    id_cache_size: int = 20_000
    strategy: str = "ring"
    cache_memory_mb: int = 256
    on_duplicate: str = "dead_letter"
    id: str = ""
    missing_id: str = "pass"
    address: str = "bench"
    scope: str = "partition"
    workers: int = 1
    standby: str = "off"
    instance: str = "0"
    api_port: int = 0
    beside: str = ""
    """The input of a second route, if there is one."""
    registry: str = ""
    """The URL of the schema registry; by default that of one which ends with this process."""
    code: Path = ROOT
    """The checkout whose code runs."""

    @property
    def output_beside(self) -> str:
        """The output of the second route."""
        return f"{self.group}-beside"


class Arm(NamedTuple):
    """One system to measure: its name, and the command that starts it."""

    name: str
    command: Callable[[Stage], list[str]]


class Running(NamedTuple):
    """A running arm: its process id, and a check that raises if it has died."""

    pid: int
    check: Callable[[], None]


@contextmanager
def running(arm: Arm, stage: Stage) -> Iterator[Running]:
    """Run an arm; stop it with SIGTERM, and kill it after a timeout."""
    log = stage.folder / f"{arm.name}-{stage.instance}.log"
    # A supervisor starts its workers without the current folder in their path.
    environ = {**os.environ, "PYTHONPATH": python_path(stage.code)}
    with log.open("ab") as output:
        process = subprocess.Popen(
            [*ATTACHED, str(os.getpid()), *arm.command(stage)],
            cwd=stage.code,
            env=with_heap_tuned(environ),  # as the supervisor does for its workers
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )

    def check() -> None:
        if process.poll() is not None:
            tail = log.read_text(encoding="utf-8", errors="replace")[-2000:]
            raise RuntimeError(f"{arm.name} ended by itself with {process.returncode}:\n{tail}")

    try:
        yield Running(process.pid, check)
    finally:
        process.terminate()
        try:
            process.wait(timeout=_END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(timeout=_END_S)


def _ringfence(stage: Stage) -> list[str]:
    document = tomllib.loads((stage.code / "pyproject.toml").read_text("utf-8"))
    module, _, _ = document["project"]["scripts"]["ringfence"].partition(":")
    return [sys.executable, "-m", module, "serve", "--config", str(_config(stage))]


def _floor(stage: Stage) -> list[str]:
    return [sys.executable, "-m", "bench.floor", str(_config(stage))]


def _kafka_streams(stage: Stage) -> list[str]:
    return [
        *(java_command(), "-Xmx1g", "-cp", classpath("kafka_streams", "RingPeer"), "RingPeer"),
        *(stage.bootstrap_servers, stage.group, stage.input, stage.output, stage.dead_letter),
        *(str(stage.folder / "streams"), str(stage.id_cache_size)),
    ]


def _flink(stage: Stage, state: str, checkpoint_ms: int) -> list[str]:
    return [
        *(java_command(), "-Xmx1g", *_FLINK_OPENS, "-cp", classpath("flink", "FlinkPeer")),
        *("FlinkPeer", stage.bootstrap_servers, stage.group, stage.input, stage.output),
        *(stage.dead_letter, str(stage.folder / "flink"), str(stage.id_cache_size)),
        *(state, str(checkpoint_ms)),
    ]


def _quix(stage: Stage) -> list[str]:
    return [
        *(str(QUIX_PYTHON), str(ROOT / "bench" / "peers" / "quix.py")),
        *("--bootstrap-servers", stage.bootstrap_servers, "--group", stage.group),
        *("--input", stage.input, "--output", stage.output),
        *("--state-dir", str(stage.folder / "quix"), "--batch", str(stage.batch_records)),
    ]


def _sampled(stage: Stage) -> list[str]:
    found = str(stage.folder / SAMPLES)
    return [sys.executable, "-m", "bench.sampler", str(_config(stage)), found]


RINGFENCE: Final = Arm("ringfence", _ringfence)
SAMPLED: Final = Arm("ringfence", _sampled)
"""Ringfence under the sampler, which at its end writes how the loop spent its time."""
SAMPLED_IN_PYTHON: Final = Arm(
    "ringfence_python", lambda stage: ["env", "RINGFENCE_FAST_PATH=python", *_sampled(stage)]
)
"""The same on the path in Python."""
IN_PYTHON: Final = Arm(
    "ringfence_python", lambda stage: ["env", "RINGFENCE_FAST_PATH=python", *_ringfence(stage)]
)
"""Ringfence on the path in Python."""
PLAIN_FIELDS: Final = Arm(
    "plain_fields", lambda stage: _ringfence(stage._replace(id=f"{PLAIN}{stage.id}"))
)
"""Ringfence whose id puts its fields together as they are."""
FLOOR: Final = Arm("floor", _floor)
NATIVE_FLOOR: Final = Arm(
    "native_floor",
    lambda stage: [sys.executable, "-m", "bench.native_floor", str(_config(stage))],
)
KAFKA_STREAMS: Final = Arm("kafka_streams", _kafka_streams)
FLINK: Final = Arm("flink", lambda stage: _flink(stage, "hashmap", 1_000))
FLINK_OFTEN: Final = Arm("flink_often", lambda stage: _flink(stage, "hashmap", 100))
"""Flink with ten checkpoints a second: its output becomes visible with a checkpoint."""
FLINK_ROCKSDB: Final = Arm("flink_rocksdb", lambda stage: _flink(stage, "rocksdb", 1_000))
QUIX: Final = Arm("quix", _quix)


def _registry(stage: Stage) -> str:
    if "{schema:" not in stage.id:
        return ""
    return f'[schema_registry]\nurl = "{stage.registry or registry_url()}"\n'


def _limits(stage: Stage) -> str:
    if stage.strategy == "ring":
        return f"id_cache_size = {stage.id_cache_size}"
    return f"window_size = {stage.id_cache_size}\nwindow_ms = {_WINDOW_MS}"


def _beside(stage: Stage) -> str:
    if not stage.beside:
        return ""
    return f"""\
[[routes]]
inputs = ["{stage.beside}"]
scope = "{stage.scope}"
address = "beside"
output = "{stage.output_beside}"
dead_letter = "{stage.dead_letter}"
"""


def _standby(stage: Stage) -> str:
    """Return the line, which earlier versions do not know, only where it says something."""
    return "" if stage.standby == "off" else f'standby = "{stage.standby}"\n'


def _config(stage: Stage) -> Path:
    """Write one configuration for the service and the floor; other keys have their defaults."""
    path = stage.folder / f"ringfence-{stage.instance}.toml"
    path.write_text(
        f"""\
[kafka]
"bootstrap.servers" = "{stage.bootstrap_servers}"
[service]
group_id = "{stage.group}"
instance = "{stage.instance}"
workers = {stage.workers}
state_dir = {json.dumps(str(stage.folder / "state"))}
batch_records_max = {stage.batch_records}
batch_wait_ms = {stage.batch_wait_ms}
cache_memory_mb = {stage.cache_memory_mb}
{_standby(stage)}[api]
port = {stage.api_port}
[[routes]]
inputs = ["{stage.input}"]
scope = "{stage.scope}"
id = "{stage.id}"
missing_id = "{stage.missing_id}"
address = "{stage.address}"
output = "{stage.output}"
dead_letter = "{stage.dead_letter}"
{_beside(stage)}[addresses."#"]
strategy = "{stage.strategy}"
{_limits(stage)}
on_duplicate = "{stage.on_duplicate}"
{_registry(stage)}""",
        encoding="utf-8",
    )
    return path
