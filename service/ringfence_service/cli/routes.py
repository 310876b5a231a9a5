"""`ringfence route …`, `pause` and `resume`: list, change, pause and resume routes."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from ringfence_service.cli.arguments import STDIN, Document, document_of, path_of
from ringfence_service.cli.cells import phase, text_of, word
from ringfence_service.cli.command import CommandContext, Risk, noun, single, verb
from ringfence_service.cli.page import Facts, Page, Table, Title
from ringfence_service.cli.settings_change import apply_change, current
from ringfence_service.errors import ExitCode, ExitError

app = noun("Routes: which topics are read, where ids are decided, where records go.")
pausing = single()
resuming = single()

Name = Annotated[str, typer.Argument(metavar="ROUTE", help="The name that route ls shows.")]
Keys = Annotated[
    Path, typer.Argument(metavar="[FILE]", help="Keys in JSON or TOML; - is standard input.")
]
_TITLES: Final = ("route", "state", "inputs", "scope", "output", "dead letters", "from")


@verb(app, "ls", "route ls", "route ls --json | jq -r '.routes[].name'")
def ls(call: CommandContext) -> None:
    """List the routes, in the order in which topics are matched."""
    found = call.api.pages("/v1/routes", "routes", 100_000)
    rows = [
        [
            word(each["name"], "strong"),
            phase("paused" if each["paused"] else "running"),
            word(", ".join(each["inputs"])),
            word(each["scope"]),
            word(each["output"]),
            word(each["dead_letter"]),
            word(each["source"], "dim"),
        ]
        for each in found["routes"]
    ]
    call.screen.show(
        found, lambda: [Table(_TITLES, rows, "There are no routes.", ("scope", "from"))]
    )


@verb(app, "show", "route show orders", "route show orders --json > orders.json")
def show(call: CommandContext, route: Name) -> None:
    """Show all keys of a route, where it comes from and whether it is paused."""
    found = call.api.get(path_of("v1", "routes", route))
    call.screen.show(found, lambda: _page(found))


@verb(
    app,
    "put",
    "route put orders orders.json --dry-run",
    "route put orders --reason 'a second input' <<< 'inputs = [\"orders\", \"orders-eu\"]'",
    takes=Risk.RISK,
)
def put(call: CommandContext, route: Name, file: Keys = STDIN) -> None:
    """Create or replace a route; show the difference.

    Takes the keys of [[routes]], from a file or a pipe; keys that are left out have their defaults.
    """
    keys = document_of(file)
    if keys.pop("name", route) != route:
        sentence = f"{file} is of another route than {route}; use the name in the file."
        raise ExitError(ExitCode.USAGE, sentence)
    path = path_of("v1", "routes", route)
    now = current(call, path)

    def send(query: Mapping[str, object]) -> Document:
        if now is None:
            return call.api.create(path, keys, **query)
        return call.api.put(path, keys, now.etag, **query)

    apply_change(call, f"{'Create' if now is None else 'Change'} the route {route}", send)


@verb(app, "delete", "route delete orders --dry-run", takes=Risk.RISK)
def delete(call: CommandContext, route: Name) -> None:
    """Delete a route: all instances stop reading its inputs."""
    path = path_of("v1", "routes", route)
    etag = call.api.read(path).etag
    apply_change(
        call,
        f"Delete the route {route}",
        lambda query: call.api.delete(path, etag, **query),
        always_ask=True,
    )


@verb(app, "pause", "route pause orders --reason 'the consumer is down'", takes=Risk.WRITE)
def pause(call: CommandContext, route: Name) -> None:
    """Stop reading the inputs of a route on all instances, over restarts, until it is resumed."""
    _turn(call, route, "pause")


@verb(app, "resume", "route resume orders", takes=Risk.WRITE)
def resume(call: CommandContext, route: Name) -> None:
    """Resume reading the inputs of a route where it was paused."""
    _turn(call, route, "resume")


verb(pausing, "pause", "pause orders --reason 'the consumer is down'", takes=Risk.WRITE)(pause)
verb(resuming, "resume", "resume orders", takes=Risk.WRITE)(resume)


def _turn(call: CommandContext, route: str, how: str) -> None:
    path = path_of("v1", "routes", f"{route}:{how}")
    what = f"{how.capitalize()} the route {route}"
    apply_change(call, what, lambda query: call.api.post(path, None, **query))


def _page(found: Mapping[str, Any]) -> Page:
    rows = [
        (key, word(text_of(value) if not isinstance(value, list) else ", ".join(value)))
        for key, value in found.items()
        if key not in {"name", "etag", "paused"}
    ]
    state = phase("paused" if found["paused"] else "running")
    return [Title(f"Route {found['name']}"), Facts([("state", state), *rows])]
