"""Output of many lines: to a file that is whole or not there, or to standard output."""

from collections.abc import Iterable
from pathlib import Path

from service.commands.command import Call
from service.errors import ExitCode, ExitError


def lines_to(call: Call, out: Path | None, lines: Iterable[str]) -> int:
    """Write lines and return how many; what broke off leaves no file behind."""
    if out is None:
        number = 0
        for number, line in enumerate(lines, 1):  # noqa: B007 - it is returned
            call.screen.json_line(line)
        return number
    draft = out.with_name(f"{out.name}.part")
    number = 0
    try:
        with draft.open("w", encoding="utf-8") as file:
            for line in lines:
                file.write(line + "\n")
                number += 1
                if number % 1_000 == 0:
                    call.screen.progress(f"{number:,} lines …")
        draft.replace(out)
    except OSError as error:
        sentence = f"{out} cannot be written ({error}); name another --out."
        raise ExitError(ExitCode.USAGE, sentence) from error
    finally:
        draft.unlink(missing_ok=True)
    return number
