"""`ringfence pipeline backfill` and `seed`: decide a history, and load its state into a service."""

import os
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.table import Table

from ringfence_pipeline.config import read_config
from ringfence_pipeline.errors import USAGE, PipelineError
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
from ringfence_service.metadata.overlay import is_file_managed

ConfigFile = Annotated[Path, typer.Option(help="The service's configuration file.")]


def backfill(
    *,
    config: ConfigFile,
    target: Annotated[
        str,
        typer.Option(help="Folder of the verdicts, the checkpoint and the state: a path or a URI."),
    ],
    topic: Annotated[
        list[str] | None,
        typer.Option(help="Topic to read, repeatable; default: all inputs of the routes."),
    ] = None,
    table: Annotated[
        str | None, typer.Option(help="Read this table, a path or a URI, instead of topics.")
    ] = None,
    table_format: Annotated[
        Literal["delta", "parquet"], typer.Option(help="Format of the table to read.")
    ] = "delta",
    input_: Annotated[
        str | None,
        typer.Option("--input", help="Decide all records as if they were of this input."),
    ] = None,
    output_format: Annotated[
        Literal["delta", "parquet"], typer.Option("--format", help="Format of the verdicts table.")
    ] = "delta",
    batch: Annotated[
        bool, typer.Option("--batch", help="Decide the table in one job, not step by step.")
    ] = False,
    accepted: Annotated[
        str | None,
        typer.Option(help="Write the accepted rows of the table here, as a new Delta table."),
    ] = None,
    once: Annotated[
        bool, typer.Option("--once/--continuous", help="Stop when up to date, or keep running.")
    ] = True,
    every: Annotated[
        int, typer.Option(parser=duration_s, help="Time from batch to batch, if it keeps running.")
    ] = "2s",  # type: ignore[assignment]  # parsed like an argument
    batch_records: Annotated[
        int | None, typer.Option(min=1, help="Records per step [500,000]; not with --batch.")
    ] = None,
    tasks: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Parallel deciding tasks [2], fixed at the first start; not with --batch, which "
            "has one for each deciding partition.",
        ),
    ] = None,
    bootstrap_servers: Annotated[
        str,
        typer.Option(
            envvar="KAFKA_BOOTSTRAP_SERVERS", help="Brokers; default: those of the configuration."
        ),
    ] = "",
    metrics_port: MetricsPort = None,
    metrics_host: MetricsHost = METRICS_HOST,
    command_config: ClientProperties = None,
    jars: Jars = None,
    master: Master = None,
    conf: Conf = None,
) -> None:
    """Decide a history on Spark as the service would; continue where the last run ended."""
    with spark_command():
        if not once and (batch or accepted):
            sentence = "--batch and --accepted need an end: leave --continuous out"
            raise PipelineError(sentence, exit_code=USAGE)
        if not table and (batch or accepted):
            sentence = (
                "--batch and --accepted need a table that is there already: name it with --table; "
                "`ringfence pipeline tables` makes one of topics"
            )
            raise PipelineError(sentence, exit_code=USAGE)
        if batch and not (batch_records is None and tasks is None):
            sentence = (
                "--batch-records and --tasks are for a backfill in steps: leave them out, since "
                "--batch decides all records at once, with a task for each deciding partition"
            )
            raise PipelineError(sentence, exit_code=USAGE)
        # --help works without Spark.
        from ringfence_pipeline.backfill import run  # noqa: PLC0415
        from ringfence_pipeline.backfill.accepted import AcceptedTable  # noqa: PLC0415
        from ringfence_pipeline.backfill.batch import backfill_at_once  # noqa: PLC0415
        from ringfence_pipeline.progress import MetricsAddress, observed  # noqa: PLC0415
        from ringfence_pipeline.session import SessionOptions, session_for  # noqa: PLC0415

        console, settings = TerminalOutput(), read_config(config)
        properties = properties_of(command_config)
        source = run.BackfillSource(
            servers=bootstrap_servers or servers_of(settings.kafka),
            properties=properties if table else java_properties(settings.kafka, properties),
            topics=topic or (),
            table=table,
            table_format=table_format,
            instead_of=input_,
        )
        if table and not is_file_managed(settings):
            console.print("settings: only those of the file, since a table needs no broker")
        metrics = None if metrics_port is None else MetricsAddress(metrics_host, metrics_port)
        with session_for(SessionOptions(jars, master, tuple(conf or ()))) as spark:
            wanted = accepted and AcceptedTable.of(spark, accepted, target)
            if wanted:
                wanted.check()
            if batch:
                counts = backfill_at_once(
                    spark, settings, source, target, table_format=output_format, say=console.print
                )
            else:
                with observed(spark, TerminalOutput(stderr=True), metrics):
                    given = {"batch_records": batch_records, "tasks": tasks}
                    limits = {name: each for name, each in given.items() if each is not None}
                    counts = run.backfill(
                        spark,
                        settings,
                        source,
                        target,
                        table_format=output_format,
                        limits=run.BatchLimits(once=once, every_s=every, **limits),
                    )
            if wanted:
                wanted.write(source, console.print)
    summary = Table("address", "strategy", "verdict", "records", title=f"Verdicts in {target}")
    for each in counts:
        summary.add_row(each.address or "", each.strategy or "", each.verdict, f"{each.records:,}")
    console.print(summary)


def seed(
    *,
    target: Annotated[str, typer.Option(help="The folder of the backfill: a path or a URI.")],
    url: Annotated[
        str | None,
        typer.Option(help="The admin API [RINGFENCE_URL; else http://127.0.0.1:8080]."),
    ] = None,
    token_file: Annotated[
        Path | None,
        typer.Option(
            help="File of the token [RINGFENCE_TOKEN_FILE, RINGFENCE_TOKEN].",
        ),
    ] = None,
    ca_file: Annotated[
        Path | None, typer.Option(help="Certificates to trust [RINGFENCE_CA_FILE].")
    ] = None,
    input_: Annotated[
        str | None,
        typer.Option("--input", help="The service's input that replaces the backfill's topics."),
    ] = None,
    reason: Annotated[
        str, typer.Option(help="Recorded in the audit log.")
    ] = "seeded from a backfill",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Count, and change nothing.")] = False,
    jars: Jars = None,
    master: Master = None,
    conf: Conf = None,
) -> None:
    """Load what a backfill remembers into a running service."""
    with spark_command():
        # --help works without Spark.
        from ringfence_pipeline.backfill.seed import seed as run  # noqa: PLC0415
        from ringfence_pipeline.session import SessionOptions, session_for  # noqa: PLC0415
        from ringfence_service.cli.http import client_of  # noqa: PLC0415
        from ringfence_service.cli.target import TargetOptions, where  # noqa: PLC0415

        console = TerminalOutput()
        api = where(TargetOptions(url, token_file, ca_file), os.environ)
        with (
            session_for(SessionOptions(jars, master, tuple(conf or ()))) as spark,
            client_of(api, 60.0, console.print) as client,
        ):
            result = run(
                spark,
                target,
                client,
                instead_of=input_,
                reason=reason,
                dry_run=dry_run,
                say=console.print,
            )
    summary = Table("address", "sent", "new", title=f"Sent to {api.url}")
    for each in result.addresses:
        new = "" if each.new is None else f"{each.new:,}"
        summary.add_row(each.address, f"{each.sent:,}", new)
    console.print(summary)
    for why, count in result.left_out.items():
        console.print(f"left out: {count:,}, because {why}")
