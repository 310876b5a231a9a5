"""Pages of dead letters: one, a table of them, and what was counted."""

from collections.abc import Mapping, Sequence
from typing import Any

from service.commands.cells import Cell, count, place, several, share, size, word
from service.commands.command import Call
from service.commands.page import Facts, Page, Part, Table, Title

_TITLES = ("decided", "dead letter", "reason", "address", "id", "record", "duplicate of")


def letter_page(call: Call, letter: Mapping[str, Any]) -> Page:
    """The page of one dead letter."""
    parts: list[Part] = [Title(f"{place(letter).plain}: {letter['reason'] or 'not ours'}")]
    parts.append(Facts(_facts(call, letter)))
    payload = letter.get("payload")
    if payload is not None:
        rows = [("key", _content(payload["key"])), ("value", _content(payload["value"]))]
        rows += [(each["name"], _content(each["value"])) for each in payload["headers"]]
        parts += [Title("The record"), Facts(rows)]
    return parts


def _facts(call: Call, letter: Mapping[str, Any]) -> list[tuple[str, Cell]]:
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


def table(call: Call, letters: Sequence[Mapping[str, Any]], empty: str) -> Table:
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


def summary_page(call: Call, counted: Mapping[str, Any]) -> Page:
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
