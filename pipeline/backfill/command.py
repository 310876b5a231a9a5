"""`ringfence pipeline backfill`: a history decided as the service would have, from a shell."""

import os
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.table import Table

from pipeline.config import read_config
from pipeline.java_properties import java_properties, servers_of
from pipeline.options import (
    ClientProperties,
    Jars,
    TerminalOutput,
    a_folder,
    a_path,
    properties_of,
    spark_command,
)
from service.metadata.settings import is_file_managed

ConfigFile = Annotated[Path, typer.Option(help="That of the service.")]


def backfill(
    *,
    config: ConfigFile,
    target: Annotated[
        Path,
        typer.Option(
            file_okay=False, callback=a_path, help="Folder of the verdicts and all that is kept."
        ),
    ],
    topic: Annotated[
        list[str] | None,
        typer.Option(help="Topic to read; repeat it. Without it, all inputs of the routes."),
    ] = None,
    table: Annotated[
        Path | None,
        typer.Option(callback=a_folder, help="Read this table, in place of topics."),
    ] = None,
    table_format: Annotated[
        Literal["delta", "parquet"], typer.Option(help="Of the table that is read.")
    ] = "delta",
    input_: Annotated[
        str | None,
        typer.Option("--input", help="The input of a route that all records stand for."),
    ] = None,
    output_format: Annotated[
        Literal["delta", "parquet"], typer.Option("--format", help="Of the table of verdicts.")
    ] = "delta",
    once: Annotated[
        bool, typer.Option("--once/--continuous", help="End when up to date, or go on.")
    ] = True,
    batch_records: Annotated[int, typer.Option(min=1, help="Decided in one batch.")] = 500_000,
    tasks: Annotated[
        int, typer.Option(min=1, help="That decide at once; fixed at the first start.")
    ] = 2,
    bootstrap_servers: Annotated[
        str, typer.Option(envvar="KAFKA_BOOTSTRAP_SERVERS", help="In place of the configuration's.")
    ] = "",
    command_config: ClientProperties = None,
    jars: Jars = None,
) -> None:
    """Decide a history as the service would, on Spark; go on where the last run ended."""
    with spark_command():
        from pipeline.backfill import run  # noqa: PLC0415 - --help works without Spark
        from pipeline.jars import connector_jars  # noqa: PLC0415
        from pipeline.session import open_session  # noqa: PLC0415

        console, settings = TerminalOutput(), read_config(config)
        given = properties_of(command_config)
        source = run.BackfillSource(
            servers=bootstrap_servers or servers_of(settings.kafka),
            properties=given if table else java_properties(settings.kafka, given),
            topics=topic or (),
            table=table,
            table_format=table_format,
            instead_of=input_,
        )
        if table and not is_file_managed(settings):
            console.print("settings: the file's alone, since no broker is asked about a table")
        spark = open_session(connector_jars(jars))
        try:
            counts = run.backfill(
                spark,
                settings,
                source,
                target.resolve(),
                table_format=output_format,
                pace=run.BatchLimits(batch_records, tasks, once),
                say=console.print,
            )
        finally:
            spark.stop()
    shown = Table("address", "strategy", "verdict", "records", title=f"Verdicts in {target}")
    for each in counts:
        shown.add_row(each.address or "", each.strategy or "", each.verdict, f"{each.records:,}")
    console.print(shown)


def seed(
    *,
    target: Annotated[Path, typer.Option(callback=a_folder, help="The folder of the backfill.")],
    url: Annotated[
        str | None,
        typer.Option(help="The admin API [RINGFENCE_URL; else http://127.0.0.1:8080]."),
    ] = None,
    token_file: Annotated[
        Path | None,
        typer.Option(
            help="A file that holds the token [RINGFENCE_TOKEN_FILE, RINGFENCE_TOKEN].",
        ),
    ] = None,
    ca_file: Annotated[
        Path | None, typer.Option(help="Certificates to trust [RINGFENCE_CA_FILE].")
    ] = None,
    input_: Annotated[
        str | None,
        typer.Option("--input", help="The input that the service reads in place of the topics."),
    ] = None,
    reason: Annotated[str, typer.Option(help="For the audit.")] = "seeded from a backfill",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Count, and change nothing.")] = False,
    jars: Jars = None,
) -> None:
    """Have a running service know what a backfill remembers."""
    with spark_command():
        # --help works without Spark.
        from pipeline.backfill.run import BackfillTarget  # noqa: PLC0415
        from pipeline.backfill.seed import seed as run  # noqa: PLC0415
        from pipeline.jars import connector_jars  # noqa: PLC0415
        from pipeline.session import open_session  # noqa: PLC0415
        from service.cli.http import client_of  # noqa: PLC0415
        from service.cli.target import TargetOptions, where  # noqa: PLC0415

        console = TerminalOutput()
        there = where(TargetOptions(url, token_file, ca_file), os.environ)
        BackfillTarget(target).inputs()  # before a session begins for nothing
        spark = open_session(connector_jars(jars))
        try:
            with client_of(there, 60.0, console.print) as client:
                result = run(
                    spark,
                    target.resolve(),
                    client,
                    instead_of=input_,
                    reason=reason,
                    dry_run=dry_run,
                    say=console.print,
                )
        finally:
            spark.stop()
    shown = Table("address", "handed over", "new", title=f"To {there.url}")
    for each in result.addresses:
        new = "" if each.new is None else f"{each.new:,}"
        shown.add_row(each.address, f"{each.sent:,}", new)
    console.print(shown)
    for why, count in result.left_out.items():
        console.print(f"left out: {count:,}, because {why}")
