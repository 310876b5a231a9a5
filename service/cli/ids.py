"""`ringfence id …`: whether an id is known, since which record, and for how long."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from service.cli.arguments import PAGE_MAX, Document, given_lines, lines_of_stdin, path_of
from service.cli.cells import Cell, count, place, several, word, yes
from service.cli.command import (
    Address,
    CommandContext,
    Id,
    Limit,
    Out,
    Risk,
    lines_to,
    noun,
    sure,
    verb,
)
from service.cli.page import Facts, Page, Table, Title
from service.errors import AdminExit, ExitError

app = noun("Ids: what an address remembers, and since which record.")

IdsText = Annotated[
    list[str], typer.Argument(metavar="ID", help="As text, hex:… or base64:…; - is a pipe.")
]
File = Annotated[Path, typer.Argument(metavar="FILE", help="NDJSON.", dir_okay=False)]
Input = Annotated[
    str | None,
    typer.Option(
        "--input", metavar="TOPIC", help="In whose stead ids are taken that name other topics."
    ),
]


@verb(app, "get", "id get orders order-17", "id get orders hex:00ff")
def get(call: CommandContext, address: Address, identifier: Id) -> None:
    """Tell whether an id is remembered, since which record, and for how long.

    Exit 3 when it is not.
    """
    found = lookup(call, address, identifier)
    call.screen.show(found, lambda: page(call, found))
    if not found["known"]:
        raise typer.Exit(AdminExit.NOT_FOUND)


@verb(app, "ls", "id ls orders", "id ls orders --limit 1000 --json | jq -r '.ids[].id'")
def ls(call: CommandContext, address: Address, *, limit: Limit = 50) -> None:
    """List the ids that an address remembers, the newest first."""
    path = path_of("v1", "addresses", address, "ids")
    found = call.api.pages(path, "ids", limit)
    rows = [
        [
            word(each["id"]),
            place(each),
            call.screen.when(each["time"]),
            _left(each),
        ]
        for each in found["ids"]
    ]
    titles = ("id", "record", "accepted", "forgotten after")
    empty = f"{address} remembers no id."
    call.screen.show(found, lambda: [Table(titles, rows, empty)])


@verb(app, "lookup", "id lookup orders order-17 order-18", "id lookup orders - < ids.txt")
def look_up(call: CommandContext, address: Address, ids: IdsText) -> None:
    """Tell of many ids which are remembered, and since which records. Exit 3 when one is not.

    A dash reads them from standard input, one a line.
    """
    path = path_of("v1", "addresses", address, "ids:lookup")
    whole: Document = {"ids": [], "known": 0}
    wanted = lines_of_stdin() if ids == ["-"] else ids
    for start in range(0, len(wanted), PAGE_MAX):
        part = call.api.post(path, {"ids": wanted[start : start + PAGE_MAX]})
        known = whole["known"] + part["known"]
        whole = {**part, "ids": [*whole["ids"], *part["ids"]], "known": known}
    rows = [[word(each["id"]), yes(each["known"]), *_first(call, each)] for each in whole["ids"]]
    titles = ("id", "known", "record", "accepted", "forgotten after")
    call.screen.show(whole, lambda: [Table(titles, rows, "No id was named.")])
    if whole["known"] < len(whole["ids"]):
        raise typer.Exit(AdminExit.NOT_FOUND)


@verb(app, "export", "id export orders --out orders.ndjson", "id export orders | head -3")
def export(call: CommandContext, address: Address, *, out: Out = None) -> None:
    """Write all ids of an address as NDJSON, the oldest first, as they can be imported."""
    path = path_of("v1", "addresses", address, "ids:export")
    written = lines_to(call, out, call.api.lines(path))
    if out is not None:
        call.screen.progress(f"{written:,} ids stand in {out}.", last=True)


@verb(
    app,
    "import",
    "id import orders orders.ndjson --dry-run",
    "id import orders orders.ndjson --input orders --yes --reason 'moved here'",
    takes=Risk.RISK,
)
def import_ids(
    call: CommandContext, address: Address, file: File, *, instead_of: Input = None
) -> None:
    """Have an address know ids as if they had been accepted: NDJSON, as id export writes it.

    Counts first how many are new, and asks.
    """
    path = path_of("v1", "addresses", address, "ids:import")
    tried = call.api.upload(path, given_lines(file), input=instead_of, dry_run=True)
    if call.dry_run:
        call.screen.show(tried, lambda: [Facts(_imported(tried))])
        return
    sure(call, f"Import {several(tried['ids'], 'id')} into {address}, new: {tried['new']:,}?")
    done = call.api.upload(path, given_lines(file), input=instead_of, reason=call.reason)
    call.screen.show(done, lambda: [Facts(_imported(done))])


@verb(app, "forget", "id forget orders order-17 --reason 'sent again on purpose'", takes=Risk.RISK)
def forget(call: CommandContext, address: Address, identifier: Id) -> None:
    """Forget an id: its next record is accepted. Exit 3 when it was not known."""
    found = lookup(call, address, identifier)
    if call.dry_run:
        call.screen.show(found, lambda: page(call, found))
        if found["known"] and not call.screen.as_json:
            call.screen.note("Without --dry-run it is forgotten, and its next record is accepted.")
        return
    if not found["known"]:
        sentence = f"{address} does not know the id {identifier!r}; nothing was changed."
        raise ExitError(AdminExit.NOT_FOUND, sentence)
    if not call.assume_yes:
        call.screen.beside(page(call, found))
    sure(call, f"Forget it? The next record with this id on {address} is accepted.")
    done = call.api.delete("/v1/ids", address=address, name=identifier, reason=call.reason)
    call.screen.show(done, lambda: [Facts([("forgotten", count(done["ids"]))])])


def lookup(call: CommandContext, address: str, identifier: str) -> Document:
    """What the API knows of an id; by query, which takes any characters and the empty id."""
    found = call.api.get("/v1/ids", address=address, name=identifier)
    if not found["known"]:
        call.note_strange(call.api.get(path_of("v1", "addresses", address)))
    return found


def page(call: CommandContext, found: Mapping[str, Any]) -> Page:
    """The page of one id: the answer in a sentence, then what it rests on."""
    sightings = found["sightings"]
    if not found["known"]:
        parts = "" if found["complete"] else ", as far as this instance tells"
        head = f"{found['address']} does not know it{parts}: a record with it is accepted."
        return [Title(head), _asked(found)]
    since = f" of {place(sightings[0]).plain}" if sightings else ""
    head = f"{found['address']} knows it: a record with it is a duplicate{since}."
    if len(sightings) == 1:
        first = [
            ("accepted record", place(sightings[0])),
            ("accepted", call.screen.since(sightings[0]["time"])),
            ("forgotten after", _left(sightings[0])),
        ]
        return [Title(head), Facts([*_asked(found).rows, *first])]
    rows = [[place(each), call.screen.since(each["time"]), _left(each)] for each in sightings]
    titles = ("accepted record", "accepted", "forgotten after")
    return [Title(head), _asked(found), Table(titles, rows, "Its record is not known.")]


def _first(call: CommandContext, found: Mapping[str, Any]) -> list[Cell]:
    """Of an id, the record that counts."""
    if not found["sightings"]:
        return [word(None)] * 3
    first = found["sightings"][0]
    return [place(first), call.screen.when(first["time"]), _left(first)]


def _imported(done: Mapping[str, Any]) -> list[tuple[str, Cell]]:
    counts = [("ids", count(done["ids"])), ("new", count(done["new"]))]
    return [(name, cell._replace(right=False)) for name, cell in counts]


def _left(sighting: Mapping[str, Any]) -> Cell:
    """How many ids are to come before it is forgotten."""
    number = sighting["slots_to_eviction"]
    return Cell(str(number), several(number, "more id"))


def _asked(found: Mapping[str, Any]) -> Facts:
    known = "yes" if found["known"] else "no"
    return Facts(
        [
            ("address", word(found["address"])),
            ("id", word(found["id"])),
            ("known", word(known, "good" if found["known"] else "dim")),
        ]
    )
