"""Arms: what is compared, each a process on the same topics that is started and ended."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from tools.broker.embedded import LAUNCH

ROOT: Final = Path(__file__).parents[1]
ATTACHED: Final = (sys.executable, "-I", "-S", str(LAUNCH), "attached")


class Stage(NamedTuple):
    """Where an arm works: broker, topics, a folder of its own, and the batch to use."""

    bootstrap_servers: str
    input: str
    output: str
    dead_letter: str
    group: str
    folder: Path
    batch_records: int
    batch_wait_ms: int
    addresses: int
    id_cache_size: int
    on_duplicate: str


class Arm(NamedTuple):
    """One contestant. `command` is run in a process group of its own and gets SIGTERM."""

    name: str
    command: Callable[[Stage], list[str]]
    environment: Mapping[str, str] = {}

    def start(self, stage: Stage) -> subprocess.Popen[bytes]:
        """Start it; its output goes to a log in its folder."""
        log = stage.folder / f"{self.name}.log"
        with log.open("ab") as output:
            return subprocess.Popen(
                [*ATTACHED, str(os.getpid()), *self.command(stage)],
                cwd=ROOT,
                env={**os.environ, **self.environment},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )


def _ringfence(stage: Stage) -> list[str]:
    return [sys.executable, "-m", "service.cli", "serve", "--config", str(_config(stage))]


def _floor(stage: Stage) -> list[str]:
    return [sys.executable, "-m", "bench.floor", str(_config(stage))]


RINGFENCE: Final = Arm("ringfence", _ringfence)
FLOOR: Final = Arm("floor", _floor)


def _config(stage: Stage) -> Path:
    """One configuration for the service and for the floor."""
    path = stage.folder / "ringfence.toml"
    address = "bench" if stage.addresses == 1 else "{header:address}"
    path.write_text(
        f"""\
[kafka]
"bootstrap.servers" = "{stage.bootstrap_servers}"
[service]
group_id = "{stage.group}"
state_dir = {json.dumps(str(stage.folder / "state"))}
batch_records_max = {stage.batch_records}
batch_wait_ms = {stage.batch_wait_ms}
[api]
port = 0
[[routes]]
inputs = ["{stage.input}"]
scope = "partition"
address = "{address}"
output = "{stage.output}"
dead_letter = "{stage.dead_letter}"
[addresses."#"]
id_cache_size = {stage.id_cache_size}
on_duplicate = "{stage.on_duplicate}"
""",
        encoding="utf-8",
    )
    return path
