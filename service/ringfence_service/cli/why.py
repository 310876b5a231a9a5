"""`ringfence why`: why a record was dropped, by its dead letter, its position, or its id."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Final

import typer

from ringfence_service.cli import ids
from ringfence_service.cli.arguments import Document, position_of
from ringfence_service.cli.cells import Cell, position, word
from ringfence_service.cli.command import CommandContext, single, verb
from ringfence_service.cli.dead_letters import letter_page
from ringfence_service.cli.page import Page
from ringfence_service.errors import AdminExit, ExitError

app = single()

_NEXT_STEPS: Final[Mapping[str, Sequence[str]]] = {
    "duplicate": ("To accept it: ringfence redrive start --mode forget {here}",),
    "missing-id": (
        "The producer has to set what is missing and send this message again.",
        "Or the route has to pass records without an id: set its missing_id.",
        "Then, to decide this one again: ringfence redrive start --mode through {here}",
        "To write it to the output unchecked: ringfence redrive start --mode bypass {here}",
    ),
}
"""What a user can do about a dead letter, by reason; `{here}` stands for its position."""

_CONTENT: Final[Mapping[bool, Cell]] = {
    False: word("the same as that of the original"),
    True: word("differs from that of the original: two messages may share the id", "warn"),
}
"""What is shown of the content of a duplicate, by whether it differs from that of its original."""

Subject = Annotated[
    str,
    typer.Argument(metavar="POSITION|ADDRESS", help="topic-partition@offset, or an address."),
]
Id = Annotated[
    str | None, typer.Argument(metavar="[ID]", help="With an address: text, hex:… or base64:….")
]
Among = Annotated[
    int,
    typer.Option("--among", metavar="N", min=1, help="How many of the newest to search."),
]


@verb(app, "why", "why orders.dlq-0@17", "why orders-3@1042", "why orders order-17")
def why(
    call: CommandContext, subject: Subject, identifier: Id = None, *, among: Among = 100_000
) -> None:
    """Show why a record was dropped, and which record was accepted instead.

    Pass the position of its dead letter, its own position in the input, or its address and id. For
    its own position, the newest dead letters are searched, then the ids that are remembered. Exit 3
    when there is no answer. A duplicate is compared with its original if you may read payload. With
    --json: the document of /v1/records:explain.
    """
    if identifier is None:
        found = _explained(call, among, at=str(position_of(subject)))
    else:
        found = _explained(call, among, address=subject, id=identifier)
    is_known = found["decision"] == "accepted" or found["dead_letter"] is not None
    if not is_known and identifier is None and not call.screen.as_json:
        raise ExitError(AdminExit.NOT_FOUND, f"{found['sentence']}{_to_search_more(found, among)}")
    call.screen.show(found, lambda: _page(call, found))
    if found["dead_letter"] is not None:
        _note_what_followed(call, found, among)
    else:
        call.screen.note_title(found["sentence"])
    if not is_known:
        raise typer.Exit(AdminExit.NOT_FOUND)


def _explained(call: CommandContext, among: int, **subject: str) -> Document:
    """Return the explanation, continuing its search until so many dead letters were searched."""
    found: Document = call.api.get("/v1/records:explain", **subject)
    while found["next_page_token"] and found["searched"] < among:
        call.screen.progress(f"{found['searched']:,} dead letters searched …")
        token = found["next_page_token"]
        found = call.api.get("/v1/records:explain", **subject, page_token=token)
    return found


def _page(call: CommandContext, found: Document) -> Page:
    letter, known, error = found["dead_letter"], found["id"], found["original_error"]
    title = found["sentence"] if letter is None else (known and known["why"]) or "Its id"
    parts: Page = []
    if letter is not None:
        differs = found["content_differs"]
        content = None if differs is None else _CONTENT[differs]
        if error is not None:
            content = word(f"not compared. {error}", "dim")
        parts = letter_page(call, letter, content)
    return [*parts, *([] if known is None else ids.page(call, title, known))]


def _note_what_followed(call: CommandContext, found: Document, among: int) -> None:
    """Write what has happened to the record of a dead letter since, and what can be done."""
    note, letter, newer = call.screen.note, found["dead_letter"], found["newer_dead_letter"]
    if found["id_error"] is not None:
        note(f"Its id cannot be looked up now: {found['id_error']}")
    if found["since"] is not None:
        note(found["since"])
    if newer is not None:
        note(f"To see why: ringfence why {position(newer).plain}")
        return
    for job in found["redrives"][:1]:
        note(f"To see the redrive: ringfence redrive show {job['id']}")
    more = _to_search_more(found, among)
    if more:
        note(more.strip())
    steps = _NEXT_STEPS.get(letter["reason"], ())
    if steps and call.screen.terminal and not found["accepted_since"]:
        note("")
        for step in steps:
            note(step.replace("{here}", position(letter).plain))


def _to_search_more(found: Document, among: int) -> str:
    """Return the command that searches more dead letters, if there are more."""
    if not found["next_page_token"]:
        return ""
    letter = found["dead_letter"]
    subject = found["position"] if letter is None else position(letter["source"]).plain
    return f" To search more: ringfence why {subject} --among {10 * among}"
