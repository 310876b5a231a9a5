"""The entry: all commands are listed without loading any of them, nor what reads their options."""

import subprocess
import sys

import pytest
from typer.main import get_command

from service.cli.overview import LATER, RUN, overview
from service.main.cli import app

HEAVY = (
    "asyncio",
    "confluent_kafka",
    "dataclasses",
    "fastapi",
    "httpx2",
    "inspect",
    "json",
    "pathlib",
    "pydantic",
    "pyspark",
    "rich",
    "rocksdict",
    "service.main.cli",
    "service.cli.registry",
    "structlog",
    "subprocess",
    "typer",
    "uvicorn",
)
"""What would be felt; Typer and what it loads are three times Python's own start."""


def test_help_loads_nothing_that_takes_time() -> None:
    program = (
        "import sys\n"
        "before = set(sys.modules)\n"  # what the machine's own site loads
        "sys.argv = ['ringfence', '--help']\n"
        "from service.main.entry import main\n"
        "main()\n"
        f"print('loaded:', sorted(set({HEAVY!r}) & (set(sys.modules) - before)))"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    assert ran.stdout.startswith("Usage: ringfence")
    assert ran.stdout.endswith("loaded: []\n")


@pytest.mark.parametrize("module", ["service.main.entry", "service.main.cli"])
def test_help_is_the_same_whoever_is_asked(module: str) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", module, "--help"],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert ran.stdout == overview()


def test_whatever_else_is_asked_is_run() -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "service.main.entry", "statsu"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert ran.returncode == 2
    assert "'status'" in ran.stderr


def test_the_overview_names_every_command_and_every_option() -> None:
    root = get_command(app)
    named = {*RUN, *(name for names in LATER.values() for name in names)}
    assert named == set(root.commands)  # type: ignore[attr-defined]  # of a group
    for param in root.params:
        for option in param.opts:
            assert f"\n  {option} " in overview()


def test_the_overview_fits_a_terminal() -> None:
    assert max(map(len, overview().splitlines())) <= 80
