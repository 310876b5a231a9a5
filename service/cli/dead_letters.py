"""`ringfence dead-letter …`: records that were not accepted, and why."""

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Final, NamedTuple

import typer

from service.cli.arguments import PAGE_MAX, Document, RecordPosition, path_of, place_of
from service.cli.cells import NOTHING, Cell, count, moment, place, several, share, size, word
from service.cli.command import CommandContext, Limit, Out, lines_to, noun, verb
from service.cli.page import Facts, Page, Part, Table, Title, legible_cell
from service.cli.problem import ApiError
from service.errors import AdminExit, ExitCode, ExitError

Address = Annotated[str | None, typer.Option("--address", metavar="ADDRESS", help="Of this one.")]

Reasons = Annotated[
    list[str] | None,
    typer.Option("--because", metavar="REASON", help="Dead-lettered as this; may be repeated."),
]

Topics = Annotated[
    list[str] | None,
    typer.Option("--topic", metavar="TOPIC", help="A dead-letter topic; may be repeated."),
]

From = Annotated[
    str | None,
    typer.Option("--from", metavar="TIME", help="Decided then or later: a time, or 2h ago as 2h."),
]

To = Annotated[str | None, typer.Option("--to", metavar="TIME", help="Decided before.")]

Key = Annotated[
    str | None, typer.Option("--key", metavar="KEY", help="With this key; hex: or base64: too.")
]

Headers = Annotated[
    list[str] | None,
    typer.Option("--header", metavar="NAME=VALUE", help="With this header; may be repeated."),
]


class FilterOptions(NamedTuple):
    """Which dead letters are meant; what is not given leaves none out."""

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
        """As the options give it; a command that takes a filter takes all of these."""
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
        """As parameters of a request."""
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
        """As the filter of an order."""
        given = {
            "address": self.address,
            "reason": list(self.reasons),
            "from": self.from_,
            "to": self.to,
            "key": self.key,
            "header": dict(self.headers),
        }
        return {name: value for name, value in given.items() if value}


def _header(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        sentence = f"{text!r} is no header; write --header NAME=VALUE."
        raise ExitError(ExitCode.USAGE, sentence)
    return name, value


_TITLES = ("decided", "dead letter", "reason", "address", "id", "record", "duplicate of")


def letter_page(call: CommandContext, letter: Mapping[str, Any]) -> Page:
    """The page of one dead letter."""
    parts: list[Part] = [Title(f"{place(letter).plain}: {letter['reason'] or 'not ours'}")]
    parts.append(Facts(_facts(call, letter)))
    payload = letter.get("payload")
    if payload is not None:
        rows = [("key", _content(payload["key"])), ("value", _content(payload["value"]))]
        rows += [(each["name"], _content(each["value"])) for each in payload["headers"]]
        parts += [Title("The record"), Facts(rows)]
    return parts


def _facts(call: CommandContext, letter: Mapping[str, Any]) -> list[tuple[str, Cell]]:
    source = letter["source"]
    return [
        ("why", word(letter["cause"])),
        ("duplicate of", word(letter["original"], "strong")),
        ("decided", call.screen.since(letter["time"])),
        ("address", word(letter["address"])),
        ("id", _identifier(letter["id"])),
        ("strategy", word(letter["strategy"])),
        ("record", place(source)),
        ("sent", call.screen.since(source["time"]) if source else word(None)),
        ("redriven", count(letter["redrives"])._replace(right=False)),
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
    """A table of dead letters."""
    rows = [
        [
            call.screen.when(each["time"]),
            place(each),
            word(each["reason"] or "not ours"),
            word(each["address"]),
            _identifier(each["id"]),
            place(each["source"]),
            word(each["original"]),
        ]
        for each in letters
    ]
    return Table(_TITLES, rows, empty, ("address", "record"))


def summary_page(call: CommandContext, counted: Mapping[str, Any]) -> Page:
    """The page of what was counted."""
    total = counted["dead_letters"]
    foreign = f", and {counted['foreign']:,} that are not ours" if counted["foreign"] else ""
    parts: list[Part] = [Title(several(total, "dead letter") + foreign)]
    parts += breakdown(counted, total)
    hours = counted["by_hour"][-24:]
    most = max((each["dead_letters"] for each in hours), default=0)
    rows = [
        [call.screen.when(each["hour"]), count(each["dead_letters"]), _of_most(each, most)]
        for each in hours
    ]
    return [*parts, Table(("hour", "dead letters", "of the most"), rows, "")]


def breakdown(counted: Mapping[str, Any], total: int) -> Sequence[Part]:
    """Tables of what there is most of, with its share of all: by reason, address, topic."""
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
"""How much later than a younger one a letter may come: a transaction's time, clocks that differ."""


class DeadLetterTail:
    """What was told; see the module."""

    def __init__(self, start: datetime) -> None:
        self._start = self._newest = start
        self._last: dict[tuple[str, int], int] = {}

    @property
    def since(self) -> datetime:
        """From which time on to ask."""
        return max(self._start, self._newest - LATE)

    def new(self, letters: Sequence[dict[str, Any]], now: datetime) -> list[dict[str, Any]]:
        """Those of a page that were not told; on one page a partition may be out of order."""
        found = [each for each in letters if each["offset"] > self._last.get(_partition(each), -1)]
        for each in found:
            at = _partition(each)
            self._last[at] = max(each["offset"], self._last.get(at, -1))
            # A letter of the future, by another's clock, must not hide those of now.
            time = min(datetime.fromisoformat(each["time"]), now)
            self._newest = max(self._newest, time)
        return found


def _partition(letter: dict[str, Any]) -> tuple[str, int]:
    return letter["topic"], letter["partition"]


app = noun("Dead letters: what was not accepted, why, and of which record it is a duplicate.")

PlaceText = Annotated[
    str, typer.Argument(metavar="PLACE", help="Of the dead letter: topic-partition@offset.")
]

Oldest = Annotated[bool, typer.Option("--oldest", help="The oldest first, not the newest.")]

Payload = Annotated[
    bool, typer.Option("--payload", help="With key, value and headers: a request for each.")
]

Every = Annotated[float, typer.Option("--every", metavar="SECONDS", min=0.2, help="How often.")]


@verb(
    app,
    "ls",
    "dead-letter ls",
    "dead-letter ls --address orders --because duplicate --from 2h",
)
def ls(
    call: CommandContext, wanted: FilterOptions, *, oldest: Oldest = False, limit: Limit = 50
) -> None:
    """List dead letters, the newest first, each with the record that it repeats."""
    found = _found(call, wanted, limit, newest=not oldest)
    empty = "No dead letter fits."
    call.screen.show(found, lambda: [table(call, found["dead_letters"], empty)])
    if not call.screen.as_json and not found["complete"]:
        call.screen.note(f"There may be more; see --limit, or count: {_command('summary')}.")


@verb(app, "show", "dead-letter show orders.dlq-0@17")
def show(call: CommandContext, where: PlaceText) -> None:
    """Show one dead letter: why, of which record it is a duplicate, and what it holds."""
    letter = read(call, place_of(where))
    call.screen.show(letter, lambda: letter_page(call, letter))


@verb(app, "summary", "dead-letter summary --from 7d")
def summary(call: CommandContext, wanted: FilterOptions) -> None:
    """Count dead letters by reason, address, topic and hour."""
    counted = _counted(call, wanted)
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
    """Print dead letters as they come, a line each, until Ctrl-C.

    Once it has begun, it waits for a service that does not answer.
    """
    told = DeadLetterTail(datetime.now(UTC))
    has_begun = is_away = False
    while True:
        since = told.since.isoformat()
        wanted = FilterOptions.of(address, because, topic, since, None, None, None)
        try:
            for page in _pages(call, wanted):
                for letter in told.new(page, datetime.now(UTC)):
                    _tell(call, letter)
            has_begun, is_away = True, False
        except ExitError as error:
            if not has_begun or not _may_pass(error):
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
    call: CommandContext, wanted: FilterOptions, *, payload: Payload = False, out: Out = None
) -> None:
    """Write all that fit as NDJSON, the oldest first: one dead letter a line."""
    letters: Iterator[Document] = _all(call, wanted)
    if payload:
        letters = (
            read(call, RecordPosition(x["topic"], x["partition"], x["offset"])) for x in letters
        )
    written = lines_to(call, out, (json.dumps(each, ensure_ascii=False) for each in letters))
    call.screen.progress(f"{written:,} dead letters", last=True)


def read(call: CommandContext, at: RecordPosition) -> Document:
    """Return the dead letter at a place."""
    return call.api.get(path_of("v1", "dead-letters", *map(str, at)))


def _tell(call: CommandContext, letter: Mapping[str, Any]) -> None:
    if call.screen.as_json:
        call.screen.json_line(json.dumps(letter, ensure_ascii=False))
        return
    cells = [legible_cell(cell) for cell in table(call, [letter], "").rows[0]]
    if call.screen.terminal:
        call.screen.line("  ".join(cell.shown for cell in cells if cell.shown != NOTHING))
    else:
        call.screen.line("\t".join(cell.plain for cell in cells))


def _found(call: CommandContext, wanted: FilterOptions, limit: int, *, newest: bool) -> Document:
    return call.api.pages(
        "/v1/dead-letters", "dead_letters", limit, newest=newest, **wanted.query()
    )


def _all(call: CommandContext, wanted: FilterOptions) -> Iterator[Document]:
    """All that fit, the oldest first."""
    for page in _pages(call, wanted):
        yield from page


def _pages(call: CommandContext, wanted: FilterOptions) -> Iterator[list[Document]]:
    """All that fit, the oldest first, page by page."""
    token: str | None = None
    while True:
        found = call.api.get(
            "/v1/dead-letters", page_size=PAGE_MAX, page_token=token, **wanted.query()
        )
        yield found["dead_letters"]
        token = found["next_page_token"]
        if not token:
            return


def _may_pass(error: ExitError) -> bool:
    """Whether the service is away, and no answer of it stands however often it is asked."""
    if isinstance(error, ApiError):
        return error.status in {429, 503}
    return error.exit_code == AdminExit.UNREACHABLE


def _counted(call: CommandContext, wanted: FilterOptions) -> Document:
    """All counts, added up over as many requests as it takes."""
    whole: Document = {}
    token: str | None = None
    while True:
        part = call.api.get("/v1/dead-letters:summary", page_token=token, **wanted.query())
        whole = _added(whole, part) if whole else part
        token = part["next_page_token"]
        if not token:
            call.screen.progress("")
            return whole
        call.screen.progress(f"{whole['scanned']:,} records looked at …")


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
