"""The entry: its help lists all commands by section, and imports none of those that use the API."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from typer.main import get_command

from ringfence_main.cli import app
from ringfence_service.cli.registry import LATER
from tests.support.repository import CHECKOUT

HEAVY = ("confluent_kafka", "fastapi", "httpx2", "pydantic", "pyspark", "rich", "rocksdict")


def ran(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "ringfence_main.entry", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


def test_help_lists_every_command_in_its_section_on_a_terminal_of_80_columns() -> None:
    lines = ran("--help").stdout.splitlines()
    assert max(map(len, lines)) <= 80
    titles = [line.removesuffix(":") for line in lines if line.endswith(":") and line[0] != " "]
    assert titles == ["Options", "Run", *LATER]
    listed = {line.split()[0] for line in lines[lines.index("Run:") :] if line[:3].strip()}
    assert {*get_command(app).commands} <= listed  # type: ignore[attr-defined]  # of a group


def test_help_loads_nothing_that_takes_time() -> None:
    program = (
        "import sys\n"
        "before = set(sys.modules)\n"  # what the machine's own site loads
        "sys.argv = ['ringfence', '--help']\n"
        "from ringfence_main.entry import main\n"
        "try: main()\n"
        f"finally: print('loaded:', sorted(set({HEAVY!r}) & (set(sys.modules) - before)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.stdout.endswith("loaded: []\n")


SIGNALLED_AT_AN_IMPORT = """
import os, signal, sys
module, number, program = sys.argv[1], int(sys.argv[2]), sys.argv[3]

class Signal:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == module:
            os.kill(os.getpid(), number)

sys.argv = [program, *sys.argv[4:]]
sys.meta_path.insert(0, Signal)
import importlib
importlib.import_module(program).main()
"""


@pytest.mark.parametrize(
    ("module", "number", "words"),
    [
        (
            "ringfence_main.cli",
            signal.SIGTERM,
            ["ringfence_main.entry", "serve", "--config", "FILE"],
        ),
        (
            "ringfence_main.cli",
            signal.SIGINT,
            ["ringfence_main.entry", "serve", "--config", "FILE"],
        ),
        ("pydantic", signal.SIGTERM, ["ringfence_main.entry", "serve", "--config", "FILE"]),
        (
            "ringfence_main.serve",
            signal.SIGTERM,
            ["ringfence_main.entry", "serve", "--config", "FILE"],
        ),
        (
            "ringfence_main.cli",
            signal.SIGTERM,
            ["ringfence_main.entry", "bridge", "--config", "FILE"],
        ),
        ("ringfence_service.clock", signal.SIGTERM, ["ringfence_main.worker", "3", "1"]),
        ("confluent_kafka", signal.SIGTERM, ["ringfence_main.worker", "3", "1"]),
    ],
)
def test_a_signal_at_any_moment_of_a_start_ends_it_with_0_and_a_line(
    module: str, number: signal.Signals, words: list[str], tmp_path: Path
) -> None:
    file = tmp_path / "ringfence.toml"
    file.write_text('[kafka]\n"bootstrap.servers" = "b:9092"\n[[routes]]\ninputs = ["in"]\n')
    given = [str(file) if word == "FILE" else word for word in words]
    done = subprocess.run(
        [sys.executable, "-c", SIGNALLED_AT_AN_IMPORT, module, str(number.value), *given],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        cwd=CHECKOUT,
    )
    expected = f"ringfence: stopped by {number.name} while starting.\n"
    assert (done.returncode, done.stderr) == (0, expected)


def test_a_mistyped_command_is_a_usage_error_that_names_the_nearest() -> None:
    done = ran("statsu")
    assert done.returncode == 2
    assert "'status'" in done.stderr
