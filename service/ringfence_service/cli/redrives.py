"""`ringfence redrive …`: jobs that send dead letters again."""

import time
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Annotated, Any, Final

import typer

from ringfence_service.cli.arguments import Document, path_of, position_of
from ringfence_service.cli.cells import Cell, Tone, count, phase, position, share, span, word
from ringfence_service.cli.command import CommandContext, Limit, Risk, confirm, noun, verb
from ringfence_service.cli.dead_letters import FilterOptions, breakdown, table
from ringfence_service.cli.page import Facts, Page, Part, Table, Title
from ringfence_service.cli.problem import ApiError
from ringfence_service.errors import ExitCode, ExitError
from ringfence_service.formatting import plural


class RedriveMode(StrEnum):
    """How a redriven dead letter is decided."""

    THROUGH = "through"
    FORGET = "forget"
    BYPASS = "bypass"


_MEANS: Final = {
    RedriveMode.THROUGH: "Each is decided again; a duplicate stays a duplicate.",
    RedriveMode.FORGET: "The id of each is forgotten; then it is accepted and remembered.",
    RedriveMode.BYPASS: "Each goes straight to its output; remembered ids do not change.",
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
    """Return how many dead letters a redrive would send: `5 of 36,592 dead letters`."""
    matched = plural(preview["matched"], "dead letter")
    matched = matched if preview["complete"] else f"more than {matched}"
    if preview["redrives"] == preview["matched"]:
        return matched
    return f"{preview['redrives']:,} of {matched}"


def warning(preview: Mapping[str, Any]) -> str:
    """Return a warning about messages that the outputs would contain twice, or an empty text."""
    if not preview["doubles"]:
        return ""
    some = "These" if preview["doubles"] == preview["redrives"] else f"Up to {preview['doubles']:,}"
    return f"{some} were kept out as duplicates: the output will contain these messages twice."


def preview_page(call: CommandContext, mode: RedriveMode, preview: Mapping[str, Any]) -> Page:
    """Return the page of a preview: counts and samples."""
    parts: list[Part] = [Title(f"{number_of(preview)}. {_MEANS[mode]}")]
    parts += breakdown(preview, preview["matched"])
    if preview["skipped"]:
        rows = [[word(why), count(number, "warn")] for why, number in preview["skipped"].items()]
        parts.append(Table(("cannot be redriven", "dead letters"), rows, ""))
    if preview["samples"]:
        parts += [Title("Samples"), table(call, preview["samples"], "")]
    return parts


def redrives_table(call: CommandContext, jobs: Sequence[Mapping[str, Any]]) -> Table:
    """Return a table of redrives."""
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
    """Return the page of one redrive."""
    done = job["progress"]
    rows = [
        ("state", phase(job["state"])),
        ("done", _done(job)),
        ("begun", call.screen.since(job["created_at"])),
        ("ended", call.screen.since(job["ended_at"])),
        ("by", word(job["created_by"])),
        ("reason", word(job["reason"])),
        ("mode", word(f"{job['mode']}: {_MEANS[RedriveMode(job['mode'])]}")),
        ("dead letters", word(filter_text(job))),
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


def filter_text(job: Mapping[str, Any]) -> str:
    """Return the filter of a redrive as text."""
    if job["letters"]:
        return f"{job['letters']:,} by position"
    fields = {"topic": job["topics"], **job["filter"]}
    texts = []
    for name, value in fields.items():
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
    """Return the progress of a redrive in one line."""
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


app = noun("Redrives: jobs that send dead letters again and survive restarts.")

LOOK_EVERY_S: Final = 0.5
"""How often a watched redrive is read, each time by one request: often enough for a person."""

ModeOption = Annotated[
    RedriveMode,
    typer.Option(
        "--mode",
        help="through: decide again; forget: forget its id first; bypass: straight to the output.",
    ),
]

Letters = Annotated[
    list[str] | None,
    typer.Argument(metavar="POSITION", help="Dead letters to redrive, instead of a filter."),
]

Rate = Annotated[
    float | None, typer.Option("--rate", metavar="N", help="Maximum records per second.")
]

Most = Annotated[
    int | None,
    typer.Option("--limit", "-n", metavar="N", min=1, help="Maximum number to redrive."),
]

Watch = Annotated[bool, typer.Option("--watch", "-w", help="Follow it until it ends.")]

Name = Annotated[str, typer.Argument(metavar="REDRIVE", help="The id that redrive ls shows.")]


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
    options: FilterOptions,
    rate: Rate = None,
    limit: Most = None,
    watch: Watch = False,
) -> None:
    """Redrive dead letters: count them, show samples, ask, then start.

    The dead letters stay on their topics. A redrive survives restarts and sends nothing twice.
    """
    order = _order(mode, options, letters or [], rate, limit)
    preview = call.api.post("/v1/redrives", order, dry_run=True)
    for each in preview["samples"] if letters else ():
        _note_redriven(call, each)
    if call.dry_run:
        call.screen.show(preview, lambda: preview_page(call, mode, preview))
        if text := warning(preview):  # otherwise the question contains it
            call.screen.note(text)
        return
    if not call.assume_yes:
        call.screen.preview(preview_page(call, mode, preview))
    if not preview["matched"] and preview["complete"]:
        raise ExitError(ExitCode.NO, "No dead letter matches; nothing was started.")
    question = f"Redrive {number_of(preview)} with mode {mode}?"
    confirm(call, " ".join(filter(None, [warning(preview), question])))
    job = call.api.post("/v1/redrives", order, reason=call.reason)
    if watch:
        job = follow(call, job["id"])
    call.screen.show(job, lambda: redrive_page(call, job))
    if not watch:
        call.screen.note(f"Follow it: ringfence redrive watch {job['id']}")
    _raise_if_not_done(job)


@verb(app, "ls", "redrive ls")
def ls(call: CommandContext, *, limit: Limit = 50) -> None:
    """List redrives, newest first."""
    found = call.api.pages("/v1/redrives", "redrives", limit)
    call.screen.show(found, lambda: [redrives_table(call, found["redrives"])])


@verb(app, "show", "redrive show 0198c2f4")
def show(call: CommandContext, name: Name) -> None:
    """Show a redrive: its filter, who started it, and its progress."""
    job = _read(call, name)
    call.screen.show(job, lambda: redrive_page(call, job))


@verb(app, "watch", "redrive watch 0198c2f4")
def watch(call: CommandContext, name: Name) -> None:
    """Follow a redrive until it ends. Exit 1 when it fails or is cancelled."""
    job = follow(call, name)
    call.screen.show(job, lambda: redrive_page(call, job))
    _raise_if_not_done(job)


@verb(app, "cancel", "redrive cancel 0198c2f4 --reason 'the wrong filter'", takes=Risk.WRITE)
def cancel(call: CommandContext, name: Name) -> None:
    """Cancel a redrive; dead letters that were already sent are not undone."""
    path = path_of("v1", "redrives", f"{name}:cancel")
    job = call.api.post(path, reason=call.reason)
    call.screen.show(job, lambda: redrive_page(call, job))


def follow(call: CommandContext, name: str) -> Document:
    """Show the progress of a redrive until it ends, and return it."""
    while True:
        job = _read(call, name)
        ended = job["state"] != "running"
        call.screen.progress(progress_line(job), last=ended)
        if ended:
            return job
        time.sleep(LOOK_EVERY_S)


def _note_redriven(call: CommandContext, letter: Mapping[str, Any]) -> None:
    """Write a note if a redrive has sent a dead letter before."""
    at = position(letter).plain
    try:
        found = call.api.get("/v1/records:explain", at=at, search=False)
    except ApiError as refused:
        call.screen.note(f"Whether it was redriven cannot be looked up now: {refused.sentence}")
        return
    if found["accepted_since"] or found["redrives"]:
        did = "accepted" if found["accepted_since"] else "sent"
        call.screen.note(f"{at}: a redrive has {did} it since; see ringfence why {at}.")
    elif found["since"]:
        call.screen.note(f"{at}: {found['since']}")
    elif found["id_error"]:
        call.screen.note(f"{at}: its id cannot be looked up now: {found['id_error']}")


def _order(
    mode: RedriveMode,
    options: FilterOptions,
    letters: list[str],
    rate: float | None,
    limit: int | None,
) -> Document:
    fields = {
        "mode": mode.value,
        "topics": list(options.topics),
        "filter": options.body(),
        "letters": [position_of(each)._asdict() for each in letters],
        "max_per_second": rate,
        "limit": limit,
    }
    return {name: value for name, value in fields.items() if value not in (None, [], {})}


def _read(call: CommandContext, name: str) -> Document:
    return call.api.get(path_of("v1", "redrives", name))


def _raise_if_not_done(job: Mapping[str, Any]) -> None:
    if job["state"] in {"failed", "cancelled"}:
        why = job["error"] or f"it was {job['state']}"
        raise ExitError(ExitCode.NO, f"The redrive {job['id']} did not complete: {why}.")
