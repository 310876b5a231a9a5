"""`ringfence status`, `instance`, `partition`, `worker`: the state of the service."""

import time
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, NamedTuple

import typer

from ringfence_service.cli.arguments import path_of
from ringfence_service.cli.cells import Cell, Tone, age, count, phase, share, size, span, word
from ringfence_service.cli.command import CommandContext, Risk, confirm, noun, single, verb
from ringfence_service.cli.page import Facts, Page, Part, Table, Title
from ringfence_service.cli.problem import NOT_FOUND, ApiError
from ringfence_service.errors import ExitCode, missing_inputs
from ringfence_service.formatting import duration, plural

app = single()

Watch = Annotated[
    bool, typer.Option("--watch", "-w", help="Keep showing it, with rates, until Ctrl-C.")
]

Every = Annotated[
    float, typer.Option("--every", metavar="SECONDS", help="How often, with --watch.", min=0.2)
]

Topic = Annotated[str, typer.Argument(metavar="TOPIC", help="The topic of the partition.")]

Number = Annotated[int, typer.Argument(metavar="PARTITION", help="Its number.", min=0)]

Offset = Annotated[
    int,
    typer.Option("--offset", metavar="N", help="First offset to skip, as in its status.", min=0),
]

LAG_RECORDS_WARN: Final = 10_000

_PARTITION_TITLES: Final = (
    "topic",
    "partition",
    "phase",
    "committed",
    "end",
    "lag",
    "restored",
    "addresses",
    "groups",
    "instance",
    "warm copies",
)

_WORKER_TITLES: Final = (
    "worker",
    "hop",
    "pid",
    "phase",
    "since",
    "owns",
    "restored",
    "memory",
    "beat",
    "restarts",
)

_SHARED: Final = ("consumed", "accepted", "unchecked", "duplicates", "refused")
"""All but the unchecked ones, which are accepted too, add up to the first; some may wait for their
group.
"""


class StatusReport(NamedTuple):
    """The API's responses at one moment."""

    at_s: float
    status: Mapping[str, Any]
    partitions: Mapping[str, Any]
    workers: Mapping[str, Any]

    @property
    def document(self) -> Mapping[str, object]:
        """The responses as one document."""
        return {
            "status": self.status,
            "partitions": self.partitions["partitions"],
            "workers": self.workers["workers"],
        }


@verb(app, "status", "status", "status --watch", "status --json | jq .status.phase")
def status(call: CommandContext, *, watch: Watch = False, every: Every = 2.0) -> None:
    """Show what the service does now: counts, partitions with lag, processes.

    With --watch the page is refreshed and shows rates, as top does; in a pipe each sample is
    printed. Exit 1 when the service is not running.
    """
    if watch:
        last: list[StatusReport] = []

        def refresh() -> tuple[object, Page]:
            now = _sample(call)
            before = last[-1] if last else None
            last[:] = [now]
            return now.document, page(call, now, before)

        call.screen.follow(refresh, every)
    now = _sample(call)
    call.screen.show(now.document, lambda: page(call, now, None))
    if now.status["phase"] not in {"running", "waiting"}:
        raise typer.Exit(1)


def _sample(call: CommandContext) -> StatusReport:
    api = call.api
    return StatusReport(
        time.monotonic(),
        api.get("/v1/status"),
        api.get("/v1/partitions"),
        _workers_of(call),
    )


def _workers_of(call: CommandContext) -> Mapping[str, Any]:
    """Return the worker processes; a bridge has none, and no such resource."""
    try:
        return call.api.get("/v1/workers")
    except ApiError as refused:
        if refused.status != NOT_FOUND:
            raise
        return {"workers": []}


def page(call: CommandContext, now: StatusReport, before: StatusReport | None) -> Page:
    """Return the page of a report; with rates if there is an earlier one."""
    return [*_head(call, now), _flow(now, before), *_partitions(now), *_workers(now)]


def _head(call: CommandContext, now: StatusReport) -> Sequence[Part]:
    status = now.status
    rows = [
        ("phase", phase(status["phase"])),
        ("group", word(f"{status['group_id']}, instance {status['instance']}")),
        ("at", word(call.api.url)),
        ("started", call.screen.since(status["started_at"])),
        ("last commit", call.screen.since(status["last_commit_at"])),
    ]
    if status.get("config_fault"):
        rows.insert(1, ("settings", word(status["config_fault"], "bad")))
    if status["waiting_for"]:
        rows.insert(1, ("waits for", word(status["waiting_for"], "warn")))
    rows += [("waits in part for", word(each, "warn")) for each in _blocked(now)]
    rows += [
        ("unchecked", word(each["warning"], "warn" if each["is_checked"] else "bad"))
        for each in status.get("routes", ())
        if each["warning"]
    ]
    rows += [
        ("different", word(each["duplicates_warning"], "warn"))
        for each in status.get("routes", ())
        if each["duplicates_warning"]
    ]
    workers = now.workers["workers"]
    if paths := sorted({each["fast_path"] for each in workers if each.get("fast_path")}):
        faults = sorted({each["fast_path_fault"] for each in workers if each["fast_path_fault"]})
        text = "; ".join([", ".join(paths), *faults])
        rows.append(("fast path", word(text, "warn" if faults else "")))
    if codecs := sorted({each["compression"] for each in workers if each.get("compression")}):
        rows.append(("compresses", word(f"{', '.join(codecs)}: some records fit only so")))
    return [Facts(rows)]


def _blocked(now: StatusReport) -> list[str]:
    """Return what some partitions or inputs wait for while the others go on."""
    waiting: dict[str, int] = {}
    for each in now.partitions["partitions"]:
        if each.get("waiting_for"):
            waiting[each["waiting_for"]] = waiting.get(each["waiting_for"], 0) + 1
    found = [f"{text} ({plural(number, 'partition')})" for text, number in waiting.items()]
    missing = now.status.get("inputs_missing", [])
    return [*found, *(missing_inputs(name) for name in missing)]


def _flow(now: StatusReport, before: StatusReport | None) -> Table:
    """Return the counts since the start, and per second since the report before."""
    titles = ["since the start", "total", *([] if before is None else ["per second"]), "share"]
    earlier = None if before is None else _counts(before.status)
    rows = []
    for title, number in _counts(now.status).items():
        row = [word(title), count(number, _tone(title, number, now.status))]
        if before is not None and earlier is not None:
            passed_s = max(0.001, now.at_s - before.at_s)
            row.append(count(round((number - earlier[title]) / passed_s)))
        rows.append([*row, share(number, _whole(title, now.status))])
    return Table(titles, rows, "")


def _whole(title: str, status: Mapping[str, Any]) -> int | None:
    """Return of what a count is a share, or None."""
    if title in _SHARED:
        return int(status["records_consumed"])
    return int(status["duplicates_compared"]["records"]) if title == "different" else None


def _tone(title: str, number: int, status: Mapping[str, Any]) -> Tone:
    if title == "unchecked":
        number -= status["unchecked"]["off"]  # as the settings say
    return "warn" if title in {"refused", "unchecked", "different"} and number else ""


def _counts(status: Mapping[str, Any]) -> Mapping[str, int]:
    """Return the counts since the start, by title."""
    return {
        "consumed": status["records_consumed"],
        "accepted": status["records_accepted"],
        "unchecked": status["unchecked"]["records"],
        "duplicates": status["duplicates"],
        "compared": status["duplicates_compared"]["records"],
        "different": status["duplicates_compared"]["different"],
        "refused": status["refused"],
        "dead letters": status["dead_letters"],
        "redriven": status["redriven"],
        "redriven accepted": status["redriven_accepted"],
        # A redriven record that completes its group has the whole group accepted.
        "redriven not accepted": max(0, status["redriven"] - status["redriven_accepted"]),
    }


def _partitions(now: StatusReport) -> Sequence[Part]:
    found = now.partitions["partitions"]
    lag = sum(each["lag_records"] or 0 for each in found)
    more = "" if now.partitions["complete"] else ", and more that are not reported"
    internal = f"{now.status['group_id']}.by-address"
    shown = [each for each in found if not _is_idle(each, internal)]
    idle = len(found) - len(shown)
    without = f", {idle:,} of {internal} without records" if idle else ""
    head = f"{plural(len(found), 'partition')}{without}{more}; {plural(lag, 'record')} behind"
    return [Title(head), *([partitions_table(shown)] if shown or not found else [])]


def _is_idle(partition: Mapping[str, Any], internal: str) -> bool:
    """Whether a partition of the internal topic runs and has no record that is known.

    `partition ls` lists it all the same.
    """
    is_running = partition["topic"] == internal and partition["phase"] == "running"
    return is_running and not partition["end_offset"]


def partitions_table(found: Sequence[Mapping[str, Any]]) -> Table:
    """Return a table of partitions."""
    rows = [
        [
            word(each["topic"]),
            count(each["partition"]),
            phase(_phase(each)),
            count(each["committed_offset"]),
            count(each["end_offset"]),
            _lag(each["lag_records"]),
            _restored(each, is_done=each["phase"] == "running"),
            count(each["addresses"]),
            count(each["groups_open"]),
            word(each.get("instance")),
            _copies(each),
        ]
        for each in found
    ]
    empty = "No partition is owned yet."
    titles: Sequence[str] = _PARTITION_TITLES
    if not any(each.get("standbys") for each in found):
        titles, rows = titles[:-1], [row[:-1] for row in rows]
    return Table(titles, rows, empty, ("groups", "addresses", "committed"))


def _copies(partition: Mapping[str, Any]) -> Cell:
    """Return how many standby copies of a partition are warm."""
    copies = partition.get("standbys", [])
    warm = sum(each["warm"] for each in copies)
    return word(f"{warm} of {len(copies)}", "" if warm else "warn")


def _phase(partition: Mapping[str, Any]) -> str:
    if partition.get("paused"):
        return "paused"
    return "waiting" if partition.get("waiting_for") else str(partition["phase"])


def _lag(records: int | None) -> Cell:
    return count(records, "warn" if records and records > LAG_RECORDS_WARN else "")


def _restored(document: Mapping[str, Any], *, is_done: bool) -> Cell:
    """Return the restored share of a partition or a process."""
    remaining = document["restore_remaining_records"]
    if is_done or remaining is None:
        return share(None, None)
    return share(document["restored_records"], document["restored_records"] + remaining)


def _workers(now: StatusReport) -> Sequence[Part]:
    found = now.workers["workers"]
    beat = duration(now.status["heartbeat_age_ms"])
    if not found:
        return [Title(f"last heartbeat {beat} ago")]
    head = f"{plural(len(found), 'process', 'processes')}; oldest heartbeat {beat} ago"
    return [Title(head), workers_table(found)]


def workers_table(found: Sequence[Mapping[str, Any]]) -> Table:
    """Return a table of processes."""
    rows = [
        [
            count(each["worker"]),
            word(each["hop"]),
            word(each["pid"]),
            phase(each["phase"]),
            age(each["since"]),
            count(each["partitions_owned"]),
            _restored(each, is_done=not each["partitions_restoring"]),
            size(each["memory_bytes"]),
            span(each["heartbeat_age_ms"]),
            count(each["restarts"], "warn" if each["restarts"] else ""),
        ]
        for each in found
    ]
    return Table(_WORKER_TITLES, rows, "No processes are reported.")


instance = noun("Instances of the group, and the state of each.")

partition = noun("Partitions: owners, offsets, lag, restore, and batches that cannot be read.")

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
def instances(call: CommandContext) -> None:
    """List the instances of the group with their state. Exit 1 when one is not reachable."""
    found = call.api.get("/v1/instances")
    call.screen.show(found, lambda: _instances(call, found))
    lost = [each for each in found["instances"] if not each["reachable"]]
    for each in lost if not call.screen.as_json else ():
        call.screen.note(f"Instance {each['instance']} is not reachable: {each['trouble']}")
    if lost:
        raise typer.Exit(ExitCode.NO)


@verb(partition, "ls", "partition ls", "partition ls --json | jq '.partitions[].lag_records'")
def partitions(call: CommandContext) -> None:
    """List the partitions with their offsets, lag and restore."""
    found = call.api.get("/v1/partitions")
    call.screen.show(found, lambda: [partitions_table(found["partitions"])])
    if not found["complete"] and not call.screen.as_json:
        call.screen.note("There are more partitions; not every instance has answered.")


@verb(
    partition,
    "skip",
    "partition skip orders 3 --offset 4711 --reason 'the producer sends it again in parts'",
    takes=Risk.RISK,
)
def skip(call: CommandContext, topic: Topic, number: Number, *, offset: Offset) -> None:
    """Go on behind a batch that cannot be unpacked, with a dead letter for its offsets.

    Its records are neither read nor decided. Only for a partition that such a batch blocks.
    """
    path, body = path_of("v1", "partitions", topic, f"{number}:skip"), {"offset": offset}
    found = call.api.post(path, body, dry_run=True)
    first, last = found["first_offset"], found["last_offset"]
    change = f"{topic}-{number} would go on at {last + 1:,}, without offsets {first:,} to {last:,}"
    if call.dry_run:
        call.screen.show(found, lambda: _skipped(found, change))
        return
    confirm(call, f"{change}. Their records are not decided. Skip them?")
    found = call.api.post(path, body, reason=call.reason)
    call.screen.show(found, lambda: _skipped(found, f"{topic}-{number} goes on at {last + 1:,}"))


def _skipped(found: Mapping[str, Any], title: str) -> Page:
    rows = [
        ("first offset without", count(found["first_offset"])),
        ("last offset without", count(found["last_offset"])),
        ("size in the log", size(found["log_bytes"])),
    ]
    return [Title(title), Facts([(name, cell._replace(right=False)) for name, cell in rows])]


@verb(worker, "ls", "worker ls")
def workers(call: CommandContext) -> None:
    """List the processes of an instance: state, partitions, memory, restarts."""
    found = call.api.get("/v1/workers")
    call.screen.show(found, lambda: [workers_table(found["workers"])])


def _instances(call: CommandContext, found: Mapping[str, Any]) -> Page:
    rows = [
        [
            word(f"{each['instance']} (this one)" if each["own"] else each["instance"], "strong"),
            phase(each["phase"] if each["reachable"] else "lost"),
            count(each["partitions_owned"]),
            count(each["partitions_restoring"]),
            _lag_cell(each["lag_records"]),
            count(each["revision"]),
            word(each["version"]),
            word(each["url"]),
            call.screen.when(each["started_at"]),
        ]
        for each in found["instances"]
    ]
    partial = "" if found["complete"] else "; not every partition has an owner that answers"
    return [
        Title(plural(len(rows), "instance") + partial),
        Table(_TITLES, rows, "None is known.", _SPARE),
    ]


def _lag_cell(records: int | None) -> Cell:
    return count(records, "warn" if (records or 0) > LAG_RECORDS_WARN else "")
