"""`ringfence audit`: who changed what, when and why."""

import json
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from ringfence_service.cli import redrives
from ringfence_service.cli.cells import Cell, moment, word
from ringfence_service.cli.command import CommandContext, Limit, single, verb
from ringfence_service.cli.page import Table

app = single()

Actor = Annotated[
    str | None, typer.Option("--actor", metavar="NAME", help="Only changes by this actor.")
]
Resource = Annotated[
    str | None,
    typer.Option("--resource", metavar="PATH", help="Only at or below this path: /v1/routes."),
]
From = Annotated[
    str | None,
    typer.Option("--from", metavar="TIME", help="At or after: a time, or 2h for 2h ago."),
]
To = Annotated[str | None, typer.Option("--to", metavar="TIME", help="Before: a time.")]
Changes = Annotated[
    bool, typer.Option("--changes", help="Leave out dry runs and rejected requests.")
]


@verb(app, "audit", "audit --from 1d", "audit --resource /v1/routes/orders --json")
def audit(
    call: CommandContext,
    *,
    actor: Actor = None,
    resource: Resource = None,
    from_: From = None,
    to: To = None,
    changes: Changes = False,
    limit: Limit = 50,
) -> None:
    """List who changed what, when and why; newest first. Needs the role admin."""
    found = call.api.pages(
        "/v1/audit",
        "records",
        limit,
        actor=actor,
        resource=resource,
        since=moment(from_),
        until=moment(to),
        changes=changes or None,
    )
    rows = [
        [
            call.screen.when(each["time"]),
            word(each["actor"], "strong"),
            word(_request(each)),
            _status(each["status"]),
            word(each["reason"]),
            word(_change(each), "dim"),
        ]
        for each in found["records"]
    ]
    titles = ("time", "who", "what", "reply", "why", "change")
    call.screen.show(found, lambda: [Table(titles, rows, "Nothing was changed.", ("reply",))])


def _request(record: Mapping[str, Any]) -> str:
    """Return the request as it was sent; its query marks a dry run."""
    query = f"?{record['query']}" if record["query"] else ""
    return f"{record['method']} {record['path']}{query}"


def _status(status: int | None) -> Cell:
    if status is None:
        return Cell("", "unknown", "warn")
    return word(status, "good" if status < 300 else "bad")


def _change(record: Mapping[str, Any]) -> str:
    """Return what a request changed; key by key for documents."""
    before, after = record["before"], record["after"]
    if isinstance(before, dict) and isinstance(after, dict):
        keys = sorted(key for key in before.keys() | after.keys() if key != "etag")
        different = [key for key in keys if before.get(key) != after.get(key)]
        pairs = ((key, _short(before.get(key)), _short(after.get(key))) for key in different)
        return ", ".join(f"{key} {was} → {now}" for key, was, now in pairs)
    if before is None and after is None:
        return ""
    if before is None and isinstance(after, dict) and record["path"] == "/v1/redrives":
        first = after.get("first_letters", ())
        more = ", …" if after["letters"] > len(first) else ""
        named = f": {', '.join(first)}{more}" if first else ""
        return f"mode {after['mode']}, {redrives.filter_text(after)}{named}"
    if before is None:
        return _short(after)
    return f"{_short(before)} → {_short(after)}"


def _short(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:57]}…"
