"""`ringfence dead-letter …`: records that were not accepted, and why."""

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Final, NamedTuple

import typer

from ringfence_service.cli.arguments import PAGE_MAX, Document, RecordPosition, path_of, position_of
from ringfence_service.cli.cells import NOTHING, Cell, count, moment, position, share, size, word
from ringfence_service.cli.command import CommandContext, Limit, Out, lines_to, noun, verb
from ringfence_service.cli.page import Facts, Page, Part, Table, Title, legible_cell
from ringfence_service.cli.problem import ApiError
from ringfence_service.errors import AdminExit, ExitCode, ExitError
from ringfence_service.formatting import plural

Address = Annotated[
    str | None, typer.Option("--address", metavar="ADDRESS", help="Only of this address.")
]

Reasons = Annotated[
    list[str] | None,
    typer.Option("--because", metavar="REASON", help="Only with this reason; may be repeated."),
]

Topics = Annotated[
    list[str] | None,
    typer.Option(
        "--topic", metavar="TOPIC", help="Only on this dead-letter topic; may be repeated."
    ),
]

From = Annotated[
    str | None,
    typer.Option("--from", metavar="TIME", help="Decided at or after: a time, or 2h for 2h ago."),
]

To = Annotated[str | None, typer.Option("--to", metavar="TIME", help="Decided before: a time.")]

Key = Annotated[
    str | None,
    typer.Option("--key", metavar="KEY", help="Only with this key; text, hex:… or base64:…."),
]

Headers = Annotated[
    list[str] | None,
    typer.Option("--header", metavar="NAME=VALUE", help="Only with this header; may be repeated."),
]


class FilterOptions(NamedTuple):
    """A filter of dead letters; an option that is not given matches all."""

    address: str | None
    reasons: Sequence[str]
    topics: Sequence[str]
    from_: str | None
    to: str | None
    key: str | None
    headers: Sequence[tuple[str, str]]

    @classmethod
    def of(
        cls,
        address: Address = None,
        because: Reasons = None,
        topic: Topics = None,
        from_: From = None,
        to: To = None,
        key: Key = None,
        header: Headers = None,
    ) -> "FilterOptions":
        """Build the filter from its options; a command with a filter has all of them.

        Raises ExitError for an invalid time or header.
        """
        return cls(
            address,
            because or (),
            topic or (),
            moment(from_),
            moment(to),
            key,
            tuple(map(_header, header or ())),
        )

    def query(self) -> dict[str, Any]:
        """Return the filter as query parameters."""
        named = {f"header.{name}": value for name, value in self.headers}
        return {
            "address": self.address,
            "reason": list(self.reasons),
            "topic": list(self.topics),
            "from": self.from_,
            "to": self.to,
            "key": self.key,
            **named,
        }

    def body(self) -> dict[str, Any]:
        """Return the filter as the `filter` of a redrive request."""
        fields = {
            "address": self.address,
            "reason": list(self.reasons),
            "from": self.from_,
            "to": self.to,
            "key": self.key,
            "header": dict(self.headers),
        }
        return {name: value for name, value in fields.items() if value}


def _header(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        sentence = f"{text!r} is not a header; write --header NAME=VALUE."
        raise ExitError(ExitCode.USAGE, sentence)
    return name, value


_TITLES = ("decided", "dead letter", "reason", "address", "id", "record", "duplicate of")


def letter_page(
    call: CommandContext, letter: Mapping[str, Any], content: Cell | None = None
) -> Page:
    """Return the page of one dead letter; `content` is about that of its original."""
    parts: list[Part] = [Title(f"{position(letter).plain}: {letter['reason'] or 'foreign'}")]
    parts.append(Facts(_facts(call, letter, content)))
    payload = letter.get("payload")
    if payload is not None:
        rows = [("key", _content(payload["key"])), ("value", _content(payload["value"]))]
        rows += [(each["name"], _content(each["value"])) for each in payload["headers"]]
        parts += [Title("The record"), Facts(rows)]
    return parts


def _facts(
    call: CommandContext, letter: Mapping[str, Any], content: Cell | None
) -> list[tuple[str, Cell]]:
    source, original, redrives = letter["source"], letter["original"], letter["redrives"]
    return [
        ("why", word(letter["cause"])),
        *([] if original is None else [("duplicate of", word(original, "strong"))]),
        *([] if content is None else [("content", content)]),
        ("decided", call.screen.since(letter["time"])),
        ("address", word(letter["address"])),
        ("id", _identifier(letter["id"])),
        ("strategy", word(letter["strategy"])),
        ("record", position(source)),
        ("sent", call.screen.since(source["time"]) if source else word(None)),
        *([("earlier redrives", count(redrives)._replace(right=False))] if redrives else []),
        ("size", size(letter["size_bytes"])._replace(right=False)),
    ]


def _identifier(text: str | None) -> Cell:
    return Cell("", "the empty id", "dim") if text == "" else word(text)


def _content(content: Mapping[str, Any] | None) -> Cell:
    if content is None:
        return Cell("", "null", "dim")
    shown = content["text"] if content["text"] is not None else f"base64:{content['base64']}"
    more = f" … ({content['size_bytes']:,} bytes in all)" if content["truncated"] else ""
    return word(shown + more) if shown else Cell("", "empty", "dim")


def table(call: CommandContext, letters: Sequence[Mapping[str, Any]], empty: str) -> Table:
    """Return a table of dead letters."""
    rows = [
        [
            call.screen.when(each["time"]),
            position(each),
            word(each["reason"] or "foreign"),
            word(each["address"]),
            _identifier(each["id"]),
            position(each["source"]),
            word(each["original"]),
        ]
        for each in letters
    ]
    return Table(_TITLES, rows, empty, ("address", "record"))


def summary_page(call: CommandContext, counted: Mapping[str, Any]) -> Page:
    """Return the page of a summary."""
    total = counted["dead_letters"]
    number = counted["foreign"]
    foreign = f", and {plural(number, 'foreign record')}" if number else ""
    parts: list[Part] = [Title(plural(total, "dead letter") + foreign)]
    parts += breakdown(counted, total)
    hours = counted["by_hour"][-24:]
    most = max((each["dead_letters"] for each in hours), default=0)
    rows = [
        [call.screen.when(each["hour"]), count(each["dead_letters"]), _of_most(each, most)]
        for each in hours
    ]
    return [*parts, Table(("hour", "dead letters", "of the most"), rows, "")]


def breakdown(counted: Mapping[str, Any], total: int) -> Sequence[Part]:
    """Return tables of counts and shares by reason, address and topic, the largest first."""
    parts: list[Part] = []
    for title in ("reason", "address", "topic"):
        counts = counted[f"by_{title}"]
        ordered = sorted(counts.items(), key=lambda each: (-each[1], each[0]))
        rows = [[word(name), count(number), share(number, total)] for name, number in ordered]
        parts += [Table((title, "dead letters", "share"), rows, "")] if rows else []
    return parts


def _of_most(hour: Mapping[str, Any], most: int) -> Cell:
    return share(hour["dead_letters"], most)


LATE: Final = timedelta(seconds=10)
"""How far dead letters may arrive out of time order: length of a transaction, clock skew."""


class DeadLetterTail:
    """Tracks which dead letters `tail` has printed, by partition and offset."""

    def __init__(self, start: datetime) -> None:
        self._start = self._newest = start
        self._last: dict[tuple[str, int], int] = {}

    @property
    def since(self) -> datetime:
        """The time from which to request dead letters."""
        return max(self._start, self._newest - LATE)

    def new(self, letters: Sequence[dict[str, Any]], now: datetime) -> list[dict[str, Any]]:
        """Return the dead letters of a page that are not printed yet, and track them as printed.

        On one page a partition may be out of order.
        """
        found = [each for each in letters if each["offset"] > self._last.get(_partition(each), -1)]
        for each in found:
            at = _partition(each)
            self._last[at] = max(each["offset"], self._last.get(at, -1))
            # A timestamp in the future, from a fast clock, must not hide later dead letters.
            time = min(datetime.fromisoformat(each["time"]), now)
            self._newest = max(self._newest, time)
        return found


def _partition(letter: dict[str, Any]) -> tuple[str, int]:
    return letter["topic"], letter["partition"]


app = noun("Dead letters: what was not accepted, why, and of which record it is a duplicate.")

PlaceText = Annotated[
    str,
    typer.Argument(metavar="POSITION", help="Of the dead letter: topic-partition@offset."),
]

Oldest = Annotated[bool, typer.Option("--oldest", help="List the oldest first.")]

Payload = Annotated[
    bool,
    typer.Option(
        "--payload", help="Include key, value and headers; takes a request per dead letter."
    ),
]

Every = Annotated[
    float, typer.Option("--every", metavar="SECONDS", min=0.2, help="How often to look.")
]


@verb(
    app,
    "ls",
    "dead-letter ls",
    "dead-letter ls --address orders --because duplicate --from 2h",
)
def ls(
    call: CommandContext, options: FilterOptions, *, oldest: Oldest = False, limit: Limit = 50
) -> None:
    """List dead letters, newest first, each with the record that it repeats."""
    found = _found(call, options, limit, newest=not oldest)
    empty = "No dead letter matches."
    call.screen.show(found, lambda: [table(call, found["dead_letters"], empty)])
    if not call.screen.as_json and not found["complete"]:
        call.screen.note(f"There may be more; see --limit, or count: {_command('summary')}.")


@verb(app, "show", "dead-letter show orders.dlq-0@17")
def show(call: CommandContext, where: PlaceText) -> None:
    """Show one dead letter: why, of which record it is a duplicate, and its payload."""
    letter = read(call, position_of(where))
    call.screen.show(letter, lambda: letter_page(call, letter))


@verb(app, "summary", "dead-letter summary --from 7d")
def summary(call: CommandContext, options: FilterOptions) -> None:
    """Count dead letters by reason, address, topic and hour."""
    counted = _counted(call, options)
    call.screen.show(counted, lambda: summary_page(call, counted))


@verb(app, "tail", "dead-letter tail", "dead-letter tail --address orders --json | jq .id")
def tail(
    call: CommandContext,
    *,
    address: Address = None,
    because: Reasons = None,
    topic: Topics = None,
    every: Every = 1.0,
) -> None:
    """Print dead letters as they arrive, one line each, until Ctrl-C.

    Once the first request has succeeded, it waits for a service that does not answer.
    """
    printed = DeadLetterTail(datetime.now(UTC))
    has_begun = is_away = False
    while True:
        since = printed.since.isoformat()
        options = FilterOptions.of(address, because, topic, since, None, None, None)
        try:
            for page in _pages(call, options):
                for letter in printed.new(page, datetime.now(UTC)):
                    _print(call, letter)
            has_begun, is_away = True, False
        except ExitError as error:
            if not has_begun or not _is_transient(error):
                raise
            if not is_away:
                call.screen.note(f"{error.sentence.splitlines()[0]} Waiting …")
            is_away = True
        time.sleep(every)


@verb(
    app,
    "export",
    "dead-letter export --because duplicate > letters.ndjson",
    "dead-letter export --payload --out letters.ndjson",
)
def export(
    call: CommandContext, options: FilterOptions, *, payload: Payload = False, out: Out = None
) -> None:
    """Write all matching dead letters as NDJSON, oldest first: one per line."""
    letters: Iterator[Document] = _all(call, options)
    if payload:
        letters = (
            read(call, RecordPosition(x["topic"], x["partition"], x["offset"])) for x in letters
        )
    written = lines_to(call, out, (json.dumps(each, ensure_ascii=False) for each in letters))
    call.screen.progress(f"{written:,} dead letters", last=True)


def read(call: CommandContext, at: RecordPosition) -> Document:
    """Return the dead letter at a position."""
    return call.api.get(path_of("v1", "dead-letters", *map(str, at)))


def _print(call: CommandContext, letter: Mapping[str, Any]) -> None:
    if call.screen.as_json:
        call.screen.json_line(json.dumps(letter, ensure_ascii=False))
        return
    cells = [legible_cell(cell) for cell in table(call, [letter], "").rows[0]]
    if call.screen.terminal:
        call.screen.line("  ".join(cell.shown for cell in cells if cell.shown != NOTHING))
    else:
        call.screen.line("\t".join(cell.plain for cell in cells))


def _found(call: CommandContext, options: FilterOptions, limit: int, *, newest: bool) -> Document:
    return call.api.pages(
        "/v1/dead-letters", "dead_letters", limit, newest=newest, **options.query()
    )


def _all(call: CommandContext, options: FilterOptions) -> Iterator[Document]:
    """Yield all matching dead letters, oldest first."""
    for page in _pages(call, options):
        yield from page


def _pages(call: CommandContext, options: FilterOptions) -> Iterator[list[Document]]:
    """Yield all matching dead letters, oldest first, page by page."""
    token: str | None = None
    while True:
        found = call.api.get(
            "/v1/dead-letters", page_size=PAGE_MAX, page_token=token, **options.query()
        )
        yield found["dead_letters"]
        token = found["next_page_token"]
        if not token:
            return


def _is_transient(error: ExitError) -> bool:
    """Return whether the service is unreachable or busy, so that a retry may succeed."""
    if isinstance(error, ApiError):
        return error.status in {429, 503}
    return error.exit_code == AdminExit.UNREACHABLE


def _counted(call: CommandContext, options: FilterOptions) -> Document:
    """Return the counts, added up over as many requests as needed."""
    whole: Document = {}
    token: str | None = None
    while True:
        part = call.api.get("/v1/dead-letters:summary", page_token=token, **options.query())
        whole = _added(whole, part) if whole else part
        token = part["next_page_token"]
        if not token:
            call.screen.progress("")
            return whole
        call.screen.progress(f"{whole['scanned']:,} records scanned …")


def _added(whole: Mapping[str, Any], part: Mapping[str, Any]) -> Document:
    added = {name: whole[name] + part[name] for name in ("dead_letters", "foreign", "scanned")}
    for name in ("by_reason", "by_address", "by_topic"):
        names = [*whole[name], *(key for key in part[name] if key not in whole[name])]
        added[name] = {key: whole[name].get(key, 0) + part[name].get(key, 0) for key in names}
    hours: dict[str, int] = {}
    for each in (*whole["by_hour"], *part["by_hour"]):
        hours[each["hour"]] = hours.get(each["hour"], 0) + each["dead_letters"]
    added["by_hour"] = [{"hour": hour, "dead_letters": hours[hour]} for hour in sorted(hours)]
    return {**part, **added}


def _command(name: str) -> str:
    return f"ringfence dead-letter {name}"
