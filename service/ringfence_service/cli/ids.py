"""`ringfence id …`: look up, list, export, import and forget the ids of an address."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from ringfence_service.cli.arguments import (
    PAGE_MAX,
    Document,
    lines_of_file,
    lines_of_stdin,
    path_of,
)
from ringfence_service.cli.cells import Cell, count, position, word, yes
from ringfence_service.cli.command import (
    Address,
    CommandContext,
    Id,
    Limit,
    Out,
    Risk,
    confirm,
    lines_to,
    noun,
    verb,
)
from ringfence_service.cli.page import Facts, Page, Table, Title
from ringfence_service.errors import AdminExit, ExitError
from ringfence_service.formatting import plural

app = noun("Ids: what an address remembers, and since which record.")

IdsText = Annotated[
    list[str],
    typer.Argument(metavar="ID", help="Text, hex:… or base64:…; - reads standard input."),
]
File = Annotated[
    Path, typer.Argument(metavar="FILE", help="NDJSON, as id export writes it.", dir_okay=False)
]
Input = Annotated[
    str | None,
    typer.Option(
        "--input", metavar="TOPIC", help="The input that replaces the topics named in the file."
    ),
]


@verb(app, "get", "id get orders order-17", "id get orders hex:00ff")
def get(call: CommandContext, address: Address, identifier: Id) -> None:
    """Show whether an id is remembered, since which record, and for how long.

    Exit 3 when it is not.
    """
    explained = lookup(call, address, identifier)
    found = explained["id"]
    call.screen.show(found, lambda: page(call, explained["sentence"], found))
    if not found["known"]:
        call.screen.note_title(explained["sentence"])
        raise typer.Exit(AdminExit.NOT_FOUND)


@verb(app, "ls", "id ls orders", "id ls orders --limit 1000 --json | jq -r '.ids[].id'")
def ls(call: CommandContext, address: Address, *, limit: Limit = 50) -> None:
    """List the ids that an address remembers, newest first."""
    path = path_of("v1", "addresses", address, "ids")
    found = call.api.pages(path, "ids", limit)
    rows = [
        [
            word(each["id"]),
            position(each),
            call.screen.when(each["time"]),
            _left(each),
        ]
        for each in found["ids"]
    ]
    titles = ("id", "record", "partition time", "evicted after")
    empty = f"{address} remembers no ids."
    call.screen.show(found, lambda: [Table(titles, rows, empty)])


@verb(app, "lookup", "id lookup orders order-17 order-18", "id lookup orders - < ids.txt")
def look_up(call: CommandContext, address: Address, ids: IdsText) -> None:
    """Show which of many ids are remembered, and since which records. Exit 3 when one is not.

    A dash reads them from standard input, one per line.
    """
    path = path_of("v1", "addresses", address, "ids:lookup")
    whole: Document = {"ids": [], "known": 0}
    requested = lines_of_stdin() if ids == ["-"] else ids
    for start in range(0, len(requested), PAGE_MAX):
        part = call.api.post(path, {"ids": requested[start : start + PAGE_MAX]})
        known = whole["known"] + part["known"]
        whole = {**part, "ids": [*whole["ids"], *part["ids"]], "known": known}
    rows = [[word(each["id"]), yes(each["known"]), *_first(call, each)] for each in whole["ids"]]
    titles = ("id", "known", "record", "partition time", "evicted after")
    call.screen.show(whole, lambda: [Table(titles, rows, "No id was given.")])
    if whole["known"] < len(whole["ids"]):
        raise typer.Exit(AdminExit.NOT_FOUND)


@verb(app, "export", "id export orders --out orders.ndjson", "id export orders | head -3")
def export(call: CommandContext, address: Address, *, out: Out = None) -> None:
    """Write all ids of an address as NDJSON, oldest first, for id import."""
    path = path_of("v1", "addresses", address, "ids:export")
    written = lines_to(call, out, call.api.lines(path))
    if out is not None:
        call.screen.progress(f"{written:,} ids written to {out}.", last=True)


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
    """Import ids into an address as if it had accepted them.

    Counts the new ids first, and asks for confirmation.
    """
    path = path_of("v1", "addresses", address, "ids:import")
    preview = call.api.upload(path, lines_of_file(file), input=instead_of, dry_run=True)
    if call.dry_run:
        call.screen.show(preview, lambda: [Facts(_imported(preview))])
        return
    question = f"Import {plural(preview['ids'], 'id')} into {address}, new: {preview['new']:,}?"
    confirm(call, question)
    done = call.api.upload(path, lines_of_file(file), input=instead_of, reason=call.reason)
    call.screen.show(done, lambda: [Facts(_imported(done))])


@verb(app, "forget", "id forget orders order-17 --reason 'sent again on purpose'", takes=Risk.RISK)
def forget(call: CommandContext, address: Address, identifier: Id) -> None:
    """Forget an id: the next record with it is accepted. Exit 3 when it was not known."""
    explained = lookup(call, address, identifier)
    found = explained["id"]
    if call.dry_run:
        call.screen.show(found, lambda: page(call, explained["sentence"], found))
        if found["known"] and not call.screen.as_json:
            call.screen.note("Without --dry-run it is forgotten, and its next record is accepted.")
        return
    if not found["known"]:
        raise ExitError(AdminExit.NOT_FOUND, f"{explained['sentence']} Nothing was changed.")
    if not call.assume_yes:
        call.screen.preview(page(call, explained["sentence"], found))
    confirm(call, f"Forget it? The next record with this id on {address} is accepted.")
    done = call.api.delete("/v1/ids", address=address, name=identifier, reason=call.reason)
    call.screen.show(done, lambda: [Facts([("forgotten", count(done["ids"]))])])


def lookup(call: CommandContext, address: str, identifier: str) -> Document:
    """Return the explanation of an id: what its address knows of it, also as a sentence.

    The id is a query parameter, which allows any characters and the empty id.
    """
    return call.api.get("/v1/records:explain", address=address, id=identifier)


def page(call: CommandContext, title: str, found: Mapping[str, Any]) -> Page:
    """Return the page of one id: the answer in a sentence, then the records behind it."""
    titles = ("accepted record", "partition time", "evicted after")
    rows = [
        [position(each), call.screen.since(each["time"]), _left(each)]
        for each in found["sightings"]
    ]
    if len(rows) > 1:
        return [Title(title), _id_facts(found), Table(titles, rows, "")]
    first = [fact for row in rows for fact in zip(titles, row, strict=True)]
    return [Title(title), Facts([*_id_facts(found).rows, *first])]


def _first(call: CommandContext, found: Mapping[str, Any]) -> list[Cell]:
    """Return the cells of the first record of an id."""
    if not found["sightings"]:
        return [word(None)] * 3
    first = found["sightings"][0]
    return [position(first), call.screen.when(first["time"]), _left(first)]


def _imported(done: Mapping[str, Any]) -> list[tuple[str, Cell]]:
    counts = [("ids", count(done["ids"])), ("new", count(done["new"]))]
    return [(name, cell._replace(right=False)) for name, cell in counts]


def _left(sighting: Mapping[str, Any]) -> Cell:
    """Return how many more ids will evict this one."""
    number = sighting["slots_to_eviction"]
    return Cell(str(number), plural(number, "more id"))


def _id_facts(found: Mapping[str, Any]) -> Facts:
    known = "yes" if found["known"] else "no"
    if not found["known"] and not found["complete"]:
        known = "no, as far as this instance knows"
    return Facts(
        [
            ("address", word(found["address"])),
            ("id", word(found["id"])),
            ("known", word(known, "good" if found["known"] else "dim")),
        ]
    )
