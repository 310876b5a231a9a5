"""`ringfence instance ls`, `partition ls` and `worker ls`: who runs, owns and does what."""

from collections.abc import Mapping
from typing import Any, Final

import typer

from service.commands.cells import Cell, count, phase, several, word
from service.commands.command import Call, noun, verb
from service.commands.page import Page, Table, Title
from service.commands.status import LAG_RECORDS_WARN, partitions_table, workers_table
from service.errors import ExitCode

instance = noun("Instances: all of the group, and how each does.")
partition = noun("Partitions: owners, offsets, lag and restore.")
worker = noun("Workers: the processes of this instance.")

_TITLES: Final = (
    "instance",
    "phase",
    "partitions",
    "restoring",
    "lag",
    "revision",
    "version",
    "at",
    "started",
)
_SPARE: Final = ("started", "version", "revision")


@verb(instance, "ls", "instance ls", "instance ls --json | jq .complete")
def instances(call: Call) -> None:
    """List the instances of the group, and how each does. Exit 1 when one is not reachable."""
    found = call.api.get("/v1/instances")
    call.screen.show(found, lambda: _instances(call, found))
    lost = [each for each in found["instances"] if not each["reachable"]]
    for each in lost if not call.screen.as_json else ():
        call.screen.note(f"Instance {each['instance']} is not reachable: {each['trouble']}")
    if lost:
        raise typer.Exit(ExitCode.NO)


@verb(partition, "ls", "partition ls", "partition ls --json | jq '.partitions[].lag_records'")
def partitions(call: Call) -> None:
    """List the partitions with their offsets, lag and restore."""
    found = call.api.get("/v1/partitions")
    call.screen.show(found, lambda: [partitions_table(found["partitions"])])
    if not found["complete"] and not call.screen.as_json:
        call.screen.note("There are more partitions than are told of here.")


@verb(worker, "ls", "worker ls")
def workers(call: Call) -> None:
    """List the processes, how each does and what it owns."""
    found = call.api.get("/v1/workers")
    call.screen.show(found, lambda: [workers_table(found["workers"])])


def _instances(call: Call, found: Mapping[str, Any]) -> Page:
    rows = [
        [
            word(f"{each['instance']} (asked)" if each["own"] else each["instance"], "strong"),
            phase(each["phase"] if each["reachable"] else "lost"),
            count(each["partitions_owned"]),
            count(each["partitions_restoring"]),
            _lag(each["lag_records"]),
            count(each["revision"]),
            word(each["version"]),
            word(each["url"]),
            call.screen.when(each["started_at"]),
        ]
        for each in found["instances"]
    ]
    whole = "" if found["complete"] else "; not every partition has an owner that answers"
    return [
        Title(several(len(rows), "instance") + whole),
        Table(_TITLES, rows, "None is known.", _SPARE),
    ]


def _lag(records: int | None) -> Cell:
    return count(records, "warn" if (records or 0) > LAG_RECORDS_WARN else "")
