"""Reading one table of the configuration into a frozen section; every fault becomes a problem.

Reading never stops at a fault: the faulty key falls back to its default, so that whatever comes
after can still be checked and all problems are told at once.
"""

import difflib
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple, TypeVar, cast

from service.errors import Problem
from service.rules import RefusedError, rules_of, shown

S = TypeVar("S")

# What stands in the wrong place may be a secret all the same.
_SECRET: Final = re.compile(r"passw|passphrase|secret|token|credential|jaas|pem")


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
            problems.append(_unknown(given, key, rules))
            continue
        try:
            accepted[key] = rules[key].read(given.value)
        except RefusedError as refused:
            default = getattr(section(), key)
            problems.append(_refusal(given, key, refused, default))
    return accepted


def _unknown(given: Given, key: str, known: Iterable[str]) -> Problem:
    """Tell that a key is not a setting, what is one, and which was perhaps meant."""
    value = '"***"' if _SECRET.search(key) else shown(given.value)
    what = f"{given.name} is not a setting (it is {value}); known are {', '.join(sorted(known))}"
    near = nearest(key, known)
    return Problem(what, f"the nearest is {near}: rename or remove it" if near else "remove it")


def nearest(word: str, known: Iterable[str], cutoff: float = 0.6) -> str | None:
    """Return the known word that looks most like this one."""
    return next(iter(difflib.get_close_matches(word, list(known), n=1, cutoff=cutoff)), None)


def _refusal(given: Given, key: str, refused: RefusedError, default: object) -> Problem:
    what = f"{given.name} is {shown(given.value)}: {refused.why}"
    usual = f"change it, or remove it for the default {shown(default)}"
    if default in ("", ()):
        usual = f"change {key}"
    return Problem(what, refused.mend or usual)
