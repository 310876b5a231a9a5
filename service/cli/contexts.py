"""`ringfence context …`: named API locations, so that a command reaches the right service."""

import json
import os
from pathlib import Path
from typing import Annotated

import typer

from service.cli.cells import word
from service.cli.command import example, noun
from service.cli.page import Table
from service.cli.screen import CommandOutput
from service.cli.target import (
    Context,
    no_context,
    read_contexts,
    require_name,
    require_url,
    write_contexts,
)

app = noun("Contexts: named APIs, kept in a file of yours.")

Name = Annotated[str, typer.Argument(metavar="NAME", help="1 to 64 letters, digits, - and _.")]
Url = Annotated[str, typer.Option("--url", metavar="URL", help="URL of the admin API.")]
TokenFile = Annotated[
    Path | None, typer.Option("--token-file", metavar="FILE", help="A file that holds the token.")
]
CaFile = Annotated[
    Path | None, typer.Option("--ca-file", metavar="FILE", help="Certificates to trust.")
]
Use = Annotated[bool, typer.Option("--use", help="Make it the current context.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.command(epilog=example("context add prod --url https://ringfence.example --use"))
def add(
    name: Name,
    *,
    url: Url,
    token_file: TokenFile = None,
    ca_file: CaFile = None,
    use: Use = False,
) -> None:
    """Add or replace a context."""
    require_name(name)
    require_url(url)
    before = read_contexts(os.environ)
    added = Context(url, _absolute(token_file), _absolute(ca_file))
    current = name if use or before.current is None else before.current
    after = before._replace(current=current, by_name={**before.by_name, name: added})
    CommandOutput().note(f"{name} is saved in {write_contexts(after, os.environ)}.")


@app.command(epilog=example("context use prod"))
def use(name: Name) -> None:
    """Make a context the current one."""
    before = read_contexts(os.environ)
    if name not in before.by_name:
        raise no_context(name, before)
    write_contexts(before._replace(current=name), os.environ)
    CommandOutput().note(f"Commands now use {before.by_name[name].url}.")


@app.command(epilog=example("context rm prod"))
def rm(name: Name) -> None:
    """Remove a context; its token and certificate files stay."""
    before = read_contexts(os.environ)
    if name not in before.by_name:
        raise no_context(name, before)
    left = {each: context for each, context in before.by_name.items() if each != name}
    current = None if before.current == name else before.current
    write_contexts(before._replace(current=current, by_name=left), os.environ)
    CommandOutput().note(f"{name} is removed.")


@app.command(epilog=example("context ls"))
def ls(*, as_json: AsJson = False) -> None:
    """List the contexts; a star marks the current one."""
    contexts = read_contexts(os.environ)
    screen = CommandOutput(as_json=as_json)
    document = {
        "current": contexts.current,
        "contexts": {name: each._asdict() for name, each in contexts.by_name.items()},
    }
    rows = [
        [
            word("*" if name == contexts.current else "", "good"),
            word(name),
            word(each.url),
            word(each.token_file),
            word(each.ca_file),
        ]
        for name, each in sorted(contexts.by_name.items())
    ]
    titles = ("in use", "name", "url", "token file", "ca file")
    screen.show(
        json.loads(json.dumps(document)), lambda: [Table(titles, rows, "There are no contexts.")]
    )


def _absolute(path: Path | None) -> str | None:
    return None if path is None else str(path.expanduser().absolute())
