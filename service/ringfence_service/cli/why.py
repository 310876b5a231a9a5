"""`ringfence why`: why a record was dropped, by its dead letter, its position, or its id."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Annotated, Final

import typer

from ringfence_service.cli import dead_letters, ids, redrives
from ringfence_service.cli.arguments import PAGE_MAX, Document, RecordPosition, path_of, position_of
from ringfence_service.cli.cells import Cell, position, word
from ringfence_service.cli.command import CommandContext, single, verb
from ringfence_service.cli.dead_letters import letter_page
from ringfence_service.cli.page import Page
from ringfence_service.cli.problem import FORBIDDEN, NOT_FOUND, ApiError
from ringfence_service.errors import AdminExit, ExitError
from ringfence_service.formatting import plural
from ringfence_service.schemas.content import is_same_document

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

_CONTENT: Final[Mapping[bool | None, Cell]] = {
    True: word("the same as that of the original"),
    False: word("differs from that of the original: two messages may share the id", "warn"),
}
"""What is shown of the content of a duplicate, by whether it is that of its original."""

_ROUTES_MAX: Final = 100_000
"""More routes than a service has: all are wanted, and `pages` takes a number."""

_SEARCHES: Final = 10
"""How many pages of addresses are searched for an id."""

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
    --json: the dead letter, what the address knows of the id, and the dead letter of a later
    redrive, each a document of the API or null; and whether the contents differ.
    """
    if identifier is not None:
        found = ids.lookup(call, subject, identifier)
        _show(call, None, found)
        if not found["known"]:
            raise typer.Exit(AdminExit.NOT_FOUND)
        return
    at = position_of(subject)
    letter = _letter_at(call, at)
    if letter is not None:
        _explain(call, letter, among)
        return
    _require_decided(call, at)
    letter = _letter_of(call, at, among)
    if letter is None:
        _show_accepted(call, at, among)
    else:
        _explain(call, letter, None)


def _explain(call: CommandContext, letter: Document, among: int | None) -> None:
    """Show a dead letter and what became of its record since; None if it is the newest one."""
    known = ids.of_letter(call, letter)
    if ids.is_accepted(letter, known):
        _show(call, letter, known)
        call.screen.note("A redrive has accepted it since: it is the accepted record now.")
        return
    sent = redrives.of_letter(call, letter) if letter["source"] is not None else ()
    accepting = redrives.accepting(sent)
    if accepting is not None:
        _show(call, letter, known)
        call.screen.note(
            f"A redrive has accepted it since, with mode {accepting['mode']}, so the output has "
            f"it: ringfence redrive show {accepting['id']}"
        )
        return
    newer = None
    if among is not None and any(job["progress"]["refused"] for job in sent):
        source = RecordPosition(*(letter["source"][name] for name in RecordPosition._fields))
        newest = _letter_of(call, source, among, letter["time"])
        if newest is None:
            call.screen.note(
                f"A redrive may have refused it again: none of the {among:,} newest dead letters "
                f"is of its record. To search more: ringfence why {source} --among {10 * among}"
            )
        elif position(newest) != position(letter):
            newer = newest
    _show(call, letter, known, newer)
    if newer is not None:
        again = position(newer).plain
        call.screen.note(f"A redrive refused it again, as {again}: ringfence why {again}")
        return
    for job in sent[:1]:
        done = job["progress"]
        call.screen.note(
            f"A redrive has sent it since, and has accepted {done['accepted']:,} of "
            f"{plural(done['matched'], 'dead letter')}: ringfence redrive show {job['id']}"
        )
    steps = _NEXT_STEPS.get(letter["reason"], ()) if call.screen.terminal else ()
    if steps:
        call.screen.note("")
        for step in steps:
            call.screen.note(step.replace("{here}", position(letter).plain))


def _show(
    call: CommandContext, letter: Document | None, found: Document | None, newer: object = None
) -> None:
    is_same, why_not = (None, "") if letter is None else _compared(call, letter)

    def page() -> Page:
        if letter is None:
            parts: Page = []
        elif why_not:
            parts = letter_page(call, letter, word(f"not compared: {why_not}", "dim"))
        else:
            parts = letter_page(call, letter, _CONTENT.get(is_same))
        return [*parts, *([] if found is None else ids.page(call, found))]

    document = {
        "dead_letter": letter,
        "id": found,
        "newer_dead_letter": newer,
        "content_differs": None if is_same is None else not is_same,
    }
    call.screen.show(document, page)


def _compared(call: CommandContext, letter: Document) -> tuple[bool | None, str]:
    """Return whether a duplicate has the content of its original, or None and why it is unknown.

    The text is empty for a dead letter of another reason.
    """
    if letter["reason"] != "duplicate" or letter["original"] is None:
        return None, ""
    payload = letter.get("payload")
    if payload is None:
        return None, "that needs the role payload:read"
    try:
        at = position_of(letter["original"])
        original = call.api.get(path_of("v1", "records", *map(str, at)))
    except (ApiError, ExitError) as refused:
        return None, refused.sentence
    is_same = is_same_document(payload["value"], original["payload"]["value"])
    return is_same, "" if is_same is not None else "it is too large"


def _letter_at(call: CommandContext, at: RecordPosition) -> Document | None:
    """Return the dead letter at a position; None if its topic is no dead-letter topic.

    Raises ExitError for an offset of a dead-letter topic that has no dead letter.
    """
    try:
        return dead_letters.read(call, at)
    except ApiError as refused:
        if refused.status != NOT_FOUND:
            raise
        if refused.absence in {None, "topic"}:
            return None
        raise ExitError(AdminExit.NOT_FOUND, refused.sentence + _next_letter(call, at)) from refused


def _next_letter(call: CommandContext, at: RecordPosition) -> str:
    """Return a sentence that names the next dead letter of the partition, if there is one."""
    found = call.api.get("/v1/dead-letters", after=str(at), page_size=1)
    names = [position(each).plain for each in found["dead_letters"]]
    return f" The next dead letter of the partition is {names[0]}." if names else ""


def _show_accepted(call: CommandContext, at: RecordPosition, among: int) -> None:
    """Show a decided record without a dead letter: it was accepted if an address remembers it.

    Raises ExitError with the possibilities if none does.
    """
    searched = f"None of the {among:,} newest dead letters is of this record."
    record = _input_record(call, at, f" {searched}")
    accepted = "It was accepted"
    if record is None:
        known = "To have its id looked up too, use a token with the role payload:read."
    elif record["id"] is None:
        known = f"Its id is not known: {record['id_error']}."
    else:
        identifier = record["id"]
        found, others = _remembered(call, at, record["address"], identifier)
        if found is not None:
            original = f"the original of the id {found['id']} at {found['address']}"
            call.screen.note(f"{at} was accepted: it is {original}.")
            _show(call, None, found)
            return
        accepted = "It was accepted and its id is forgotten"
        known = f"Its id {identifier} is not remembered as that of this record{others}."
    sentence = (
        f"{at} is decided. {searched} {known} {accepted}, or it is a duplicate that its address "
        "drops or marks, or its group is not complete. To search more dead letters, use --among."
    )
    raise ExitError(AdminExit.NOT_FOUND, sentence)


def _remembered(
    call: CommandContext, at: RecordPosition, own: str, identifier: str
) -> tuple[Document | None, str]:
    """Return what is known of an id by the address that remembers it of this record, or None.

    `own` is the address that the route now gives to the record; it is searched first. The text is
    empty, or begins with a comma and names the records of which the id is remembered.
    """
    others: list[str] = []
    for address in chain((own,), _holders(call, identifier)):
        found = call.api.get("/v1/ids", address=address, name=identifier)
        records = [position(each).plain for each in found["sightings"]]
        if str(at) in records:
            return found, ""
        others += [f"{each} at {address}" for each in records]
    names = ", ".join(dict.fromkeys(others))
    return None, f", but as that of {names}" if names else ""


def _holders(call: CommandContext, identifier: str) -> Iterator[str]:
    """Yield the addresses that remember an id, of the first `_SEARCHES` pages of addresses."""
    token: str | None = None
    for _ in range(_SEARCHES):
        found = call.api.get("/v1/ids:search", id=identifier, page_size=PAGE_MAX, page_token=token)
        yield from (each["address"] for each in found["addresses"])
        token = found["next_page_token"]
        if not token:
            return


def _input_record(call: CommandContext, at: RecordPosition, searched: str = "") -> Document | None:
    """Return the record at a position of an input; None if the user may not read it.

    Raises ExitError if no record is there; `searched` is added to its sentence.
    """
    try:
        return call.api.get(path_of("v1", "records", *map(str, at)))
    except ApiError as refused:
        if refused.status == NOT_FOUND:
            raise ExitError(AdminExit.NOT_FOUND, refused.sentence + searched) from refused
        if refused.status != FORBIDDEN:
            raise
        return None


def _require_decided(call: CommandContext, at: RecordPosition) -> None:
    """Raise ExitError if, by the known partitions, no decided record can be at a position."""
    known = call.api.get("/v1/partitions")
    if not known["complete"]:
        return
    inputs = {each["partition"]: each for each in known["partitions"] if each["topic"] == at.topic}
    found = inputs.get(at.partition, {})
    end, committed = found.get("end_offset"), found.get("committed_offset")
    if not inputs:
        names = _routes_to(call, at.topic)
        what = f"is an output of route {', '.join(names)}, not an input" if names else ""
        fault = (
            f"{at.topic} {what or 'is not an input now'}; see ringfence dead-letter ls for the "
            "dead letters and ringfence route ls for the inputs"
        )
    elif not found:
        fault = f"the input {at.topic} has no partition {at.partition}"
    elif end is not None and at.offset >= end:
        fault = f"{at.topic}-{at.partition} ends at offset {end}, so no record is there yet"
    elif committed is not None and at.offset >= committed:
        _input_record(call, at)
        fault = f"it is not decided yet: {at.topic}-{at.partition} is at offset {committed}"
    else:
        return
    raise ExitError(AdminExit.NOT_FOUND, f"{at} is not a dead letter, and {fault}.")


def _routes_to(call: CommandContext, topic: str) -> list[str]:
    """Return the names of the routes that have an output of this name for one of their inputs."""
    routes = call.api.pages("/v1/routes", "routes", _ROUTES_MAX)["routes"]
    return [
        each["name"]
        for each in routes
        if topic in {each["output"].replace("{topic}", name) for name in each["inputs"]}
    ]


def _letter_of(
    call: CommandContext, at: RecordPosition, among: int, since: str | None = None
) -> Document | None:
    """Return the newest dead letter of the record at a position, or None.

    With `since`, only of those decided at or after this time.
    """
    token: str | None = None
    searched = 0
    query = {"source": str(at), "newest": True, "page_size": 1, "from": since}
    while searched < among:
        found = call.api.get("/v1/dead-letters", **query, page_token=token)
        for letter in found["dead_letters"]:
            return dead_letters.read(
                call, RecordPosition(letter["topic"], letter["partition"], letter["offset"])
            )
        searched += found["scanned"]
        token = found["next_page_token"]
        if not token:
            break
        call.screen.progress(f"{searched:,} dead letters searched …")
    return None
