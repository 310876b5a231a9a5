"""The entry: its help lists all commands by section, and imports none of those that use the API."""

import subprocess
import sys

from typer.main import get_command

from service.cli.registry import LATER
from service.main.cli import app

HEAVY = ("confluent_kafka", "fastapi", "httpx2", "pydantic", "pyspark", "rich", "rocksdict")


def ran(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "service.main.entry", *words]
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
        "from service.main.entry import main\n"
        "try: main()\n"
        f"finally: print('loaded:', sorted(set({HEAVY!r}) & (set(sys.modules) - before)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.stdout.endswith("loaded: []\n")


def test_a_mistyped_command_is_a_usage_error_that_names_the_nearest() -> None:
    done = ran("statsu")
    assert done.returncode == 2
    assert "'status'" in done.stderr
