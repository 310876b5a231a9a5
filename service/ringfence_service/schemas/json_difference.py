"""JSON difference: which members of two documents differ.

Documents are compared as `canonical` compares them: neither white space, nor the order of members,
nor how a number is written makes a difference. Time grows with the length of the documents, and
what is returned has a limit. Pure.
"""

from collections.abc import Iterator
from itertools import islice
from typing import Final, NamedTuple

from ringfence_service.schemas.canonical_json import number_form
from ringfence_service.schemas.errors import UndecodableError
from ringfence_service.schemas.json_text import decoder_of_numbers, parsed

Tokens = tuple[str, ...]
"""The tokens of a JSON pointer; none for the whole document."""

MEMBERS_MAX: Final = 20
"""Members that are named. Of arrays of which one has an item more, all later items differ."""
_POINTER_CHARS_MAX: Final = 200
"""Characters of a pointer. What is deeper is named by the member that contains it."""


class Difference(NamedTuple):
    """The members that differ, in the order of the first document; none if the content is equal."""

    members: tuple[Tokens, ...]
    is_all: bool
    """Whether no other member differs."""


class _NumberForm(NamedTuple):
    """A number, as distinct from a text."""

    form: str


_DECODER: Final = decoder_of_numbers(lambda literal: _NumberForm(number_form(literal)))


def difference(one: bytes, other: bytes) -> Difference | None:
    """Return which members of two documents differ; None unless both are JSON."""
    try:
        documents = parsed(one, _DECODER), parsed(other, _DECODER)
    except UndecodableError:
        return None
    members = tuple(islice(_differing(*documents, (), _POINTER_CHARS_MAX), MEMBERS_MAX + 1))
    return Difference(members[:MEMBERS_MAX], is_all=len(members) <= MEMBERS_MAX)


def _differing(one: object, other: object, at: Tokens, room: int) -> Iterator[Tokens]:
    """Yield the members that differ; a pointer may become longer by `room` characters."""
    left, right = _members(one), _members(other)
    if (
        left is None
        or right is None
        or type(one) is not type(other)
        or max(map(len, (*left, *right)), default=0) >= room
    ):
        if one != other:
            yield at
        return
    for name in dict.fromkeys((*left, *right)):
        if name in left and name in right:
            yield from _differing(left[name], right[name], (*at, name), room - len(name) - 1)
        else:
            yield (*at, name)


def _members(value: object) -> dict[str, object] | None:
    """Return the members of an object or an array by name or index; None for another value."""
    if isinstance(value, list):
        return {str(index): item for index, item in enumerate(value)}
    return value if isinstance(value, dict) else None
