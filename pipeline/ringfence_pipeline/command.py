"""`ringfence pipeline`: command line of the Spark jobs; `tables` and `compact` are here."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.table import Table

from ringfence_pipeline.backfill.command import backfill, seed
from ringfence_pipeline.config import read_config
from ringfence_pipeline.errors import USAGE, PipelineError
from ringfence_pipeline.jars import connector_jars
from ringfence_pipeline.java_properties import java_properties, servers_of
from ringfence_pipeline.options import (
    METRICS_HOST,
    ClientProperties,
    Conf,
    Jars,
    Master,
    MetricsHost,
    MetricsPort,
    TerminalOutput,
    duration_s,
    properties_of,
    spark_command,
)
from ringfence_pipeline.quality.command import quality
from ringfence_pipeline.reconcile.command import reconcile, report
from ringfence_pipeline.steps import say
from ringfence_service.cli.command import noun
from ringfence_service.printable import visible

app = noun("Spark jobs: Ringfence's topics as tables, backfill and reconciliation.")


app.command()(reconcile)
app.command()(report)
app.command()(backfill)
app.command()(seed)
app.command()(quality)


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
            help="The service's configuration file: brokers, login, topics and addresses.",
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
    every: Annotated[
        int, typer.Option(parser=duration_s, help="Time from batch to batch, if it keeps running.")
    ] = "10s",  # type: ignore[assignment]  # parsed like an argument
    table_format: Annotated[
        Literal["delta", "parquet"], typer.Option("--format", help="Format of the tables.")
    ] = "delta",
    partition_by: Annotated[
        str | None,
        typer.Option(help="Partition columns of new tables, 'day' or 'day,address' [day]."),
    ] = None,
    address: Annotated[
        str | None,
        typer.Option(
            help="The route's address template [as configured, or {topic}]; outputs do not contain "
            "the address."
        ),
    ] = None,
    output_template: Annotated[
        str, typer.Option(help="With --address: the route's output template, for {topic}.")
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
    compact_at_end: Annotated[
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
        # --help works without Spark.
        from ringfence_pipeline.outputs import configured_tables  # noqa: PLC0415
        from ringfence_pipeline.progress import MetricsAddress, observed  # noqa: PLC0415
        from ringfence_pipeline.session import SessionOptions, session_for  # noqa: PLC0415
        from ringfence_pipeline.tables import (  # noqa: PLC0415
            RunOptions,
            TableLayout,
            TableSource,
            update_tables,
        )

        if compact_at_end and not once:
            sentence = (
                "--compact needs --once: beside --continuous run `ringfence pipeline compact`"
            )
            raise PipelineError(sentence, exit_code=USAGE)
        topics = {"messages": tuple(outputs or ()), "dead_letters": tuple(dead_letters or ())}
        source = TableSource(
            *cluster_of(config, bootstrap_servers, properties_of(command_config)),
            {table: named for table, named in topics.items() if named},
        )
        if not source.topics and config is None:
            raise PipelineError(
                "no topics: give --outputs, --dead-letters, or the service's file as --config",
                exit_code=USAGE,
            )
        columns = None
        if partition_by is not None:
            columns = tuple(name.strip() for name in partition_by.split(",") if name.strip())
        layout = TableLayout(table_format, columns, address or "{topic}", output_template)
        options = RunOptions(once, batch_records, every, compact_at_end, accept_gap)
        metrics = None if metrics_port is None else MetricsAddress(metrics_host, metrics_port)
        named = [topic for each in source.topics.values() for topic in each]
        read = ", ".join(named) or "the topics of the routes"
        say(f"starting Spark, which then reads {visible(read)} into {visible(target)}")
        with (
            session_for(SessionOptions(jars, master, tuple(conf or ()))) as spark,
            observed(spark, TerminalOutput(stderr=True), metrics) as observer,
        ):
            if config is not None:
                found = configured_tables(spark, read_config(config), source)
                source = source if source.topics else found.source
                if address is None:
                    layout = layout._replace(addresses=found.addresses)
            result = update_tables(spark, source, target, layout, options, observer.gap_found)
    printed = Table("table", "rows added", "rows", title=f"Tables in {target}")
    for table in result.tables:
        printed.add_row(table.name, f"{table.added:,}", f"{table.total:,}")
    TerminalOutput().print(printed)


@app.command()
def compact(
    target: Annotated[str, typer.Argument(help="Folder of the tables: a path or a URI.")],
    *,
    days: Annotated[
        int | None,
        typer.Option(min=1, help="Only days in which files were written in the last N days."),
    ] = None,
    vacuum_hours: Annotated[
        int,
        typer.Option(min=0, help="Delete files unused for so long; Delta refuses less than 168."),
    ] = 168,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Change nothing; count the files to be deleted.")
    ] = False,
    jars: Jars = None,
    master: Master = None,
    conf: Conf = None,
) -> None:
    """Merge the small files of Delta tables, and delete files that are no longer used."""
    with spark_command():
        # --help works without Spark.
        from ringfence_pipeline.compaction import CompactOptions, compact_target  # noqa: PLC0415
        from ringfence_pipeline.session import SessionOptions, session_for  # noqa: PLC0415
        from ringfence_pipeline.storage import StorageFolder  # noqa: PLC0415

        since = None if days is None else datetime.now(UTC) - timedelta(days=days)
        with session_for(SessionOptions(jars, master, tuple(conf or ()))) as spark:
            options = CompactOptions(since, vacuum_hours, dry_run)
            results = compact_target(spark, StorageFolder.of(spark, target), options)
    printed = Table("table", "files merged", "into", "unused files", title=f"Tables in {target}")
    for each in results:
        unused = "deleted" if each.unused is None else f"{each.unused:,}"
        printed.add_row(each.table, f"{each.merged:,}", f"{each.written:,}", unused)
    TerminalOutput().print(printed)


@app.command("jars")
def show_jars(jars: Jars = None) -> None:
    """Print the paths of the jars, comma-separated, for spark-submit --jars."""
    with spark_command(uses_spark=False):
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
