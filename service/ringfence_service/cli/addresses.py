"""`ringfence address …`: what an address remembers, how far back, and its settings."""

import shlex
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Annotated, Any, Final
from urllib.parse import unquote

import typer

from ringfence_service.cli import cells
from ringfence_service.cli.arguments import Document, pairs_of, path_of
from ringfence_service.cli.cells import (
    Cell,
    age,
    count,
    duration_ms,
    share,
    size,
    source,
    span,
    text_of,
    word,
)
from ringfence_service.cli.command import Address, CommandContext, Limit, Risk, confirm, noun, verb
from ringfence_service.cli.page import Facts, Page, Part, Table, Title
from ringfence_service.cli.problem import ApiError
from ringfence_service.cli.settings_change import apply_change, current
from ringfence_service.errors import ExitCode, ExitError
from ringfence_service.formatting import plural

app = noun("Addresses: what each remembers, how far back, and its settings.")


class AddressSort(StrEnum):
    """Sort orders of addresses; a minus sorts the largest first."""

    NAME = "name"
    HORIZON = "horizon"
    LONGEST_HORIZON = "-horizon"
    FULLEST = "-fill"
    EMPTIEST = "fill"
    MOST_IDS = "-ids_held"
    FEWEST_IDS = "ids_held"
    MOST_DUPLICATES = "-duplicates"
    FEWEST_DUPLICATES = "duplicates"
    MOST_ACCEPTED = "-accepted"
    FEWEST_ACCEPTED = "accepted"


SortBy = Annotated[
    AddressSort, typer.Option("--sort", help="Sort key; a minus sorts the largest first.")
]

Prefix = Annotated[
    str, typer.Option("--prefix", metavar="TEXT", help="Only names that start with this.")
]

Window = Annotated[
    str,
    typer.Option("--retry-window", metavar="TIME", help="Longest delay of a duplicate: 30m, 2h."),
]

Rate = Annotated[
    float | None,
    typer.Option(
        "--rate", metavar="N", help="Accepted records per second; default: estimated from its ids."
    ),
]

_TITLES: Final = (
    "address",
    "strategy",
    "full",
    "slots",
    "capacity",
    "horizon",
    "accepted",
    "duplicates",
    "partitions",
)

_SPARE: Final = ("partitions", "strategy", "capacity")


@verb(
    app,
    "ls",
    "address ls",
    "address ls --sort horizon --prefix flights. --limit 20",
)
def ls(
    call: CommandContext, *, sort: SortBy = AddressSort.NAME, prefix: Prefix = "", limit: Limit = 50
) -> None:
    """List addresses: how full they are, how far back they remember, and their traffic.

    With --sort horizon, the addresses that evict ids soonest come first.
    """
    found = call.api.pages("/v1/addresses", "addresses", limit, sort=sort.value, prefix=prefix)
    rows = [
        [
            word(each["address"], "strong"),
            word(each["strategy"]),
            share(each["fill"], 1),
            count(each["ids_held"]),
            count(each["capacity"]),
            _horizon(each["horizon_ms"], each["fill"]),
            count(each["accepted"]),
            count(each["duplicates"]),
            count(each["partitions"]),
        ]
        for each in found["addresses"]
    ]
    call.screen.show(found, lambda: [Table(_TITLES, rows, "No address is known.", _SPARE)])
    if found["next_page_token"] and not call.screen.as_json:
        call.screen.note("There are more; see --limit and --prefix.")


@verb(
    app,
    "plan",
    "address plan orders --retry-window 2h",
    "address plan orders --retry-window 2h --rate 500 --json | jq .request",
)
def plan(
    call: CommandContext, address: Address, *, retry_window: Window, rate: Rate = None
) -> None:
    """Compute the size for a rate and a retry window, with the memory and disk it needs.

    Changes nothing. Exit 1 when the current size is not enough.
    """
    need: Document = {"retry_window": duration_ms(retry_window) / 1_000}
    need |= {} if rate is None else {"messages_per_second": rate}
    try:
        found = call.api.post("/v1/addresses:plan", need, name=address)
    except ApiError as refused:
        # Only the name of the field differs between the API and this command.
        sentence = refused.sentence.replace("send messages_per_second", "pass --rate N")
        raise ExitError(refused.exit_code, sentence) from refused
    call.screen.show(found, lambda: _plan(found))
    if not found["is_enough"]:
        if not call.screen.as_json:
            call.screen.note(f"Set it: {_command_of(found)}")
        raise typer.Exit(ExitCode.NO)


@verb(app, "show", "address show orders", "address show flights.JFK --json | jq .partitions")
def show(call: CommandContext, address: Address) -> None:
    """Show what an address remembers per partition, and its settings with their patterns.

    An id that was forgotten keeps its slot until a new id overwrites it, so that there can be
    more slots in use than id ls lists.
    """
    found = read(call, address)
    call.screen.show(found, lambda: page(found, utc=call.screen.utc))
    call.warn_if_unknown(found)


@verb(app, "clear", "address clear orders --dry-run", takes=Risk.RISK)
def clear(call: CommandContext, address: Address) -> None:
    """Forget all ids of an address: copies of accepted records are accepted again."""
    found = read(call, address)
    held = f"{address} remembers {_held(found)}."
    if call.dry_run:
        call.screen.show(found, lambda: [Title(held), _rings(found)])
        return
    confirm(call, f"{held} Forget all of them? Copies of their records will be accepted.")
    done = call.api.post("/v1/addresses:clear", name=address, reason=call.reason)
    call.screen.show(done, lambda: [Facts([("forgotten", count(done["ids"]))])])


def read(call: CommandContext, address: str) -> Document:
    """Return the document of an address."""
    return call.api.get(path_of("v1", "addresses", address))


def page(found: Mapping[str, Any], *, utc: bool) -> Page:
    """Return the page of an address."""
    other = "" if found["complete"] else ", not counting other instances"
    held = f"{_held(found)}, {size(found['bytes']).shown}{other}"
    rows = [
        ("strategy", word(found["strategy"])),
        ("horizon", _horizon(found["horizon_ms"], found["fill"])),
        ("disk", _disk(found)),
        ("accepted, with redrives", count(found["accepted"])),
        ("duplicates, with redrives", count(found["duplicates"])),
        ("counted since", cells.when(found["counted_since"], utc=utc)),
    ]
    parts: list[Part] = [
        Title(f"{found['address']}: {held}"),
        Facts([(name, cell._replace(right=False)) for name, cell in rows]),
    ]
    if found["partitions"]:
        parts.append(_rings(found))
    return [*parts, Title("Settings"), _settings(found["settings"])]


def _disk(found: Mapping[str, Any]) -> Cell:
    """Return what an address takes on disk, with the files that find its older ids."""
    runs = sum(each["runs"] for each in found["partitions"])
    cell = size(found["disk_bytes"])
    return cell._replace(text=f"{cell.text}, with {plural(runs, 'run')}") if runs else cell


def _held(found: Mapping[str, Any]) -> str:
    """Return how many slots ids have at an address; unknown until its state is loaded."""
    return "ids" if found["ids_held"] is None else f"ids in {plural(found['ids_held'], 'slot')}"


def _plan(found: Mapping[str, Any]) -> Page:
    origin = "estimated from its ids" if found["rate_is_observed"] else "as given"
    verdict = "is enough" if found["is_enough"] else "is not enough"
    rate = found["messages_per_second"]
    rows = [
        ("retry window", span(found["retry_window_ms"])),
        ("messages per second", word(f"{rate:{',.1f' if rate >= 0.1 else '.2g'}}, {origin}")),
        ("ids needed", count(found["ids_needed"])),
        ("recommended", count(found["recommended"], "strong")),
        ("present", count(found["present"], "good" if found["is_enough"] else "bad")),
        ("remembers for", span(found["present_reach_ms"])),
        ("horizon now", _horizon(found["horizon_ms"])),
        ("memory", size(found["memory_bytes"])),
        ("disk", size(found["disk_bytes"])),
        ("changelog", size(found["changelog_bytes"])),
        ("restore", span(found["restore_ms"])),
        ("first load", span(found["load_ms"])),
    ]
    head = f"{found['address']}: {found['setting']} = {found['present']:,} {verdict}"
    return [Title(head), Facts([(name, cell._replace(right=False)) for name, cell in rows])]


def _command_of(found: Mapping[str, Any]) -> str:
    """Return the command that applies a plan's recommendation."""
    request = found["request"]
    pattern = unquote(request["path"].rpartition("/")[2])
    pairs = [f"{key}={text_of(value)}" for key, value in request["body"].items()]
    return shlex.join(["ringfence", "address", "set", pattern, *pairs])


def _horizon(horizon_ms: int | None, fill: float | None = None) -> Cell:
    """Return how far back an address remembers; unlimited until it has forgotten an id.

    One that has room again was enlarged, and its horizon grows.
    """
    if horizon_ms is None:
        return Cell("", "all so far", "dim", right=True)
    cell = span(horizon_ms)
    is_growing = fill is not None and fill < 1
    return cell._replace(text=f"{cell.text}, growing") if is_growing else cell


def _rings(found: Mapping[str, Any]) -> Table:
    rows = [_ring(each) for each in found["partitions"]]
    titles = (
        "partition",
        "full",
        "slots",
        "capacity",
        "memory",
        "disk",
        "horizon",
        "oldest id",
        "newest id",
    )
    spare = ("disk", "memory", "newest id", "slots")
    return Table(titles, rows, "It remembers nothing.", spare)


def _ring(ring: Mapping[str, Any]) -> Sequence[Cell]:
    return [
        source(ring),
        share(ring["ids_held"], ring["capacity"]),
        count(ring["ids_held"]),
        count(ring["capacity"]),
        size(ring["bytes"]),
        size(ring["disk_bytes"]),
        _horizon(ring["horizon_ms"]),
        age(ring["oldest_time"]),
        age(ring["newest_time"]),
    ]


def _settings(settings: Mapping[str, Mapping[str, Any]]) -> Table:
    rows = [
        [word(name), word(text_of(each["value"])), word(each["pattern"], "dim")]
        for name, each in settings.items()
    ]
    return Table(("setting", "value", "set by pattern"), rows, "")


settings = noun("Address settings: which pattern sets which key.")

app.add_typer(settings, name="settings")

Pattern = Annotated[
    str,
    typer.Argument(metavar="PATTERN", help="Address pattern: * is one word, # any number."),
]

Pairs = Annotated[
    list[str], typer.Argument(metavar="KEY=VALUE", help="Keys of [addresses], as in the file.")
]

Unset = Annotated[
    list[str] | None,
    typer.Option(
        "--unset",
        metavar="KEY",
        help="Remove this key, so that other patterns set it; may be repeated.",
    ),
]

Ids = Annotated[
    int, typer.Argument(metavar="IDS", min=0, help="How many ids; 0 turns detection off.")
]

_SETTINGS: Final = "/v1/address-settings"

_NO_KEYS: Final = frozenset({"pattern", "source", "etag"})


@verb(
    app,
    "set",
    "address set 'flights.#' id_cache_size=400000 --dry-run",
    "address set orders strategy=window window_ms=600000 --yes",
    takes=Risk.RISK,
)
def set_keys(call: CommandContext, pattern: Pattern, keys: Pairs, *, unset: Unset = None) -> None:
    """Set keys of a pattern and keep its other keys; existing caches are resized at once.

    Shows which ids would be forgotten, by age, and asks if there are any.
    """
    _set(call, pattern, pairs_of(keys), unset or ())


@verb(app, "resize", "address resize orders 5000 --dry-run", takes=Risk.RISK)
def resize(call: CommandContext, address: Address, ids: Ids) -> None:
    """Set how many ids an address remembers on each partition; the newest are kept."""
    _set(call, _pattern_of(address), {"id_cache_size": ids}, ())


@verb(settings, "ls", "address settings ls")
def ls_settings(call: CommandContext) -> None:
    """List the patterns with the keys that each sets."""
    found = call.api.pages(_SETTINGS, "address_settings", 100_000)
    rows = [
        [word(each["pattern"], "strong"), word(_keys(each)), word(each["source"], "dim")]
        for each in found["address_settings"]
    ]
    titles = ("pattern", "sets", "from")
    call.screen.show(found, lambda: [Table(titles, rows, "No pattern sets anything.")])


@verb(settings, "show", "address settings show 'flights.#'")
def show_settings(call: CommandContext, pattern: Pattern) -> None:
    """Show the keys that one pattern sets."""
    found = call.api.get(_SETTINGS, name=pattern)
    rows = [(key, word(text_of(value))) for key, value in found.items() if key != "etag"]
    call.screen.show(found, lambda: [Facts(rows)])


@verb(settings, "delete", "address settings delete 'flights.#' --dry-run", takes=Risk.RISK)
def delete_settings(call: CommandContext, pattern: Pattern) -> None:
    """Delete the settings of a pattern, including those of the file."""
    etag = call.api.read(_SETTINGS, name=pattern).etag
    apply_change(
        call,
        f"Delete the settings of {pattern}",
        lambda query: call.api.delete(_SETTINGS, etag, name=pattern, **query),
        always_ask=True,
    )


def _set(call: CommandContext, pattern: str, keys: Mapping[str, Any], unset: Sequence[str]) -> None:
    """Replace the keys of a pattern by the changed ones, unless it has changed since."""
    now = current(call, _SETTINGS, name=pattern)
    existing = {
        key: value for key, value in (now.document if now else {}).items() if key not in _NO_KEYS
    }
    body = {key: value for key, value in {**existing, **keys}.items() if key not in unset}

    def send(query: Mapping[str, object]) -> Document:
        if now is None:
            return call.api.create(_SETTINGS, body, name=pattern, **query)
        return call.api.put(_SETTINGS, body, now.etag, name=pattern, **query)

    apply_change(call, f"Set {', '.join([*keys, *unset])} of {pattern}", send)


def _pattern_of(address: str) -> str:
    """Return the pattern that matches one address only; its name may contain wildcards."""
    is_wild = any(each in {"*", "#"} for each in address.split("."))
    return f"({address})" if is_wild or address[:1] == "(" else address


def _keys(setting: Mapping[str, Any]) -> str:
    return "  ".join(
        f"{key}={text_of(each)}" for key, each in setting.items() if key not in _NO_KEYS
    )
