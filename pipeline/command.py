"""`ringfence pipeline`: the Spark jobs from a shell."""

import signal
import sys
from pathlib import Path
from types import FrameType
from typing import Annotated, NoReturn

import typer
from rich.console import Console
from rich.table import Table

from pipeline.errors import USAGE, PipelineError

app = typer.Typer(help="The Spark jobs: Ringfence's topics as tables.", no_args_is_help=True)


@app.callback()
def _pipeline() -> None:
    """Keep `tables` a command of its own while it is the only one."""


@app.command()
def tables(
    outputs: Annotated[
        list[str] | None,
        typer.Option(help="Output topic; repeat it, or give one expression that starts with ^."),
    ] = None,
    dead_letters: Annotated[
        list[str] | None,
        typer.Option(help="Dead-letter topic; repeat it, or give one expression."),
    ] = None,
    *,
    bootstrap_servers: Annotated[
        str, typer.Option(envvar="KAFKA_BOOTSTRAP_SERVERS", help="The broker's HOST:PORT,...")
    ],
    target: Annotated[
        Path, typer.Option(file_okay=False, help="Folder of the tables and their checkpoints.")
    ],
    once: Annotated[
        bool, typer.Option("--once/--continuous", help="End when up to date, or go on.")
    ] = True,
    command_config: Annotated[
        Path | None,
        typer.Option(
            exists=True, dir_okay=False, help="Properties of the Java client, as Kafka's tools."
        ),
    ] = None,
    jars: Annotated[
        Path | None,
        typer.Option(
            envvar="RINGFENCE_SPARK_JARS",
            exists=True,
            file_okay=False,
            help="Folder of the connector's jars; without it, Maven fills .run/spark-jars once.",
        ),
    ] = None,
) -> None:
    """Append accepted messages and dead letters to Parquet tables, each row exactly once."""
    try:
        from pipeline.run import run_tables  # noqa: PLC0415 - --help works without Spark
    except ModuleNotFoundError as error:
        _end(f"{error.name} is not installed: pip install -r requirements/spark.txt", USAGE)
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        result = run_tables(
            bootstrap_servers,
            outputs or [],
            dead_letters or [],
            target,
            once=once,
            kafka_options={} if command_config is None else read_properties(command_config),
            jars=jars,
        )
    except PipelineError as error:
        _end(str(error), error.exit_code)
    shown = Table("table", "rows added", "rows", title=f"Tables in {target}")
    for table in result.tables:
        shown.add_row(table.name, f"{table.added:,}", f"{table.total:,}")
    Console().print(shown)


def read_properties(file: Path) -> dict[str, str]:
    """The `name=value` lines of a properties file; # and ! begin a comment."""
    properties: dict[str, str] = {}
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), start=1):
        entry = line.strip()
        if not entry or entry.startswith(("#", "!")):
            continue
        name, separator, value = entry.partition("=")
        if not separator or not name.strip():
            raise PipelineError(
                f"{file}, line {number}: not of the form name=value", exit_code=USAGE
            )
        properties[name.strip()] = value.strip()
    return properties


def _interrupt(_signal: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _end(sentence: str, exit_code: int) -> NoReturn:
    print(f"ringfence pipeline: {sentence}", file=sys.stderr)  # noqa: T201 - what a command says
    raise typer.Exit(exit_code)
