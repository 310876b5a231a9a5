"""The commands: all have help with examples that can be run, and cost nothing before they are."""

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
import typer.main
from typer.core import TyperCommand, TyperGroup

from ringfence_main.cli import app
from ringfence_pipeline.command import app as jobs
from ringfence_service.cli.registry import LATER, load
from tests.unit.service.cli.conftest import Shell

NAMES = [name for section in LATER.values() for name in section]
NEEDED_LATER = ("confluent_kafka", "fastapi", "httpx2", "rich", "structlog")


def commands(name: str, command: Any) -> Iterator[tuple[str, TyperCommand]]:
    """All commands below a name, each with the words that call it."""
    if isinstance(command, TyperGroup):
        for each, below in command.commands.items():
            yield from commands(f"{name} {each}", below)
    else:
        yield name, command


RUN = {
    name: command
    for first, each in cast("TyperGroup", typer.main.get_command(app)).commands.items()
    for name, command in commands(first, each)
    if first not in {*NAMES, "pipeline"}
}
ALL = dict(found for name in NAMES for found in commands(name, load(name)))
"""Those that ask the API."""
EVERY = RUN | ALL | dict(commands("pipeline", typer.main.get_command(jobs)))


@pytest.mark.parametrize("name", RUN | ALL)
def test_a_command_tells_what_it_does_with_examples_that_can_be_parsed(
    name: str, shell: Shell
) -> None:
    ran = shell(*name.split(), "--help")
    assert ran.code == 0
    examples = [
        line.strip() for line in ran.out.partition("Example")[2].splitlines() if "ringfence" in line
    ]
    assert examples
    root = typer.main.get_command(app)
    for example in examples:
        words = shlex.split(example.partition(" | ")[0].partition(" > ")[0].partition(" <<<")[0])
        assert words[: 1 + len(name.split())] == ["ringfence", *name.split()]
        parsed(root, words[1:])


def parsed(command: Any, words: list[str]) -> None:
    """Parse a command line as a run would, and run nothing."""
    context = command.make_context("ringfence", words)
    while isinstance(context.command, TyperGroup):
        rest = [*context._protected_args, *context.args]
        name, below, rest = context.command.resolve_command(context, rest)
        assert below is not None
        context = below.make_context(name, rest, parent=context)


@pytest.mark.parametrize("name", EVERY)
def test_the_first_line_of_a_help_is_a_sentence(name: str) -> None:
    first = (EVERY[name].help or "").splitlines()[0]
    assert first.endswith((".", "?"))
    assert first[0].isupper()


def test_help_loads_nothing_that_only_an_answer_needs() -> None:
    program = (
        "import sys\n"
        "from ringfence_main.cli import main\n"
        "for words in (['--help'], ['redrive', '--help'], ['status', '--help']):\n"
        "    sys.argv = ['ringfence', *words]\n"
        "    try: main()\n"
        "    except SystemExit: pass\n"
        f"print('loaded:', sorted(set({NEEDED_LATER!r}) & set(sys.modules)))"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    assert ran.stdout.endswith("loaded: []\n")


def test_a_mistyped_command_is_answered_with_the_one_that_was_meant(shell: Shell) -> None:
    ran = shell("statsu")
    assert ran.code == 2
    assert "'status'" in ran.err


def test_help_lists_every_command_with_a_sentence(shell: Shell) -> None:
    told = shell("--help").out
    for section, names in LATER.items():
        assert f"{section}:" in told
        for name, later in names.items():
            assert f"  {name} " in told
            assert later.sentence in " ".join(told.split())


DOCUMENTED = (Path(__file__).parents[4] / "docs" / "cli.md").read_text("utf-8")


@pytest.mark.parametrize("name", EVERY)
def test_every_command_is_documented_as_its_help_tells_it(name: str) -> None:
    sentence = " ".join((EVERY[name].help or "").partition("\n\n")[0].split())
    assert f"| `{name}` | {sentence} |" in DOCUMENTED


def test_no_command_is_documented_that_there_is_not() -> None:
    table = DOCUMENTED.partition("## Commands")[2]
    assert set(re.findall(r"^\| `([^`]+)` \|", table, re.MULTILINE)) == set(EVERY)


@pytest.mark.parametrize("option", ["--url", "--token-file", "--ca-file", "--timeout"])
def test_what_all_commands_take_is_documented(option: str) -> None:
    assert f"`{option}`" in DOCUMENTED
    assert option in {each for param in ALL["status"].params for each in param.opts}
