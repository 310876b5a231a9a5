"""Canonical JSON: one text for all documents with equal content.

Members are sorted by name, white space is left out, and numbers have one form, as exact as they are
written. The text is no JSON: it is only compared, and hashed.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from json.encoder import encode_basestring
from typing import Final

from ringfence_service.schemas.errors import UndecodableError
from ringfence_service.schemas.json_text import decoder_of_numbers, index_of, member_of, parsed

_NUMBER: Final = re.compile(r"(-?)([0-9]+)(?:\.([0-9]+))?(?:[eE]([+-]?[0-9]{1,18}))?")


class _Number(str):
    """The literal of a number, as distinct from a text."""

    __slots__ = ()


_DECODER: Final = decoder_of_numbers(_Number)


def canonical(
    document: bytes, tokens: Sequence[str], without: Iterable[Sequence[str]] = ()
) -> bytes | None:
    """Return the canonical text of the member at a JSON pointer, without some of its members.

    Returns None if the document has no such member, or it is null. UndecodableError if the document
    is not JSON, or has text that is not Unicode.
    """
    member = member_of(parsed(document, _DECODER), tokens)
    if member is None:
        return None
    for path in without:
        _remove(member, path)
    written: list[str] = []
    _write(member, written.append)
    try:
        return "".join(written).encode()
    except UnicodeEncodeError:
        raise UndecodableError("is JSON with an unpaired surrogate") from None


def _remove(document: object, path: Sequence[str]) -> None:
    """Remove a member; an item of an array becomes null, so that the others keep their indexes."""
    holder = member_of(document, path[:-1])
    if isinstance(holder, dict):
        holder.pop(path[-1], None)
    elif isinstance(holder, list):
        index = index_of(path[-1])
        if index is not None and index < len(holder):
            holder[index] = None


def _write(value: object, add: Callable[[str], None]) -> None:
    """Write a value; the depth of a document is limited before it is parsed."""
    match value:
        case _Number():
            add(number_form(value))
        case str():
            add(encode_basestring(value))
        case dict():
            for name in sorted(value):
                add(f",{encode_basestring(name)}:")
                _write(value[name], add)
            add("}")
        case list():
            for item in value:
                add(",")
                _write(item, add)
            add("]")
        case _:
            add(str(value))  # True, False or None


def number_form(literal: str) -> str:
    """Return the one form of a number: digits without zeros at either end, and an exponent of ten.

    A literal whose exponent has more than 18 digits stays as it is.
    """
    found = _NUMBER.fullmatch(literal)
    if found is None:
        return literal
    sign, whole, fraction, exponent = found.groups("")
    digits = (whole + fraction).lstrip("0")
    significant = digits.rstrip("0")
    if not significant:
        return "0"
    power = int(exponent or 0) - len(fraction) + len(digits) - len(significant)
    return f"{sign}{significant}e{power}"
