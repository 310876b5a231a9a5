"""A transcript: what is typed at a shell and what is answered, verbatim.

    == a sentence about what follows
    $ ringfence id get orders id-1      in a pipe; `%` at a terminal; `$ cat FILE` is answered too
    < y                                 a line typed or piped in, or a line of the `$ write` file
    id      id-1                        what is printed; tabs in output for programs appear as →
    ! There are more.                   what is printed on stderr
    [3]                                 the exit code, where it is not 0

With RINGFENCE_RECORD=1 the tests record the current answers, so that you can review the diff.
"""

import re
import shlex
from collections.abc import Callable, Iterator
from itertools import takewhile
from pathlib import Path
from typing import Final

_TIME: Final = re.compile(r"20\d\d-\d\d-\d\d[T ][\d:.]+(Z|\+00:00)")
_FIXED: Final = ("2023-11-14", "2026-01-02")
"""Days of the fake service; every other one is of the clock."""
_STYLE: Final = re.compile(r"\x1b\[[012]m")
"""Bold, dim and neither."""

Run = Callable[[list[str], str | None, str], tuple[int, str, str]]
"""A command with what is typed at a terminal, or else piped."""


def replayed(text: str, run: Run, folder: Path) -> str:
    """The same transcript with the answers that are given now."""
    told = [line for each in _entries(text) for line in _answered(*each, run, folder)]
    return "\n".join(told).lstrip() + "\n"


def _entries(text: str) -> Iterator[tuple[str, list[str]]]:
    """Each sentence or command, with the lines that are typed after it."""
    lines = text.splitlines()
    for number, line in enumerate(lines):
        if line[:2] in {"==", "$ ", "% "}:
            typed = takewhile(lambda each: each.startswith("<"), lines[number + 1 :])
            yield line, [each[2:] for each in typed]


def _answered(line: str, given: list[str], run: Run, folder: Path) -> Iterator[str]:
    if line.startswith("=="):
        yield from ("", line)
        return
    yield from (line, *(f"< {each}".rstrip() for each in given))
    words = [word.replace("~", str(folder), 1) for word in shlex.split(line[2:])]
    piped = "".join(f"{each}\n" for each in given)
    match words:
        case ["write", name]:
            Path(name).write_text(piped, "utf-8")
        case ["cat", name]:
            yield from _lines(Path(name).read_text("utf-8"), "", folder)
        case ["ringfence", *arguments]:
            typed = None if line.startswith("$") else piped
            code, out, err = run(arguments, typed, piped)
            yield from _lines(out, "", folder)
            yield from _lines(err, "! ", folder)
            yield from [f"[{code}]"] if code else []


def _lines(told: str, mark: str, folder: Path) -> Iterator[str]:
    told = _STYLE.sub("", told.replace(str(folder), "~"))
    for line in re.sub(r"http://127\.0\.0\.1:\d+", "URL", told).splitlines():
        shown = _TIME.sub(lambda at: at[0] if at[0].startswith(_FIXED) else "NOW", line)
        yield (mark + shown.replace("\t", " → ")).rstrip()
