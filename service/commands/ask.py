"""Asking: what cannot be undone is shown, counted and confirmed before it is done.

Where nobody can be asked, a script has to say `--yes`; it is never left waiting.
"""

import sys

import typer

from service.commands.command import Call
from service.errors import ExitCode, ExitError
from service.visible import visible


def sure(call: Call, question: str) -> None:
    """Return when the user wants it; end otherwise."""
    if call.assume_yes:
        return
    if not sys.stdin.isatty():
        sentence = f"{question} Nobody can be asked here: say --yes, or look with --dry-run first."
        raise ExitError(ExitCode.USAGE, sentence)
    try:
        wanted = typer.confirm(f"\n{visible(question)}", default=False, err=True)
    except typer.Abort:
        typer.echo(err=True)
        wanted = False
    if not wanted:
        raise ExitError(ExitCode.NO, "Nothing was changed.")
