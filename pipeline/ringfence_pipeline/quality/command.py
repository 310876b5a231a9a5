"""`ringfence pipeline quality`: the quality of the tables as text, JSON, or an HTML page."""

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer
from rich.table import Table

from ringfence_pipeline.errors import USAGE, PipelineError
from ringfence_pipeline.options import Conf, Jars, Master, TerminalOutput, spark_command
from ringfence_service.printable import visible_json

if TYPE_CHECKING:
    from ringfence_pipeline.quality.views import NamedCounts, QualityResult

_ROWS_SHOWN: Final = 10


def quality(
    *,
    target: Annotated[str, typer.Option(help="Folder of the tables: a path or a URI.")],
    since: Annotated[
        datetime | None, typer.Option(formats=["%Y-%m-%d"], help="Only days from this one on.")
    ] = None,
    by: Annotated[
        str, typer.Option(help="Column that the id is made of: key for the template {key}.")
    ] = "duplicate_id",
    as_json: Annotated[bool, typer.Option("--json", help="Print the values as JSON.")] = False,
    html: Annotated[
        Path | None, typer.Option("--html", dir_okay=False, help="File for the HTML page.")
    ] = None,
    jars: Jars = None,
    master: Master = None,
    conf: Conf = None,
) -> None:
    """Show how often, where and how late records were duplicated or refused, from the tables."""
    with spark_command():
        from ringfence_pipeline.quality.report import to_html  # noqa: PLC0415 - --help works without Spark
        from ringfence_pipeline.quality.views import run_quality, to_json  # noqa: PLC0415
        from ringfence_pipeline.session import SessionOptions  # noqa: PLC0415

        session = SessionOptions(jars, master, tuple(conf or ()))
        found = run_quality(target, since and since.date(), by, session=session)
        if html is not None:
            try:
                html.write_text(to_html(found), "utf-8")
            except OSError as error:
                raise PipelineError(
                    f"{html} cannot be written: {error.strerror}", exit_code=USAGE
                ) from error
        if as_json:
            typer.echo(visible_json(to_json(found)), nl=False)
        else:
            _show(found, TerminalOutput())


def _show(found: "QualityResult", console: TerminalOutput) -> None:
    from ringfence_pipeline.quality.report import percent, seconds_text  # noqa: PLC0415

    total = found.total
    console.print(
        f"{total.records:,} records: {total.accepted:,} accepted, {total.duplicates:,} duplicates "
        f"({percent(total.duplicates, total.records)}), {total.rejected:,} rejected otherwise, "
        f"{total.without_id:,} without an id",
        highlight=False,
    )
    if found.seconds is not None:
        console.print(
            f"Copies came within {seconds_text(found.seconds.p50)} (50 %), "
            f"{seconds_text(found.seconds.p99)} (99 %), {seconds_text(found.seconds.max)} (all)",
            highlight=False,
        )
    console.print(_named("publisher", found.publishers, found.publishers_total))
    console.print(_named("address", found.addresses, found.addresses_total))
    reasons = Table("reason", "cause", "records", title="Dead letters")
    for each in found.reasons[:_ROWS_SHOWN]:
        reasons.add_row(each.reason, each.cause, f"{each.records:,}")
    console.print(reasons)
    ids = Table("id", "address", "copies", "went out", title="Ids that came most often")
    for repeated in found.ids[:_ROWS_SHOWN]:
        ids.add_row(repeated.id, repeated.address, f"{repeated.copies:,}", f"{repeated.accepted:,}")
    console.print(ids)


def _named(name: str, rows: "tuple[NamedCounts, ...]", total: int) -> Table:
    from ringfence_pipeline.quality.report import percent  # noqa: PLC0415

    shown = rows[:_ROWS_SHOWN]
    columns = ("records", "accepted", "duplicates", "share", "rejected", "without id")
    table = Table(name, *columns, title=f"{len(shown):,} of {total:,}, most duplicates first")
    for each in shown:
        counts = each.counts
        table.add_row(
            *(each.name or "none", f"{counts.records:,}", f"{counts.accepted:,}"),
            *(f"{counts.duplicates:,}", percent(counts.duplicates, counts.records)),
            *(f"{counts.rejected:,}", f"{counts.without_id:,}"),
        )
    return table
