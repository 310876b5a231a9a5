"""`ringfence pipeline reconcile` and `report`: run a reconciliation, and write its HTML report."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.table import Table

from ringfence_pipeline.errors import USAGE, PipelineError
from ringfence_pipeline.options import (
    ClientProperties,
    Conf,
    Jars,
    Master,
    TerminalOutput,
    properties_of,
    spark_command,
)
from ringfence_pipeline.reconcile.results import ReconcileResult, from_json, to_json
from ringfence_service.printable import visible_json

FAULTY: Final = 1
_ADDRESSES_SHOWN: Final = 10
_FAULTS_SHOWN: Final = 20

Html = Annotated[
    Path | None, typer.Option("--html", dir_okay=False, help="File for the HTML report.")
]


def reconcile(
    *,
    config: Annotated[
        Path,
        typer.Option(help="The file that `ringfence serve` reads."),
    ],
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the complete findings as JSON.")
    ] = False,
    html: Html = None,
    redriven: Annotated[
        bool,
        typer.Option(
            help="Any dead letter may have been redriven, not only those in known redrives."
        ),
    ] = False,
    resized: Annotated[
        bool,
        typer.Option(help="The file had other sizes earlier: do not judge what rings held."),
    ] = False,
    faults_max: Annotated[
        int, typer.Option(min=1, help="How many faults to list; all are counted.")
    ] = 10_000,
    tables: Annotated[
        str | None,
        typer.Option(
            help="Tables to read outputs and dead letters from; the topics have what they lack."
        ),
    ] = None,
    findings: Annotated[
        str | None,
        typer.Option(help="Folder of the tables runs and violations, which get the findings."),
    ] = None,
    since_last: Annotated[
        bool,
        typer.Option(
            "--since-last",
            help="Compare only what came since the last run with these --findings.",
        ),
    ] = False,
    command_config: ClientProperties = None,
    jars: Jars = None,
    master: Master = None,
    conf: Conf = None,
) -> None:
    """Prove from the topics that every record had one fate; exit 1 when something is wrong."""
    with spark_command():
        from ringfence_pipeline.reconcile.analyze import AnalyzeOptions  # noqa: PLC0415
        from ringfence_pipeline.reconcile.run import LakeTables, run_reconcile  # noqa: PLC0415
        from ringfence_pipeline.session import SessionOptions  # noqa: PLC0415

        properties = properties_of(command_config)
        look = AnalyzeOptions(redriven, resized, faults_max)
        session = SessionOptions(jars, master, tuple(conf or ()))
        if since_last and findings is None:
            raise PipelineError(
                "--since-last needs --findings, the folder in which the last run has left where it "
                "ended",
                exit_code=USAGE,
            )
        lake = LakeTables(tables, findings, since_last)
        found = run_reconcile(config, properties, look, lake, session=session)
        _write(found, html)
    if as_json:
        typer.echo(visible_json(to_json(found)), nl=False)
    else:
        _show(found, TerminalOutput())
    raise typer.Exit(0 if found.is_faultless else FAULTY)


def report(
    findings: Annotated[
        Path,
        typer.Argument(exists=True, dir_okay=False, help="Output of `reconcile --json`."),
    ],
    *,
    html: Annotated[Path, typer.Option("--html", dir_okay=False, help="File for the report.")],
) -> None:
    """Write the HTML report from saved JSON findings."""
    with spark_command(uses_spark=False):
        _write(from_json(findings.read_text("utf-8")), html)


def _write(findings: ReconcileResult, html: Path | None) -> None:
    if html is None:
        return
    from ringfence_pipeline.reconcile.report import to_html  # noqa: PLC0415 - jinja2 is slow to import

    try:
        html.write_text(to_html(findings), "utf-8")
    except OSError as error:
        raise PipelineError(
            f"{html} cannot be written: {error.strerror}", exit_code=USAGE
        ) from error


def _show(findings: ReconcileResult, console: TerminalOutput) -> None:
    console.print(_counted("fate", findings.fates, f"Records decided by {findings.group}"))
    console.print(_addresses(findings))
    console.print(_counted("fault", findings.faults_total, "Faults"))
    for fault in findings.faults[:_FAULTS_SHOWN]:
        console.print(f"{fault.kind}  {fault.place}  {fault.said}", highlight=False, markup=False)
    left = sum(findings.faults_total.values()) - _FAULTS_SHOWN
    if left > 0:
        console.print(f"… and {left:,} more; see --json")
    if findings.faults_new is not None:
        console.print(f"{findings.faults_new:,} of the faults are new in the history")


def _counted(name: str, numbers: Mapping[str, int], title: str) -> Table:
    table = Table(name, "records", title=title)
    for each, number in numbers.items():
        table.add_row(each, f"{number:,}")
    return table


def _addresses(findings: ReconcileResult) -> Table:
    columns = ("accepted", "duplicates", "missed", "ring", "for 99 %", "for 99.9 %", "for all")
    shown = findings.addresses[:_ADDRESSES_SHOWN]
    title = f"Rings: {len(shown):,} of {findings.addresses_total:,} addresses, the worst first"
    table = Table("address", *columns, title=title)
    for found in shown:
        limit = f"{found.size:,}" if found.is_ring else found.strategy
        table.add_row(
            *(found.address, f"{found.accepted:,}", f"{found.duplicates:,}", f"{found.missed:,}"),
            *(limit, f"{found.needed_99:,}", f"{found.needed_999:,}", f"{found.needed_all:,}"),
        )
    return table
