"""`ringfence pipeline`: the Spark jobs from a shell; `tables` is here, others beside it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.table import Table

from pipeline.backfill.command import backfill, seed
from pipeline.config import read_config
from pipeline.errors import USAGE, PipelineError
from pipeline.jars import connector_jars
from pipeline.java_properties import java_properties, servers_of
from pipeline.options import (
    ClientProperties,
    Jars,
    TerminalOutput,
    a_path,
    properties_of,
    spark_command,
)
from pipeline.reconcile.command import reconcile, report
from service.cli.command import noun

app = noun("The Spark jobs: Ringfence's topics as tables.")


app.command()(reconcile)
app.command()(report)
app.command()(backfill)
app.command()(seed)


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
    config: Annotated[
        Path | None,
        typer.Option(
            exists=True,
            dir_okay=False,
            help="That of the service: tells the brokers, and how to log in.",
        ),
    ] = None,
    bootstrap_servers: Annotated[
        str, typer.Option(envvar="KAFKA_BOOTSTRAP_SERVERS", help="The broker's HOST:PORT,...")
    ] = "",
    target: Annotated[
        Path,
        typer.Option(
            file_okay=False, callback=a_path, help="Folder of the tables and their checkpoints."
        ),
    ],
    once: Annotated[
        bool, typer.Option("--once/--continuous", help="End when up to date, or go on.")
    ] = True,
    table_format: Annotated[
        Literal["delta", "parquet"], typer.Option("--format", help="What the tables are.")
    ] = "delta",
    partition_by: Annotated[
        str, typer.Option(help="Columns that have folders; only 'day' where addresses are many.")
    ] = "day,address",
    address: Annotated[
        str, typer.Option(help="The route's address template: a message does not tell its own.")
    ] = "{topic}",
    output_template: Annotated[
        str, typer.Option(help="The route's output template, to tell the input of an output.")
    ] = "{topic}.unique",
    batch_records: Annotated[
        int, typer.Option(min=1, help="How many records of a table are written together.")
    ] = 1_000_000,
    compact: Annotated[
        bool, typer.Option("--compact", help="At the end put small files together (Delta).")
    ] = False,
    command_config: ClientProperties = None,
    jars: Jars = None,
) -> None:
    """Append accepted messages and dead letters to Delta tables, each row exactly once."""
    with spark_command():
        from pipeline.progress import on_terminal  # noqa: PLC0415 - --help works without Spark
        from pipeline.run import RunOptions, TableSource, run_tables  # noqa: PLC0415
        from pipeline.tables import TableLayout  # noqa: PLC0415

        topics = {"messages": tuple(outputs or ()), "dead_letters": tuple(dead_letters or ())}
        source = TableSource(
            *_cluster(config, bootstrap_servers, properties_of(command_config)),
            {table: named for table, named in topics.items() if named},
        )
        columns = tuple(name.strip() for name in partition_by.split(",") if name.strip())
        shape = TableLayout(table_format, columns, address, output_template)
        way = RunOptions(once, batch_records, compact)
        with on_terminal(TerminalOutput(stderr=True)) as shown:
            result = run_tables(source, target, shape, way, jars=jars, shown=shown)
    printed = Table("table", "rows added", "rows", title=f"Tables in {target}")
    for table in result.tables:
        printed.add_row(table.name, f"{table.added:,}", f"{table.total:,}")
    TerminalOutput().print(printed)


@app.command("jars")
def show_jars(jars: Jars = None) -> None:
    """Print the paths of the jars with commas between, as spark-submit --jars takes them."""
    with spark_command():
        typer.echo(",".join(map(str, connector_jars(jars))))


def _cluster(
    config: Path | None, servers: str, given: Mapping[str, str]
) -> tuple[str, Mapping[str, str]]:
    """The brokers, and the properties of Java's client for them."""
    if config is not None:
        kafka = read_config(config).kafka
        return servers or servers_of(kafka), java_properties(kafka, given)
    if not servers:
        raise PipelineError(
            "no broker is named: give --bootstrap-servers, or the service's file as --config",
            exit_code=USAGE,
        )
    return servers, given
