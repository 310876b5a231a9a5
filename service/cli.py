"""The command `ringfence`: what to run, and how its end is told to a shell.

Commands import what they need when they run, so that `--help` stays quick. A foreseeable error is
one sentence on stderr and an exit code of the contract; a traceback is always a bug.
"""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from service.errors import ExitCode, ExitError, Problem

if TYPE_CHECKING:
    from service.check import Report

T = TypeVar("T")

app = typer.Typer(
    help="Keeps duplicate messages out of Kafka topics, exactly once.",
    no_args_is_help=True,
    rich_markup_mode=None,  # rich alone would cost more than all the rest of --help
    pretty_exceptions_enable=False,
)
broker = typer.Typer(
    help="The embedded development broker: a real Apache Kafka.", rich_markup_mode=None
)
app.add_typer(broker, name="broker", no_args_is_help=True)

ConfigFile = Annotated[
    Path,
    typer.Option(
        "--config",
        metavar="FILE",
        help="The TOML file with all settings.",
        exists=True,
        dir_okay=False,
        readable=True,
    ),
]


def main() -> None:
    """Run the command line; the entry point of the package."""
    try:
        app(prog_name="ringfence")
    except ExitError as error:
        for sentence in error.sentence.splitlines():
            typer.echo(f"ringfence: {sentence}", err=True)
        raise SystemExit(error.exit_code) from None


def _print_version(wanted: bool) -> None:  # noqa: FBT001  the option's value, as typer hands it
    if wanted:
        from service.version import product_version

        typer.echo(f"ringfence {product_version()}")
        raise typer.Exit


@app.callback()
def _common(
    *,
    _version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version.", callback=_print_version, is_eager=True
        ),
    ] = False,
) -> None:
    """Take what stands before a command."""


@app.command()
def serve(config_file: ConfigFile) -> None:
    """Run the processor and its admin API until SIGTERM."""
    from service.config import load

    config = load(config_file, os.environ)
    from service.run import serve as run

    raise typer.Exit(run(config))


@app.command()
def check(config_file: ConfigFile) -> None:
    """Check the configuration, then the broker."""
    from service.config import load_lenient
    from service.kafka import property_problems

    config, problems = load_lenient(config_file, os.environ)
    report: Report | None = None
    refused = property_problems(config) if config is not None else []
    problems += refused
    # Without an address there is no broker to ask; that it is missing is a problem already.
    if config is not None and not refused and "bootstrap.servers" in config.kafka.common:
        from service.check import check as ask_broker

        try:
            report = ask_broker(config)
        except ExitError:
            if problems:
                typer.echo(_listed(problems))
            raise
    found = [*problems, *(report.problems if report else ())]
    if report:
        _print_topics(report)
    typer.echo(_listed(found) if found else f"{config_file} is good.")
    raise typer.Exit(ExitCode.NO if found else ExitCode.DONE)


def _listed(problems: Sequence[Problem]) -> str:
    count = f"{len(problems)} problem{'' if len(problems) == 1 else 's'}:"
    lines = (
        f"{number:3}. {problem.what}\n     mend: {problem.mend}"
        for number, problem in enumerate(problems, 1)
    )
    return "\n".join([count, *lines])


def _print_topics(report: "Report") -> None:
    for name, topics in (("inputs", report.inputs), ("outputs", report.outputs)):
        typer.echo(f"{name}: {', '.join(topics) or 'none'}")


@app.command()
def demo(
    *,
    exit_when_done: Annotated[
        bool, typer.Option("--exit", help="End after the closing table.")
    ] = False,
) -> None:
    """Play real flights through a real broker."""
    try:
        from tools.demo.run import demo as play
    except ModuleNotFoundError as error:
        sentence = "The demo belongs to a checkout and is not in this installation; see the README."
        raise ExitError(ExitCode.USAGE, sentence) from error

    raise typer.Exit(play(exit_after=exit_when_done))


@broker.command()
def up() -> None:
    """Start the broker, or find it running, and print where it answers."""
    typer.echo(_asked(lambda broker: broker.up()))


@broker.command()
def down() -> None:
    """Stop the broker; its data stays."""
    typer.echo("stopped" if _asked(lambda broker: broker.down()) else "not running")


@broker.command()
def status() -> None:
    """Print where the broker answers; exit 1 when it does not run."""
    running = _asked(lambda broker: broker.status())
    typer.echo(running or "not running")
    raise typer.Exit(ExitCode.DONE if running else ExitCode.NO)


def _asked(question: Callable[[ModuleType], T]) -> T:
    try:
        from tools.broker import detached
        from tools.errors import ToolError
    except ModuleNotFoundError as error:
        sentence = "The development broker belongs to a checkout and is not in this installation."
        raise ExitError(ExitCode.USAGE, sentence) from error
    try:
        return question(detached)
    except ToolError as error:
        raise ExitError(ExitCode.BROKER, str(error)) from error


@app.command(
    add_help_option=False,
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
)
def pipeline(context: typer.Context) -> None:
    """Run a Spark job; see pipeline --help."""
    try:
        from pipeline.command import app as jobs
    except ModuleNotFoundError as error:
        sentence = f"{error.name} is not installed; the Spark jobs need requirements/spark.txt."
        raise ExitError(ExitCode.USAGE, sentence) from error

    jobs(context.args, prog_name="ringfence pipeline")


if __name__ == "__main__":
    main()
