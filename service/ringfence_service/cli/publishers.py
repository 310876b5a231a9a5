"""`ringfence publisher …`: the positions of publishers, and their sessions."""

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from ringfence_service.cli.arguments import path_of
from ringfence_service.cli.cells import count, source, word
from ringfence_service.cli.command import CommandContext, Limit, Risk, confirm, noun, verb
from ringfence_service.cli.page import Facts, Page, Table, Title
from ringfence_service.errors import AdminExit

app = noun("Publishers: the position of each on every address, and their sessions.")
session = noun("Sessions: who may publish under a name; earlier sessions are rejected.")
app.add_typer(session, name="session")

Name = Annotated[str, typer.Argument(metavar="NAME", help="The publisher's name.")]
AddressOption = Annotated[
    str, typer.Option("--address", metavar="ADDRESS", help="The address to set it on.")
]
Sequence_ = Annotated[
    int, typer.Option("--sequence", metavar="N", min=1, help="The last number that is decided.")
]
Stream = Annotated[
    int | None,
    typer.Option("--stream", metavar="N", min=0, help="The stream, with strategy ordered."),
]
Topic = Annotated[
    str | None, typer.Option("--topic", metavar="TOPIC", help="The input that it writes.")
]
Partition = Annotated[
    int | None,
    typer.Option("--partition", metavar="N", min=0, help="The partition that it writes."),
]
User = Annotated[
    str,
    typer.Option("--user", metavar="TEXT", help="Owner; only the same user may take over."),
]


@verb(app, "ls", "publisher ls")
def ls(call: CommandContext, *, limit: Limit = 1_000) -> None:
    """List the known publishers by name."""
    found = call.api.pages("/v1/publishers", "publishers", limit)
    rows = [[word(name)] for name in found["publishers"]]
    call.screen.show(found, lambda: [Table(("publisher",), rows, "No publisher is known.")])


@verb(app, "show", "publisher show till-7")
def show(call: CommandContext, name: Name) -> None:
    """Show a publisher's position on each address, and its session."""
    found = call.api.get(path_of("v1", "publishers", name))
    call.screen.show(found, lambda: _page(found))
    if not found["sequences"] and found["epoch"] is None:
        call.screen.note(f"No publication of {name} is remembered.")
        raise typer.Exit(AdminExit.NOT_FOUND)


@verb(
    app,
    "set",
    "publisher set till-7 --address orders --sequence 4711 --reason 'restored from a backup'",
    takes=Risk.RISK,
)
def set_number(
    call: CommandContext,
    name: Name,
    *,
    address: AddressOption,
    sequence: Sequence_,
    stream: Stream = None,
    topic: Topic = None,
    partition: Partition = None,
) -> None:
    """Set a publisher's number: all up to it are duplicates, all above it are new."""
    path = path_of("v1", "publishers", name)
    before, etag = call.api.read(path)
    now = next((each for each in before["sequences"] if each["address"] == address), None)
    current = "has no number" if now is None else f"is at {now['sequence']:,}"
    change = f"{name} {current} on {address}; it would be set to {sequence:,}."
    number = {
        "address": address,
        "sequence": sequence,
        "stream": stream,
        "topic": topic,
        "partition": partition,
    }
    body = {key: value for key, value in number.items() if value is not None}
    if call.dry_run:
        call.api.put(path, body, etag, dry_run=True)
        call.screen.note(change)
        return
    confirm(call, f"{change} Set it?")
    found = call.api.put(path, body, etag, reason=call.reason)
    call.screen.show(found, lambda: _page(found))


@verb(session, "open", "publisher session open till-7 --user shop", takes=Risk.WRITE)
def open_session(call: CommandContext, name: Name, *, user: User = "") -> None:
    """Open a session; print its epoch, and the numbers to continue after."""
    path = path_of("v1", "publishers", name, "session")
    found = call.api.put(path, {"user": user}, reason=call.reason)
    call.screen.show(found, lambda: _page(found))


@verb(
    session,
    "end",
    "publisher session end till-7 --user shop",
    takes=Risk.RISK,
)
def end_session(call: CommandContext, name: Name, *, user: User = "") -> None:
    """End a session; until the next one, any user may publish under the name."""
    if call.dry_run:
        call.screen.note(f"The session of {name} would end.")
        return
    confirm(call, f"End the session of {name}?")
    path = path_of("v1", "publishers", name, "session")
    call.api.delete(path, user=user, reason=call.reason)
    call.screen.note(f"The session of {name} has ended.")


def _page(found: Mapping[str, Any]) -> Page:
    rows = [
        ("epoch", count(found["epoch"])._replace(right=False)),
        ("user", word(found["user"])),
    ]
    sequences = [
        [
            word(each["address"]),
            count(each["sequence"]),
            count(each["stream"]),
            word(each["bookmark"]),
            source(each),
        ]
        for each in found["sequences"]
    ]
    titles = ("address", "sequence", "stream", "bookmark", "partition")
    return [
        Title(f"Publisher {found['publisher']}"),
        Facts(rows),
        Table(titles, sequences, "It has no number on any address."),
    ]
