"""`ringfence pipeline`: command line of the Spark jobs; `tables` is here, the others beside it."""

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
    METRICS_HOST,
    ClientProperties,
    Conf,
    Jars,
    Master,
    MetricsHost,
    MetricsPort,
    TerminalOutput,
    properties_of,
    spark_command,
)
from pipeline.reconcile.command import reconcile, report
from service.cli.command import noun

app = noun("Spark jobs: Ringfence's topics as tables, backfill and reconciliation.")


app.command()(reconcile)
app.command()(report)
app.command()(backfill)
app.command()(seed)


@app.command()
def tables(
    outputs: Annotated[
        list[str] | None,
        typer.Option(help="Output topic, repeatable, or one expression that starts with ^."),
    ] = None,
    dead_letters: Annotated[
        list[str] | None,
        typer.Option(help="Dead-letter topic, repeatable, or one expression that starts with ^."),
    ] = None,
    *,
    config: Annotated[
        Path | None,
        typer.Option(
            exists=True,
            dir_okay=False,
            help="The service's configuration file: brokers, and how to log in.",
        ),
    ] = None,
    bootstrap_servers: Annotated[
        str, typer.Option(envvar="KAFKA_BOOTSTRAP_SERVERS", help="The brokers' HOST:PORT,...")
    ] = "",
    target: Annotated[
        str, typer.Option(help="Folder of the tables and their checkpoints: a path or a URI.")
    ],
    once: Annotated[
        bool, typer.Option("--once/--continuous", help="Stop when up to date, or keep running.")
    ] = True,
    table_format: Annotated[
        Literal["delta", "parquet"], typer.Option("--format", help="Format of the tables.")
    ] = "delta",
    partition_by: Annotated[
        str, typer.Option(help="Partition columns; with many addresses use 'day' alone.")
    ] = "day,address",
    address: Annotated[
        str, typer.Option(help="The route's address template; outputs do not contain the address.")
    ] = "{topic}",
    output_template: Annotated[
        str, typer.Option(help="The route's output template, to find the input of an output.")
    ] = "{topic}.unique",
    batch_records: Annotated[
        int, typer.Option(min=1, help="Records of a table per batch.")
    ] = 1_000_000,
    accept_gap: Annotated[
        bool,
        typer.Option(
            "--accept-gap",
            help="Continue behind records that were deleted before they were read (Delta).",
        ),
    ] = False,
    compact: Annotated[
        bool, typer.Option("--compact", help="Merge small files at the end (Delta).")
    ] = False,
    metrics_port: MetricsPort = None,
    metrics_host: MetricsHost = METRICS_HOST,
    command_config: ClientProperties = None,
    jars: Jars = None,
    master: Master = None,
    conf: Conf = None,
) -> None:
    """Append accepted messages and dead letters to Delta tables, each row exactly once."""
    with spark_command():
        from pipeline.progress import MetricsAddress  # noqa: PLC0415 - --help works without Spark
        from pipeline.session import SessionOptions  # noqa: PLC0415
        from pipeline.tables import (  # noqa: PLC0415
            RunOptions,
            TableLayout,
            TableSource,
            run_tables,
        )

        topics = {"messages": tuple(outputs or ()), "dead_letters": tuple(dead_letters or ())}
        source = TableSource(
            *cluster_of(config, bootstrap_servers, properties_of(command_config)),
            {table: named for table, named in topics.items() if named},
        )
        columns = tuple(name.strip() for name in partition_by.split(",") if name.strip())
        layout = TableLayout(table_format, columns, address, output_template)
        options = RunOptions(once, batch_records, compact, accept_gap)
        result = run_tables(
            source,
            target,
            layout,
            options,
            session=SessionOptions(jars, master, tuple(conf or ())),
            console=TerminalOutput(stderr=True),
            metrics=None if metrics_port is None else MetricsAddress(metrics_host, metrics_port),
        )
    printed = Table("table", "rows added", "rows", title=f"Tables in {target}")
    for table in result.tables:
        printed.add_row(table.name, f"{table.added:,}", f"{table.total:,}")
    TerminalOutput().print(printed)


@app.command("jars")
def show_jars(jars: Jars = None) -> None:
    """Print the paths of the jars, comma-separated, for spark-submit --jars."""
    with spark_command():
        typer.echo(",".join(map(str, connector_jars(jars))))


def cluster_of(
    config: Path | None, servers: str, properties: Mapping[str, str]
) -> tuple[str, Mapping[str, str]]:
    """Return the brokers, and the properties of the Java client for them."""
    if config is not None:
        kafka = read_config(config).kafka
        return servers or servers_of(kafka), java_properties(kafka, properties)
    if not servers:
        raise PipelineError(
            "no broker is named: give --bootstrap-servers, or the service's file as --config",
            exit_code=USAGE,
        )
    return servers, properties
