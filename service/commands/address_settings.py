"""`ringfence address set`, `resize` and `settings …`: how addresses remember, by pattern."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final

import typer

from service.commands.addresses import app
from service.commands.cells import text_of, word
from service.commands.changes import make, standing
from service.commands.command import Call, Takes, noun, verb
from service.commands.documents import Document
from service.commands.given import pairs_of
from service.commands.options import Address
from service.commands.page import Facts, Table

settings = noun("Address settings: which pattern gives which key.")
app.add_typer(settings, name="settings")

Pattern = Annotated[
    str, typer.Argument(metavar="PATTERN", help="Of addresses: * is one word, # any number.")
]
Pairs = Annotated[
    list[str], typer.Argument(metavar="KEY=VALUE", help="Keys of [addresses] in the file.")
]
Unset = Annotated[
    list[str] | None,
    typer.Option("--unset", metavar="KEY", help="Leave it to other patterns; may be repeated."),
]
Ids = Annotated[int, typer.Argument(metavar="IDS", min=0, help="How many; 0 detects nothing.")]
_SETTINGS: Final = "/v1/address-settings"
_TOLD: Final = frozenset({"pattern", "source", "etag"})


@verb(
    app,
    "set",
    "address set 'flights.#' id_cache_size=400000 --dry-run",
    "address set orders strategy=window window_ms=600000 --yes",
    takes=Takes.RISK,
)
def set_keys(call: Call, pattern: Pattern, keys: Pairs, *, unset: Unset = None) -> None:
    """Set keys of a pattern beside those that it has; what is held is resized at once.

    Shows what would be forgotten, by age, and asks where anything would.
    """
    _set(call, pattern, pairs_of(keys), unset or ())


@verb(app, "resize", "address resize orders 5000 --dry-run", takes=Takes.RISK)
def resize(call: Call, address: Address, ids: Ids) -> None:
    """Have an address remember so many ids on each partition; the newest stay."""
    _set(call, _pattern_of(address), {"id_cache_size": ids}, ())


@verb(settings, "ls", "address settings ls")
def ls_settings(call: Call) -> None:
    """List the patterns with the keys that each gives."""
    found = call.api.pages(_SETTINGS, "address_settings", 100_000)
    rows = [
        [word(each["pattern"], "strong"), word(_keys(each)), word(each["source"], "dim")]
        for each in found["address_settings"]
    ]
    titles = ("pattern", "gives", "from")
    call.screen.show(found, lambda: [Table(titles, rows, "No pattern gives anything.")])


@verb(settings, "show", "address settings show 'flights.#'")
def show_settings(call: Call, pattern: Pattern) -> None:
    """Show what one pattern gives."""
    found = call.api.get(_SETTINGS, name=pattern)
    rows = [(key, word(text_of(value))) for key, value in found.items() if key != "etag"]
    call.screen.show(found, lambda: [Facts(rows)])


@verb(settings, "delete", "address settings delete 'flights.#' --dry-run", takes=Takes.RISK)
def delete_settings(call: Call, pattern: Pattern) -> None:
    """Have a pattern give nothing any more, what the file says of it included."""
    etag = call.api.read(_SETTINGS, name=pattern).etag
    make(
        call,
        f"Delete the settings of {pattern}",
        lambda query: call.api.delete(_SETTINGS, etag, name=pattern, **query),
        always_ask=True,
    )


def _set(call: Call, pattern: str, keys: Mapping[str, Any], unset: Sequence[str]) -> None:
    """Put what a pattern gives, changed, in the place of what was read."""
    now = standing(call, _SETTINGS, name=pattern)
    given = {key: value for key, value in (now.document if now else {}).items() if key not in _TOLD}
    body = {key: value for key, value in {**given, **keys}.items() if key not in unset}

    def send(query: Mapping[str, object]) -> Document:
        if now is None:
            return call.api.create(_SETTINGS, body, name=pattern, **query)
        return call.api.put(_SETTINGS, body, now.etag, name=pattern, **query)

    make(call, f"Set {', '.join([*keys, *unset])} of {pattern}", send)


def _pattern_of(address: str) -> str:
    """The pattern of one address alone; an address may hold what would be a wildcard."""
    is_wild = any(each in {"*", "#"} for each in address.split("."))
    return f"({address})" if is_wild or address[:1] == "(" else address


def _keys(setting: Mapping[str, Any]) -> str:
    return "  ".join(f"{key}={text_of(each)}" for key, each in setting.items() if key not in _TOLD)
