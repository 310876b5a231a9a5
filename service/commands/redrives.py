"""`ringfence redrive …`: dead letters sent on their way again, as jobs that can be watched."""

import time
from collections.abc import Mapping
from typing import Annotated, Any, Final

import typer

from service.commands.ask import sure
from service.commands.command import Call, Takes, noun, verb
from service.commands.documents import Document, path_of
from service.commands.letter_filter import (
    LetterFilter,
)
from service.commands.options import Limit
from service.commands.places import place_of
from service.commands.redrive_pages import (
    Mode,
    number_of,
    preview_page,
    progress_line,
    redrive_page,
    redrives_table,
    warning,
)
from service.errors import ExitCode, ExitError

app = noun("Redrives: dead letters sent on their way again, as jobs that survive restarts.")

LOOK_EVERY_S: Final = 0.5


ModeOption = Annotated[
    Mode,
    typer.Option(
        "--mode",
        help="through: decided again; forget: its id is forgotten first; bypass: to the output.",
    ),
]
Letters = Annotated[
    list[str] | None,
    typer.Argument(metavar="PLACE", help="Dead letters one by one; then no filter."),
]
Rate = Annotated[
    float | None, typer.Option("--rate", metavar="N", help="Records per second at most.")
]
Most = Annotated[int | None, typer.Option("--limit", "-n", metavar="N", min=1, help="At most.")]
Watch = Annotated[bool, typer.Option("--watch", "-w", help="Follow it to its end.")]
Name = Annotated[str, typer.Argument(metavar="REDRIVE", help="As redrive ls names it.")]


@verb(
    app,
    "start",
    "redrive start --mode forget --address orders --because duplicate --dry-run",
    "redrive start --mode through orders.dlq-0@17 orders.dlq-0@18",
    "redrive start --mode bypass --from 2h --rate 500 --yes --reason 'INC-17'",
    takes=Takes.RISK,
)
def start(
    call: Call,
    letters: Letters = None,
    *,
    mode: ModeOption,
    wanted: LetterFilter,
    rate: Rate = None,
    limit: Most = None,
    watch: Watch = False,
) -> None:
    """Redrive dead letters: counts them, shows samples, asks, begins.

    The dead letters stay where they are. A redrive survives restarts and sends nothing twice.
    """
    order = _order(mode, wanted, letters or [], rate, limit)
    preview = call.api.post("/v1/redrives", order, dry_run=True)
    if call.dry_run:
        call.screen.show(preview, lambda: preview_page(call, mode, preview))
        return
    if not call.assume_yes:
        call.screen.beside(preview_page(call, mode, preview))
    if not preview["matched"] and preview["complete"]:
        raise ExitError(ExitCode.NO, "No dead letter fits, so nothing was begun.")
    question = f"Redrive {number_of(preview)} with mode {mode}?"
    sure(call, " ".join(filter(None, [warning(preview), question])))
    begun = call.api.post("/v1/redrives", order, reason=call.reason)
    if watch:
        begun = follow(call, begun["id"])
    call.screen.show(begun, lambda: redrive_page(call, begun))
    if not watch:
        call.screen.note(f"Follow it: ringfence redrive watch {begun['id']}")
    _judge(begun)


@verb(app, "ls", "redrive ls")
def ls(call: Call, *, limit: Limit = 50) -> None:
    """List redrives, the newest first."""
    found = call.api.pages("/v1/redrives", "redrives", limit)
    call.screen.show(found, lambda: [redrives_table(call, found["redrives"])])


@verb(app, "show", "redrive show 0198c2f4")
def show(call: Call, name: Name) -> None:
    """Show a redrive: what was ordered, by whom, and how far it has come."""
    job = _read(call, name)
    call.screen.show(job, lambda: redrive_page(call, job))


@verb(app, "watch", "redrive watch 0198c2f4")
def watch(call: Call, name: Name) -> None:
    """Follow a redrive to its end; exit 1 when it fails or is cancelled."""
    job = follow(call, name)
    call.screen.show(job, lambda: redrive_page(call, job))
    _judge(job)


@verb(app, "cancel", "redrive cancel 0198c2f4 --reason 'the wrong filter'", takes=Takes.WRITE)
def cancel(call: Call, name: Name) -> None:
    """Cancel a redrive; what was redriven stays so."""
    path = path_of("v1", "redrives", f"{name}:cancel")
    job = call.api.post(path, reason=call.reason)
    call.screen.show(job, lambda: redrive_page(call, job))


def follow(call: Call, name: str) -> Document:
    """Show how far a redrive is until it ends, and return it."""
    while True:
        job = _read(call, name)
        ended = job["state"] != "running"
        call.screen.progress(progress_line(job), last=ended)
        if ended:
            return job
        time.sleep(LOOK_EVERY_S)


def _order(
    mode: Mode, wanted: LetterFilter, letters: list[str], rate: float | None, limit: int | None
) -> Document:
    given = {
        "mode": mode.value,
        "topics": list(wanted.topics),
        "filter": wanted.body(),
        "letters": [place_of(each)._asdict() for each in letters],
        "max_per_second": rate,
        "limit": limit,
    }
    return {name: value for name, value in given.items() if value not in (None, [], {})}


def _read(call: Call, name: str) -> Document:
    return call.api.get(path_of("v1", "redrives", name))


def _judge(job: Mapping[str, Any]) -> None:
    if job["state"] in {"failed", "cancelled"}:
        why = job["error"] or f"it was {job['state']}"
        raise ExitError(ExitCode.NO, f"The redrive {job['id']} did not come to its end: {why}.")
