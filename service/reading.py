"""Reading one table of the configuration into a frozen section; every fault becomes a problem.

Reading never stops at a fault: the faulty key falls back to its default, so that whatever comes
after can still be checked and all problems are told at once.
"""

import difflib
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, TypeVar, cast

from service.errors import Problem
from service.rules import RefusedError, rules_of, shown

S = TypeVar("S")

_LATER_KEYS = frozenset(
    {
        "window_ms",
        "window_size",
        "refresh_on_hit",
        "audit_depth",
        "audit_producers",
        "audit_jump_max",
        "below_window",
        "publishers_max",
        "dead_letter_audit",
        "group_records_max",
        "group_bytes_max",
        "group_timeout_ms",
        "groups_open_max",
    }
)


class Given(NamedTuple):
    """A value somebody gave, and what they called it: a key of the file or a variable."""

    value: object
    name: str


class Table(NamedTuple):
    """The keys given for one section, and its full name."""

    name: str
    keys: Mapping[str, Given]


def read_section(section: type[S], table: Table, problems: list[Problem]) -> S:
    """Read a table by the rules of a section; a fault adds a problem and leaves the default."""
    accepted = read_keys(section, table, problems)
    make = cast("Callable[..., S]", section)
    return make(**accepted)


def read_keys(section: type, table: Table, problems: list[Problem]) -> dict[str, object]:
    """Read what a table gives, and only that: keys that merge with others have no default yet."""
    rules = rules_of(section)
    accepted: dict[str, object] = {}
    for key, given in table.keys.items():
        if key not in rules:
            problems.append(unknown(given.name, key, rules))
            continue
        try:
            accepted[key] = rules[key].read(given.value)
        except RefusedError as refused:
            default = getattr(section(), key)
            problems.append(_refusal(given, key, refused, default))
    return accepted


def unknown(name: str, key: str, known: Iterable[str]) -> Problem:
    """Tell that a key is not a setting, and which one was perhaps meant."""
    if key in _LATER_KEYS:
        return Problem(f"{name} belongs to a strategy of a later version", "remove it")
    near = nearest(key, known)
    if near:
        return Problem(f"{name} is not a setting", f"the nearest is {near}: rename or remove it")
    return Problem(f"{name} is not a setting", f"known are {', '.join(sorted(known))}: remove it")


def nearest(word: str, known: Iterable[str], cutoff: float = 0.6) -> str | None:
    """Return the known word that looks most like this one."""
    return next(iter(difflib.get_close_matches(word, list(known), n=1, cutoff=cutoff)), None)


def _refusal(given: Given, key: str, refused: RefusedError, default: object) -> Problem:
    what = f"{given.name} is {shown(given.value)}: {refused.why}"
    usual = f"change it, or remove it for the default {shown(default)}"
    if default in ("", ()):
        usual = f"change {key}"
    return Problem(what, refused.mend or usual)
