"""Command framework: the options and behaviour that all commands of the API share.

A function with a `CommandContext` and its own parameters becomes a Typer command with the shared
options added: the API, the output format, and for a change the reason. A parameter whose type has
a class method `of` is built from several options: the parameters of `of`.
"""

import functools
import inspect
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar

import typer
from typer.core import TyperCommand, TyperGroup

from ringfence_service.cli.screen import CommandOutput
from ringfence_service.cli.target import TargetOptions, where

if TYPE_CHECKING:
    from typer._click import Command, Context, HelpFormatter

    from ringfence_service.cli.http import AdminApi
import sys
from collections.abc import Iterable

from ringfence_service.errors import ExitCode, ExitError
from ringfence_service.printable import visible

WHERE: Final = "Where and how"

F = TypeVar("F", bound=Callable[..., None])


class Risk(IntEnum):
    """What a command can damage; each level has the options of the levels below it."""

    READ = 0
    WRITE = 1
    RISK = 2


@dataclass(frozen=True, slots=True)
class CommandContext:
    """One call of a command: the API, the output, and what the user allows."""

    api: "AdminApi"
    screen: CommandOutput
    reason: str | None = None
    assume_yes: bool = False
    dry_run: bool = False

    def warn_if_unknown(self, address: Mapping[str, Any]) -> None:
        """Warn on stderr when the API knows no record of an address: it may be mistyped."""
        if address["complete"] and not address["partitions"] and not self.screen.as_json:
            self.screen.note(f"No record of the address {address['address']} has been seen.")


Url = Annotated[
    str | None,
    typer.Option(
        "--url",
        metavar="URL",
        help="The admin API [RINGFENCE_URL; else http://127.0.0.1:8080].",
        rich_help_panel=WHERE,
    ),
]

TokenFile = Annotated[
    Path | None,
    typer.Option(
        "--token-file",
        metavar="FILE",
        help="A file that holds the token [RINGFENCE_TOKEN_FILE, RINGFENCE_TOKEN].",
        rich_help_panel=WHERE,
    ),
]

CaFile = Annotated[
    Path | None,
    typer.Option(
        "--ca-file",
        metavar="FILE",
        help="Certificates to trust [RINGFENCE_CA_FILE].",
        rich_help_panel=WHERE,
    ),
]

Timeout = Annotated[
    float,
    typer.Option(
        "--timeout",
        metavar="SECONDS",
        help="How long to wait for a response.",
        min=0.1,
        rich_help_panel=WHERE,
    ),
]

AsJson = Annotated[
    bool, typer.Option("--json", help="Print the API's document.", rich_help_panel=WHERE)
]

Utc = Annotated[
    bool,
    typer.Option("--utc", help="Show times in UTC, not in local time.", rich_help_panel=WHERE),
]

Reason = Annotated[
    str | None,
    typer.Option("--reason", metavar="TEXT", help="Why; recorded in the audit log."),
]

Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]

DryRun = Annotated[bool, typer.Option("--dry-run", help="Only show what would change.")]

_OF_WRITES: Final = {"reason": (Reason, None)}

_OF_RISKS: Final = {"yes": (Yes, False), "dry_run": (DryRun, False)}

RESPONSE_S: Final = 10.0
"""How long commands wait for a response, unless `--timeout` says otherwise."""

_OF_ALL: Final[dict[str, tuple[object, object]]] = {
    "as_json": (AsJson, False),
    "utc": (Utc, False),
    "url": (Url, None),
    "token_file": (TokenFile, None),
    "ca_file": (CaFile, None),
    "timeout_s": (Timeout, RESPONSE_S),
}


class Sectioned(TyperCommand):
    """A command whose help lists the shared options in a separate section at the end."""

    def format_options(self, ctx: "Context", formatter: "HelpFormatter") -> None:
        """Write the arguments, the command's own options, and the shared options."""
        sections: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": [], WHERE: []}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            if record is not None:
                is_argument = param.param_type_name == "argument"
                panel = getattr(param, "rich_help_panel", None)
                sections[panel or ("Arguments" if is_argument else "Options")].append(record)
        for title, records in sections.items():
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)


class Verbs(TyperGroup):
    """A command group whose help shows the full summary of each command."""

    def format_commands(self, ctx: "Context", formatter: "HelpFormatter") -> None:  # noqa: ARG002 - as typer calls it
        """Write the name and the summary of each command."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, first_of(each)) for name, each in self.commands.items()])


def first_of(command: "Command") -> str:
    """Return the first paragraph of a command's help."""
    return " ".join((command.help or "").partition("\n\n")[0].split())


def noun(help_text: str) -> typer.Typer:
    """Create a group of commands for one kind of resource."""
    app = typer.Typer(
        cls=Verbs,
        help=help_text,
        no_args_is_help=True,
        rich_markup_mode=None,
        add_completion=False,
    )
    app.callback()(_nothing)  # without it Typer collapses a group that has one command
    return app


def single() -> typer.Typer:
    """Create an app for a single command without a noun."""
    return typer.Typer(rich_markup_mode=None, add_completion=False)


def _nothing() -> None:
    pass


def verb(app: typer.Typer, name: str, *examples: str, takes: Risk = Risk.READ) -> Callable[[F], F]:
    """Register a function of a `CommandContext` as a command, with examples under its help."""

    def register(function: F) -> F:
        app.command(name, cls=Sectioned, epilog=example(*examples))(_with_shared(function, takes))
        return function

    return register


def example(*examples: str) -> str:
    """Return the examples that follow the help of a command."""
    lines = [f"  ringfence {example}" for example in examples]
    return "\n".join(["\b", "Example:" if len(lines) == 1 else "Examples:", *lines])


def _with_shared(function: Callable[..., None], takes: Risk) -> Callable[..., None]:
    """Return the function with the shared options in place of its `CommandContext`."""
    shared: dict[str, tuple[object, object]] = {
        **(_OF_WRITES if takes >= Risk.WRITE else {}),
        **(_OF_RISKS if takes >= Risk.RISK else {}),
        **_OF_ALL,
    }

    own = list(inspect.signature(function).parameters.values())[1:]
    built = {each.name: each.annotation.of for each in own if _is_built(each.annotation)}
    parts = {name: inspect.signature(of).parameters for name, of in built.items()}

    @functools.wraps(function)
    def run(**arguments: Any) -> None:  # noqa: ANN401 - the parameters of any command
        options = {name: arguments.pop(name, None) for name in (*_OF_WRITES, *_OF_RISKS, *_OF_ALL)}
        for name, of in built.items():
            arguments[name] = of(**{part: arguments.pop(part) for part in parts[name]})
        _run(function, options, arguments)

    accepted = [part for each in own for part in parts.get(each.name, {each.name: each}).values()]
    keyword = inspect.Parameter.KEYWORD_ONLY
    added = [
        inspect.Parameter(name, keyword, default=default, annotation=annotation)
        for name, (annotation, default) in shared.items()
    ]
    parameters = [*(each.replace(kind=keyword) for each in accepted), *added]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # what Typer reads
    run.__annotations__ = {each.name: each.annotation for each in parameters}
    return run


def _is_built(annotation: object) -> bool:
    """Return whether a parameter of this type is built from several options."""
    return isinstance(annotation, type) and hasattr(annotation, "of")


def _run(function: Callable[..., None], options: dict[str, Any], arguments: dict[str, Any]) -> None:
    from ringfence_service.cli.http import AdminApi  # noqa: PLC0415 - imports httpx2, which is slow

    screen = CommandOutput(as_json=options["as_json"], utc=options["utc"])
    requested = TargetOptions(options["url"], options["token_file"], options["ca_file"])
    with AdminApi(where(requested, os.environ), options["timeout_s"], screen.note) as api:
        call = CommandContext(
            api=api,
            screen=screen,
            reason=options["reason"],
            assume_yes=bool(options["yes"]),
            dry_run=bool(options["dry_run"]),
        )
        function(call, **arguments)


def confirm(call: CommandContext, question: str) -> None:
    """Return when the user confirms; raise ExitError otherwise."""
    if call.assume_yes:
        return
    if not sys.stdin.isatty():
        advice = "Standard input is not a terminal: pass --yes, or preview with --dry-run."
        sentence = f"{question} {advice}"
        raise ExitError(ExitCode.USAGE, sentence)
    try:
        confirmed = typer.confirm(f"\n{visible(question)}", default=False, err=True)
    except typer.Abort:
        typer.echo(err=True)
        confirmed = False
    if not confirmed:
        raise ExitError(ExitCode.NO, "Nothing was changed.")


def lines_to(call: CommandContext, out: Path | None, lines: Iterable[str]) -> int:
    """Write lines to a file or standard output, and return how many.

    A file appears only when it is complete. Raises ExitError when it cannot be written.
    """
    if out is None:
        number = 0
        for number, line in enumerate(lines, 1):  # noqa: B007 - returned below
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


Limit = Annotated[
    int, typer.Option("--limit", "-n", metavar="N", min=1, help="Maximum number to return.")
]

Out = Annotated[
    Path | None, typer.Option("--out", metavar="FILE", help="File to write, not standard output.")
]

Address = Annotated[str, typer.Argument(metavar="ADDRESS", help="The address; any characters.")]

Id = Annotated[str, typer.Argument(metavar="ID", help="Text; any bytes as hex:… or base64:….")]
