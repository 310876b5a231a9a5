"""`ringfence publisher …`: the positions of publishers, and their sessions."""

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from service.cli.arguments import path_of
from service.cli.cells import count, source, word
from service.cli.command import CommandContext, Limit, Risk, noun, sure, verb
from service.cli.page import Facts, Page, Table, Title
from service.errors import AdminExit

app = noun("Publishers: how far each has come on every address, and their sessions.")
session = noun("Sessions: who may publish under a name; what is of an earlier one is refused.")
app.add_typer(session, name="session")

Name = Annotated[str, typer.Argument(metavar="NAME", help="Of the publisher.")]
AddressOption = Annotated[str, typer.Option("--address", metavar="ADDRESS", help="On which.")]
Sequence_ = Annotated[int, typer.Option("--sequence", metavar="N", min=1, help="The last one.")]
Stream = Annotated[
    int | None, typer.Option("--stream", metavar="N", min=0, help="With strategy ordered.")
]
Topic = Annotated[str | None, typer.Option("--topic", metavar="TOPIC", help="Which it writes.")]
Partition = Annotated[
    int | None, typer.Option("--partition", metavar="N", min=0, help="Which it writes.")
]
User = Annotated[str, typer.Option("--user", metavar="TEXT", help="The same user may take over.")]


@verb(app, "ls", "publisher ls")
def ls(call: CommandContext, *, limit: Limit = 1_000) -> None:
    """List the publishers that are known, by name."""
    found = call.api.pages("/v1/publishers", "publishers", limit)
    rows = [[word(name)] for name in found["publishers"]]
    call.screen.show(found, lambda: [Table(("publisher",), rows, "No publisher is known.")])


@verb(app, "show", "publisher show till-7")
def show(call: CommandContext, name: Name) -> None:
    """Show how far a publisher has come on each address, and its session."""
    found = call.api.get(path_of("v1", "publishers", name))
    call.screen.show(found, lambda: _page(found))
    if not found["sequences"] and found["epoch"] is None:
        call.screen.note(f"{name} has published nothing that is remembered here.")
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
    """Have a publisher stand at a number: all up to it are duplicates, all above it are new."""
    path = path_of("v1", "publishers", name)
    before, etag = call.api.read(path)
    now = next((each for each in before["sequences"] if each["address"] == address), None)
    stands = "nowhere yet" if now is None else f"at {now['sequence']:,}"
    told = f"{name} stands {stands} on {address}; it would stand at {sequence:,}."
    number = {
        "address": address,
        "sequence": sequence,
        "stream": stream,
        "topic": topic,
        "partition": partition,
    }
    given = {key: value for key, value in number.items() if value is not None}
    if call.dry_run:
        call.api.put(path, given, etag, dry_run=True)
        call.screen.note(told)
        return
    sure(call, f"{told} Set it?")
    found = call.api.put(path, given, etag, reason=call.reason)
    call.screen.show(found, lambda: _page(found))


@verb(session, "open", "publisher session open till-7 --user shop", takes=Risk.WRITE)
def open_session(call: CommandContext, name: Name, *, user: User = "") -> None:
    """Open a session: prints its epoch, and the numbers to go on after."""
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
    """End a session: until the next one, anybody may publish under the name."""
    if call.dry_run:
        call.screen.note(f"The session of {name} would end.")
        return
    sure(call, f"End the session of {name}?")
    path = path_of("v1", "publishers", name, "session")
    call.api.delete(path, user=user, reason=call.reason)
    call.screen.note(f"The session of {name} has ended.")


def _page(found: Mapping[str, Any]) -> Page:
    rows = [
        ("epoch", count(found["epoch"])._replace(right=False)),
        ("user", word(found["user"])),
    ]
    places = [
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
        Table(titles, places, "It has come nowhere yet."),
    ]
