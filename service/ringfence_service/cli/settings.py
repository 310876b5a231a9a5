"""`ringfence settings …`: all settings made over REST as one document, history and rollback."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from ringfence_service.cli.arguments import STDIN, Document, document_of, path_of
from ringfence_service.cli.cells import count, word
from ringfence_service.cli.command import CommandContext, Limit, Out, Risk, lines_to, noun, verb
from ringfence_service.cli.page import Facts, Table, Title
from ringfence_service.cli.settings_change import apply_change, difference

app = noun("Settings: all that REST has set, as one document; its history, and rollback.")

File = Annotated[Path, typer.Argument(metavar="[FILE]", help="JSON or TOML; - is standard input.")]
Revision = Annotated[
    int,
    typer.Argument(metavar="REVISION", help="From settings history; 0 is the file alone.", min=0),
]
Subject = Annotated[
    str,
    typer.Argument(metavar="FILE|REVISION", help="A document, or a revision of the history."),
]
_PATH = "/v1/settings"


@verb(app, "export", "settings export --out settings.json")
def export(call: CommandContext, *, out: Out = None) -> None:
    """Write the settings as JSON, to keep them or apply them elsewhere."""
    document = call.api.get(_PATH)
    lines_to(call, out, [json.dumps(document, indent=2, ensure_ascii=False)])


@verb(
    app,
    "apply",
    "settings apply settings.json --dry-run",
    "settings apply settings.json --yes --reason 'release 12'",
    takes=Risk.RISK,
)
def apply(call: CommandContext, file: File = STDIN) -> None:
    """Replace the settings by a document; show the difference and ask."""
    body = document_of(file)
    now = call.api.read(_PATH)
    since = now.document["revision"]
    if body.get("revision", since) != since and not call.screen.as_json:
        call.screen.note(
            f"{file} was exported at revision {body['revision']}, and the current one is {since}: "
            "later changes are undone too."
        )
    apply_change(
        call,
        "Apply the settings",
        lambda query: call.api.put(_PATH, body, now.etag, **query),
        always_ask=True,
    )


@verb(app, "history", "settings history", "settings history -n 5 --json")
def history(call: CommandContext, *, limit: Limit = 20) -> None:
    """List the revisions: when, by whom, why; newest first."""
    found = call.api.pages("/v1/settings/revisions", "revisions", limit)
    rows = [
        [
            count(each["revision"]),
            call.screen.when(each["time"]),
            word(each["actor"]),
            word(each["reason"]),
            word("; ".join(each["changes"])),
        ]
        for each in found["revisions"]
    ]
    titles = ("revision", "time", "by", "reason", "changes")
    call.screen.show(found, lambda: [Table(titles, rows, "Nothing has been set over REST.")])


@verb(app, "show", "settings show 12")
def show(call: CommandContext, revision: Revision) -> None:
    """Show one revision: when, by whom, why, and its settings."""
    found = call.api.get(_revision(revision))
    rows = [
        ("time", call.screen.since(found["time"])),
        ("by", word(found["actor"])),
        ("reason", word(found["reason"])),
        *(("changes", word(each)) for each in found["changes"]),
        ("sets", word(json.dumps(found["settings"], ensure_ascii=False))),
    ]
    call.screen.show(found, lambda: [Title(f"Revision {revision}"), Facts(rows)])


@verb(app, "diff", "settings diff settings.json", "settings diff 11")
def diff(call: CommandContext, subject: Subject) -> None:
    """Show what applying a file, or rolling back, would change. Exit 1 if anything changes."""
    preview = (
        _rollback(call, int(subject), {"dry_run": True})
        if subject.isdigit()
        else _applied(call, subject)
    )
    call.screen.show(preview, lambda: difference(f"Set {subject}", preview))
    if preview["effect"]:
        raise typer.Exit(1)


@verb(
    app,
    "rollback",
    "settings rollback 11 --reason 'INC-17'",
    "settings rollback 0",
    takes=Risk.RISK,
)
def rollback(call: CommandContext, revision: Revision) -> None:
    """Restore the settings of a revision, or with 0 of the file; show the difference and ask."""
    etag = call.api.read(_PATH).etag
    apply_change(
        call,
        f"Roll back to revision {revision}",
        lambda query: _rollback(call, revision, query, etag),
        always_ask=True,
    )


def _applied(call: CommandContext, subject: str) -> Document:
    body = document_of(Path(subject))
    return call.api.put(_PATH, body, call.api.read(_PATH).etag, dry_run=True)


def _rollback(
    call: CommandContext, revision: int, query: Mapping[str, object], etag: str | None = None
) -> Document:
    path = f"{_revision(revision)}:rollback"
    return call.api.post(path, None, etag, **query)


def _revision(revision: int) -> str:
    return path_of("v1", "settings", "revisions", str(revision))
