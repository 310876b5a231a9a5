"""`ringfence dead-letter …`: what was not accepted, and why."""

import json
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from service.commands.cells import NOTHING
from service.commands.command import Call, noun, verb
from service.commands.documents import PAGE_MAX, Document, path_of
from service.commands.letter_filter import (
    Address,
    LetterFilter,
    Reasons,
    Topics,
)
from service.commands.letter_pages import letter_page, summary_page, table
from service.commands.options import Limit, Out
from service.commands.output import lines_to
from service.commands.page import legible_cell
from service.commands.places import Place, place_of
from service.commands.problem import RefusedError
from service.commands.tailing import Tail
from service.errors import AdminExit, ExitError

app = noun("Dead letters: what was not accepted, why, and of which record it is a duplicate.")

PlaceText = Annotated[
    str, typer.Argument(metavar="PLACE", help="Of the dead letter: topic-partition@offset.")
]
Oldest = Annotated[bool, typer.Option("--oldest", help="The oldest first, not the newest.")]
Payload = Annotated[
    bool, typer.Option("--payload", help="With key, value and headers: a request for each.")
]
Every = Annotated[float, typer.Option("--every", metavar="SECONDS", min=0.2, help="How often.")]


@verb(
    app,
    "ls",
    "dead-letter ls",
    "dead-letter ls --address orders --because duplicate --from 2h",
)
def ls(call: Call, wanted: LetterFilter, *, oldest: Oldest = False, limit: Limit = 50) -> None:
    """List dead letters, the newest first, each with the record that it repeats."""
    found = _found(call, wanted, limit, newest=not oldest)
    empty = "No dead letter fits."
    call.screen.show(found, lambda: [table(call, found["dead_letters"], empty)])
    if not call.screen.as_json and not found["complete"]:
        call.screen.note(f"There may be more; see --limit, or count: {_command('summary')}.")


@verb(app, "show", "dead-letter show orders.dlq-0@17")
def show(call: Call, where: PlaceText) -> None:
    """Show one dead letter: why, of which record it is a duplicate, and what it holds."""
    letter = read(call, place_of(where))
    call.screen.show(letter, lambda: letter_page(call, letter))


@verb(app, "summary", "dead-letter summary --from 7d")
def summary(call: Call, wanted: LetterFilter) -> None:
    """Count dead letters by reason, address, topic and hour."""
    counted = _counted(call, wanted)
    call.screen.show(counted, lambda: summary_page(call, counted))


@verb(app, "tail", "dead-letter tail", "dead-letter tail --address orders --json | jq .id")
def tail(
    call: Call,
    *,
    address: Address = None,
    because: Reasons = None,
    topic: Topics = None,
    every: Every = 1.0,
) -> None:
    """Print dead letters as they come, a line each, until Ctrl-C.

    Once it has begun, it waits for a service that does not answer.
    """
    told = Tail(datetime.now(UTC))
    has_begun = is_away = False
    while True:
        since = told.since.isoformat()
        wanted = LetterFilter.of(address, because, topic, since, None, None, None)
        try:
            for page in _pages(call, wanted):
                for letter in told.new(page, datetime.now(UTC)):
                    _tell(call, letter)
            has_begun, is_away = True, False
        except ExitError as error:
            if not has_begun or not _may_pass(error):
                raise
            if not is_away:
                call.screen.note(f"{error.sentence.splitlines()[0]} Waiting …")
            is_away = True
        time.sleep(every)


@verb(
    app,
    "export",
    "dead-letter export --because duplicate > letters.ndjson",
    "dead-letter export --payload --out letters.ndjson",
)
def export(call: Call, wanted: LetterFilter, *, payload: Payload = False, out: Out = None) -> None:
    """Write all that fit as NDJSON, the oldest first: one dead letter a line."""
    letters: Iterator[Document] = _all(call, wanted)
    if payload:
        letters = (read(call, Place(x["topic"], x["partition"], x["offset"])) for x in letters)
    written = lines_to(call, out, (json.dumps(each, ensure_ascii=False) for each in letters))
    call.screen.progress(f"{written:,} dead letters", last=True)


def read(call: Call, at: Place) -> Document:
    """Return the dead letter at a place."""
    return call.api.get(path_of("v1", "dead-letters", *map(str, at)))


def _tell(call: Call, letter: Mapping[str, Any]) -> None:
    if call.screen.as_json:
        call.screen.json_line(json.dumps(letter, ensure_ascii=False))
        return
    cells = [legible_cell(cell) for cell in table(call, [letter], "").rows[0]]
    if call.screen.terminal:
        call.screen.line("  ".join(cell.shown for cell in cells if cell.shown != NOTHING))
    else:
        call.screen.line("\t".join(cell.plain for cell in cells))


def _found(call: Call, wanted: LetterFilter, limit: int, *, newest: bool) -> Document:
    return call.api.pages(
        "/v1/dead-letters", "dead_letters", limit, newest=newest, **wanted.query()
    )


def _all(call: Call, wanted: LetterFilter) -> Iterator[Document]:
    """All that fit, the oldest first."""
    for page in _pages(call, wanted):
        yield from page


def _pages(call: Call, wanted: LetterFilter) -> Iterator[list[Document]]:
    """All that fit, the oldest first, page by page."""
    token: str | None = None
    while True:
        found = call.api.get(
            "/v1/dead-letters", page_size=PAGE_MAX, page_token=token, **wanted.query()
        )
        yield found["dead_letters"]
        token = found["next_page_token"]
        if not token:
            return


def _may_pass(error: ExitError) -> bool:
    """Whether the service is away, and no answer of it stands however often it is asked."""
    if isinstance(error, RefusedError):
        return error.status in {429, 503}
    return error.exit_code == AdminExit.UNREACHABLE


def _counted(call: Call, wanted: LetterFilter) -> Document:
    """All counts, added up over as many requests as it takes."""
    whole: Document = {}
    token: str | None = None
    while True:
        part = call.api.get("/v1/dead-letters:summary", page_token=token, **wanted.query())
        whole = _added(whole, part) if whole else part
        token = part["next_page_token"]
        if not token:
            call.screen.progress("")
            return whole
        call.screen.progress(f"{whole['scanned']:,} records looked at …")


def _added(whole: Mapping[str, Any], part: Mapping[str, Any]) -> Document:
    added = {name: whole[name] + part[name] for name in ("dead_letters", "foreign", "scanned")}
    for name in ("by_reason", "by_address", "by_topic"):
        names = [*whole[name], *(key for key in part[name] if key not in whole[name])]
        added[name] = {key: whole[name].get(key, 0) + part[name].get(key, 0) for key in names}
    hours: dict[str, int] = {}
    for each in (*whole["by_hour"], *part["by_hour"]):
        hours[each["hour"]] = hours.get(each["hour"], 0) + each["dead_letters"]
    added["by_hour"] = [{"hour": hour, "dead_letters": hours[hour]} for hour in sorted(hours)]
    return {**part, **added}


def _command(name: str) -> str:
    return f"ringfence dead-letter {name}"
