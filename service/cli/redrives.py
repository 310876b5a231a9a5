"""`ringfence redrive …`: sends dead letters again, as jobs that can be watched."""

import time
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Annotated, Any, Final

import typer

from service.cli.arguments import Document, path_of, place_of
from service.cli.cells import Cell, Tone, count, phase, several, share, span, word
from service.cli.command import CommandContext, Limit, Risk, noun, sure, verb
from service.cli.dead_letters import FilterOptions, breakdown, table
from service.cli.page import Facts, Page, Part, Table, Title
from service.errors import ExitCode, ExitError


class RedriveMode(StrEnum):
    """What becomes of a dead letter that is redriven."""

    THROUGH = "through"
    FORGET = "forget"
    BYPASS = "bypass"


_MEANS: Final = {
    RedriveMode.THROUGH: "Each is decided again: a duplicate stays one.",
    RedriveMode.FORGET: "The id of each is forgotten, then it is accepted and remembered.",
    RedriveMode.BYPASS: "Each goes straight to its output; what is remembered stays as it is.",
}

_COUNTED: Final = ("scanned", "matched", "sent", "accepted", "refused", "waiting", "failed")

_TITLES: Final = (
    "id",
    "state",
    "mode",
    "done",
    "sent",
    "accepted",
    "refused",
    "rate",
    "begun",
    "by",
)


def number_of(preview: Mapping[str, Any]) -> str:
    """How many it would be about: 5 of 36,592 dead letters."""
    all_ = several(preview["matched"], "dead letter")
    all_ = all_ if preview["complete"] else f"more than {all_}"
    if preview["redrives"] == preview["matched"]:
        return all_
    return f"{preview['redrives']:,} of {all_}"


def warning(preview: Mapping[str, Any]) -> str:
    """What the outputs will hold twice, as a sentence; empty for nothing."""
    if not preview["doubles"]:
        return ""
    some = "These" if preview["doubles"] == preview["redrives"] else f"Up to {preview['doubles']:,}"
    return f"{some} were refused as duplicates: the output will then hold these messages twice."


def preview_page(call: CommandContext, mode: RedriveMode, preview: Mapping[str, Any]) -> Page:
    """What a redrive would be about: counts, and some of them."""
    parts: list[Part] = [Title(f"{number_of(preview)}. {_MEANS[mode]}")]
    told = warning(preview) if call.dry_run else ""  # else the question tells it
    parts += [Title(told)] if told else []
    parts += breakdown(preview, preview["matched"])
    if preview["skipped"]:
        rows = [[word(why), count(number, "warn")] for why, number in preview["skipped"].items()]
        parts.append(Table(("cannot be redriven", "dead letters"), rows, ""))
    if preview["samples"]:
        parts += [Title("Some of them"), table(call, preview["samples"], "")]
    return parts


def redrives_table(call: CommandContext, jobs: Sequence[Mapping[str, Any]]) -> Table:
    """A table of redrives."""
    rows = [_row(call, each) for each in jobs]
    spare = ("by", "sent", "rate", "refused")
    return Table(_TITLES, rows, "There are no redrives.", spare)


def _row(call: CommandContext, job: Mapping[str, Any]) -> list[Cell]:
    done = job["progress"]
    return [
        word(job["id"]),
        phase(job["state"]),
        word(job["mode"]),
        _done(job),
        count(done["sent"]),
        count(done["accepted"]),
        count(done["refused"], "warn" if done["refused"] else ""),
        _rate(job),
        call.screen.when(job["created_at"]),
        word(job["created_by"]),
    ]


def redrive_page(call: CommandContext, job: Mapping[str, Any]) -> Page:
    """The page of one redrive."""
    done = job["progress"]
    rows = [
        ("state", phase(job["state"])),
        ("done", _done(job)),
        ("begun", call.screen.since(job["created_at"])),
        ("ended", call.screen.since(job["ended_at"])),
        ("by", word(job["created_by"])),
        ("reason", word(job["reason"])),
        ("mode", word(f"{job['mode']}: {_MEANS[RedriveMode(job['mode'])]}")),
        ("dead letters", word(_filter_text(job))),
        ("rate", _rate(job)),
        ("time left", span(None if job["eta_seconds"] is None else job["eta_seconds"] * 1_000)),
    ]
    rows += [("waits for", word(job["waiting_for"], "warn"))] if job["waiting_for"] else []
    rows += [("error", word(job["error"], "bad"))] if job["error"] else []
    counts = [count(done[name], _tone(name, done[name])) for name in _COUNTED]
    skipped = [[word(why), count(number)] for why, number in done["skipped"].items()]
    counted: list[Part] = [Table(_COUNTED, [counts], "")]
    counted += [Table(("skipped because", "records"), skipped, "")] if skipped else []
    return [
        Title(f"Redrive {job['id']}"),
        Facts([(name, cell._replace(right=False)) for name, cell in rows]),
        *counted,
    ]


def _tone(name: str, number: int) -> Tone:
    tones: Mapping[str, Tone] = {"failed": "bad", "refused": "warn"}
    return tones.get(name, "") if number else ""


def _filter_text(job: Mapping[str, Any]) -> str:
    """What was ordered, as options would say it."""
    if job["letters"]:
        return f"{job['letters']:,} named one by one"
    told = {"topic": job["topics"], **job["filter"]}
    texts = []
    for name, value in told.items():
        if isinstance(value, Mapping):
            texts += [f"{name} {key} = {each}" for key, each in value.items()]
        elif value:
            texts.append(f"{name} {', '.join(value) if isinstance(value, list) else value}")
    return "; ".join(texts) or "all"


def _done(job: Mapping[str, Any]) -> Cell:
    return share(job["share"], 1)


def _rate(job: Mapping[str, Any]) -> Cell:
    most = "" if job["max_per_second"] is None else f" of {job['max_per_second']:,.0f} at most"
    rate = job["rate_per_second"]
    return Cell(f"{rate:.1f}", f"{rate:,.0f}/s{most}", right=True)


def progress_line(job: Mapping[str, Any]) -> str:
    """How far it is, in a line."""
    done = job["progress"]
    ratio = _done(job).shown.strip()
    left = job["eta_seconds"]
    parts = [
        f"{job['state']} {ratio}",
        f"{done['sent']:,} sent",
        f"{done['accepted']:,} accepted",
        f"{job['rate_per_second']:,.0f}/s",
    ]
    parts += [] if left is None else [f"{span(left * 1_000).shown} left"]
    parts += [job["waiting_for"]] if job["waiting_for"] else []
    return " · ".join(parts)


app = noun("Redrives: dead letters sent on their way again, as jobs that survive restarts.")

LOOK_EVERY_S: Final = 0.5

ModeOption = Annotated[
    RedriveMode,
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
    takes=Risk.RISK,
)
def start(
    call: CommandContext,
    letters: Letters = None,
    *,
    mode: ModeOption,
    wanted: FilterOptions,
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
def ls(call: CommandContext, *, limit: Limit = 50) -> None:
    """List redrives, the newest first."""
    found = call.api.pages("/v1/redrives", "redrives", limit)
    call.screen.show(found, lambda: [redrives_table(call, found["redrives"])])


@verb(app, "show", "redrive show 0198c2f4")
def show(call: CommandContext, name: Name) -> None:
    """Show a redrive: what was ordered, by whom, and how far it has come."""
    job = _read(call, name)
    call.screen.show(job, lambda: redrive_page(call, job))


@verb(app, "watch", "redrive watch 0198c2f4")
def watch(call: CommandContext, name: Name) -> None:
    """Follow a redrive to its end; exit 1 when it fails or is cancelled."""
    job = follow(call, name)
    call.screen.show(job, lambda: redrive_page(call, job))
    _judge(job)


@verb(app, "cancel", "redrive cancel 0198c2f4 --reason 'the wrong filter'", takes=Risk.WRITE)
def cancel(call: CommandContext, name: Name) -> None:
    """Cancel a redrive; what was redriven stays so."""
    path = path_of("v1", "redrives", f"{name}:cancel")
    job = call.api.post(path, reason=call.reason)
    call.screen.show(job, lambda: redrive_page(call, job))


def follow(call: CommandContext, name: str) -> Document:
    """Show how far a redrive is until it ends, and return it."""
    while True:
        job = _read(call, name)
        ended = job["state"] != "running"
        call.screen.progress(progress_line(job), last=ended)
        if ended:
            return job
        time.sleep(LOOK_EVERY_S)


def _order(
    mode: RedriveMode,
    wanted: FilterOptions,
    letters: list[str],
    rate: float | None,
    limit: int | None,
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


def _read(call: CommandContext, name: str) -> Document:
    return call.api.get(path_of("v1", "redrives", name))


def _judge(job: Mapping[str, Any]) -> None:
    if job["state"] in {"failed", "cancelled"}:
        why = job["error"] or f"it was {job['state']}"
        raise ExitError(ExitCode.NO, f"The redrive {job['id']} did not come to its end: {why}.")
