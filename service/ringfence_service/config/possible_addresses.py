"""Possible addresses: which addresses the templates of routes can yield, and where they are spread.

Pure: texts in, texts out. A field of a record stands for any text.
"""

from collections.abc import Iterable, Iterator
from functools import cache
from typing import NamedTuple, Protocol

from ringfence_service.config.expressions import EXPRESSION_MARKER
from ringfence_service.config.templates import PLACEHOLDER, unmarked

Pattern = tuple[str | None, ...]
"""A text as characters, with None as a wildcard for any text."""


class AddressedRoute(Protocol):
    """The settings of a route on which its addresses depend."""

    @property
    def inputs(self) -> tuple[str, ...]:
        """Topic names, or a regular expression."""
        ...

    @property
    def address(self) -> str:
        """The template of its addresses."""
        ...

    @property
    def scope(self) -> str:
        """Where an id counts."""
        ...


def possible_addresses(route: AddressedRoute) -> Iterator[Pattern]:
    """Yield the addresses of a route as patterns; None replaces what depends on a record."""
    for name in route.inputs:
        topic = "{key}" if name.startswith(EXPRESSION_MARKER) else name
        parts = PLACEHOLDER.split(unmarked(route.address).replace("{topic}", topic))
        yield tuple(c for i, part in enumerate(parts) for c in ([None] if i % 2 else part))


def may_meet(one: Pattern, other: Pattern) -> bool:
    """Whether some text matches both patterns, in which None matches any text."""

    @cache
    def meets(i: int, j: int) -> bool:
        if i == len(one) or j == len(other):
            return not any((*one[i:], *other[j:]))
        if one[i] is None:
            return meets(i + 1, j) or meets(i, j + 1)
        if other[j] is None:
            return meets(i, j + 1) or meets(i + 1, j)
        return one[i] == other[j] and meets(i + 1, j + 1)

    return meets(0, 0)


class Shares(NamedTuple):
    """The addresses that several partitions decide together, each with its share of the ids."""

    texts: tuple[tuple[str, ...], ...]
    """Of each of them the texts between its wildcards."""
    partitions: int
    """How many partitions decide each of them."""

    @classmethod
    def of(cls, routes: Iterable[AddressedRoute], partitions: int) -> "Shares":
        """Return those of the routes with scope `id`."""
        spread = (route for route in routes if route.scope == "id")
        patterns = (each for route in spread for each in possible_addresses(route))
        return cls(tuple(map(_between_wildcards, patterns)), partitions)

    def count(self, address: str) -> int:
        """Return how many partitions decide an address together: 1 unless its scope is `id`."""
        return self.partitions if any(_fits(texts, address) for texts in self.texts) else 1


def _between_wildcards(pattern: Pattern) -> tuple[str, ...]:
    texts = [""]
    for character in pattern:
        if character is None:
            texts.append("")
        else:
            texts[-1] += character
    return tuple(texts)


def _fits(texts: tuple[str, ...], address: str) -> bool:
    """Whether an address has the texts in order, the first at its start, the last at its end.

    In linear time for each text: an address is whatever a record says.
    """
    first, *others = texts
    if not others:
        return address == first
    at, end = len(first), len(address) - len(others[-1])
    if at > end or not address.startswith(first) or not address.endswith(others[-1]):
        return False
    for text in others[:-1]:
        found = address.find(text, at, end)
        if found < 0:
            return False
        at = found + len(text)
    return True
