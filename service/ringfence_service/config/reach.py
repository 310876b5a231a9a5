"""Reach of address settings: which patterns can match an address of the routes, and which detect.

`ringfence check` reports it of a file, and a change over REST of the settings that it makes.

An address with a field of the record can be any text there, and one with {topic} of an expression
too. What is said holds whatever the records contain: it is certain, or it is not said.
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from ringfence_service.config.addresses import BRIDGE, LITERAL_MARKER, AddressBook, AddressSettings
from ringfence_service.config.keys import nearest
from ringfence_service.config.model import RouteSettings
from ringfence_service.config.possible_addresses import Pattern, may_meet, possible_addresses
from ringfence_service.config.unread_keys import inherited_without_effect, unread_keys
from ringfence_service.errors import ConfigIssue

_ANY_WORD: Final = "\0"
"""Stands for a word that no pattern has."""

_LISTED_MAX: Final = 5
"""How many names a problem lists before it counts the rest, so that it stays one sentence."""


class Reach(NamedTuple):
    """What the routes make of the address settings."""

    problems: tuple[ConfigIssue, ...]
    warnings: tuple[str, ...]


def reach_of(
    routes: Sequence[RouteSettings], book: AddressBook, in_file: Collection[str] | None = None
) -> Reach:
    """Return the patterns that no route can reach, and the addresses without detection.

    `in_file` are the patterns of the file, if others were set over REST: those may be there before
    their route is, and are left as they are, so they are warned of.
    """
    possible = [each for route in routes for each in possible_addresses(route)]
    known = sorted({"".join(map(str, each)) for each in possible if None not in each})
    is_all = len(possible) > 0 and all(None not in each for each in possible)
    problems, warnings = list[ConfigIssue](), list[str]()
    for pattern, keys in book.patterns.items():
        is_of_file = in_file is None or pattern in in_file
        if not is_of_file:
            warnings += (f"{each.what}; {each.fix}" for each in unread_keys(pattern, keys))
        if _may_match(pattern, possible, book):
            warnings += _of_pattern(pattern, keys, book, names_addresses=is_all)
            continue
        name = f'addresses."{pattern}"'
        names_one = is_all and _literal_of(pattern) is not None
        near = nearest(pattern, known) if names_one else None
        if names_one and is_of_file:
            fix = (
                f'the nearest is "{near}": rename it, or remove the table'
                if near
                else "rename it to an address of a route, or remove the table"
            )
            what = f"{name} matches no address: the routes have {_listed(known)}"
            problems.append(ConfigIssue(what, fix, (("addresses", pattern),)))
        else:
            hint = f'; the nearest is "{near}"' if near else ""
            what = f"{name} matches no address that a route can have: it has no effect"
            warnings.append(f"{what}{hint}")
    for name in known if is_all else ():
        settings = book.settings(name)
        if not settings.remembers:
            warnings.append(f"{name}: {_off(settings)}")
    return Reach(tuple(problems), tuple(dict.fromkeys(warnings)))


def _of_pattern(
    pattern: str, keys: Mapping[str, object], book: AddressBook, *, names_addresses: bool
) -> Iterator[str]:
    """Yield what an address has for which this is the most exact pattern.

    With `names_addresses` each address without detection is named by itself.
    """
    literal = _literal_of(pattern)
    settings = book.settings(literal or re.sub(r"[*#]", _ANY_WORD, pattern))
    if not names_addresses and not settings.remembers:
        yield f'addresses."{pattern}": {_off(settings)}'
    if "strategy" not in keys:
        yield from inherited_without_effect(pattern, keys, settings)


def _off(settings: AddressSettings) -> str:
    key = settings.remembered_by.size_key
    why = f"{key} = 0" if key else f'strategy = "{settings.strategy}"'
    return f"detection is off ({why}), every record is accepted"


def _may_match(pattern: str, possible: Sequence[Pattern], book: AddressBook) -> bool:
    """Whether an address of a route, or its stamps of a bridge, may match a pattern."""
    literal = _literal_of(pattern)
    shape: Pattern = tuple(literal) if literal is not None else _shape(pattern)
    for address in possible:
        for prefix in ("", BRIDGE):
            whole = (*prefix, *address)
            if None in whole:
                if may_meet(shape, whole):
                    return True
            elif book.matches(pattern, "".join(map(str, whole))):
                return True
    return False


def _literal_of(pattern: str) -> str | None:
    """Return the only address that a pattern matches; None if it has wildcards."""
    opening, closing = LITERAL_MARKER
    if len(pattern) > 2 and pattern.startswith(opening) and pattern.endswith(closing):
        return pattern[1:-1]
    return None if set("*#") & set(pattern) else pattern


def _shape(pattern: str) -> Pattern:
    """Return a pattern with any text for each wildcard; a final `.#` also matches no word."""
    text = pattern.removesuffix(".#") + "#" if pattern.endswith(".#") else pattern
    return tuple(None if each in "*#" else each for each in text)


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(f'"{name}"' for name in names[:_LISTED_MAX])
    return f"{shown} and {len(names) - _LISTED_MAX} more" if len(names) > _LISTED_MAX else shown
