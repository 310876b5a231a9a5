"""Configurations and what is said of each, to the letter: `configurations/*.txt`.

    | [kafka]                       lines of every configuration that follows
    == a sentence about what follows
    + batch_wait = 20               a line of this configuration alone
    $ RINGFENCE_API__PORT=many      a variable of its environment
    ! service.batch_wait is ...     a problem that is found; or `ok`

With RINGFENCE_RECORD=1 the tests write down what is said now, for a look at the difference.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Final

import pytest

from ringfence_service.bridge import config as bridge
from ringfence_service.config import load as config
from ringfence_service.errors import ConfigIssue

FOLDER: Final = Path(__file__).parent / "configurations"
FILES: Final = sorted(FOLDER.glob("*.txt"))

Problems = Callable[[Path, Mapping[str, str]], Sequence[ConfigIssue]]


def problems_of(path: Path, environ: Mapping[str, str]) -> Sequence[ConfigIssue]:
    return config.load_lenient(path, environ)[1]


def problems_of_bridge(path: Path, environ: Mapping[str, str]) -> Sequence[ConfigIssue]:
    return bridge.load_lenient(path, environ)[1]


def replayed(text: str, problems: Problems, folder: Path) -> Iterator[str]:
    """The same file with what is said now."""
    path, base = folder / "ringfence.toml", list[str]()
    for mark, lines in groupby(text.splitlines(), lambda line: line[:1].replace("$", "+")):
        block = list(lines)
        if mark == "|":
            base = [line[2:] for line in block]
        if mark in {"|", "=", ""}:
            yield from block
        if mark == "+":
            own = [line[2:] for line in block if line.startswith("+")]
            path.write_text("\n".join([*base, *own, ""]), "utf-8")
            told = [line[2:] for line in block if line.startswith("$")]
            environ = {name: value for name, _, value in (each.partition("=") for each in told)}
            found = [f"! {each}".replace(str(folder), "~") for each in problems(path, environ)]
            yield from (*block, *(found or ["ok"]))


@pytest.mark.parametrize("file", FILES, ids=lambda path: path.stem)
def test_of_each_configuration_this_is_said(file: Path, tmp_path: Path) -> None:
    text = file.read_text("utf-8")
    problems = problems_of_bridge if file.stem == "bridge" else problems_of
    found = "\n".join(replayed(text, problems, tmp_path)) + "\n"
    if os.environ.get("RINGFENCE_RECORD"):
        file.write_text(found, "utf-8")
    assert found == text
