"""JSON: reads documents whose numbers stay text as written, and finds members by pointers.

A document costs time and memory in proportion to its length: no number is converted, and the depth
is known before the parser, which recurses, begins.
"""

import json
import re
from codecs import BOM_UTF8
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from itertools import accumulate, islice
from typing import Final, NoReturn

from ringfence_service.schemas.errors import UndecodableError
from ringfence_service.schemas.limits import DEPTH_MAX

_INDEX: Final = re.compile(r"0|[1-9][0-9]{0,8}")
_NO_BRACKETS: Final = bytes(set(range(256)) - set(b"[]{}"))
_LEVELS: Final = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}


class JsonDecoder:
    """Decodes JSON. It needs nothing from the schema."""

    def document(self, body: bytes) -> object:
        """Return the document; UndecodableError if the body is not JSON."""
        try:
            return parsed(body)
        except UndecodableError as error:
            raise UndecodableError(f"it {error}") from None

    def member(self, document: object, tokens: Sequence[str]) -> object:
        """Return what the tokens of a JSON pointer name, or None."""
        return member_of(document, tokens)


def parsed(document: bytes, decoder: json.JSONDecoder | None = None) -> object:
    """Return JSON with numbers as text; UndecodableError, which continues "the value ...".

    `decoder` is one of `decoder_of_numbers`, for another kind of text.
    """
    if is_too_deep(document):
        raise UndecodableError(f"is JSON that is nested deeper than {DEPTH_MAX} levels")
    try:
        return (decoder or _DECODER).decode(document.decode())
    except UnicodeDecodeError:
        raise UndecodableError("is not JSON: it is not UTF-8 text") from None
    except json.JSONDecodeError as error:
        if document.startswith(BOM_UTF8):
            raise UndecodableError("is not JSON: it begins with a byte order mark") from None
        raise UndecodableError(f"is not JSON from character {error.pos} on") from None


def is_too_deep(document: bytes) -> bool:
    """Return whether JSON has more levels than `DEPTH_MAX`, up to where it ceases to be JSON."""
    if document.count(b"[") + document.count(b"{") <= DEPTH_MAX:
        return False
    without_escapes = document.replace(rb"\\", b"").replace(rb"\"", b"")
    outside_of_text = b"".join(without_escapes.split(b'"')[::2])
    brackets = outside_of_text.translate(None, _NO_BRACKETS)
    return max(accumulate(map(_LEVELS.__getitem__, brackets)), default=0) > DEPTH_MAX


def _refuse_constant(name: str) -> NoReturn:
    """Refuse NaN and Infinity, which Python's parser takes, and its `json.dumps` writes."""
    raise UndecodableError(f"is not JSON: it has {name}, which is no number there")


def decoder_of_numbers(kind: Callable[[str], object]) -> json.JSONDecoder:
    """Return a decoder that converts the literal of each number with `kind`."""
    return json.JSONDecoder(parse_int=kind, parse_float=kind, parse_constant=_refuse_constant)


_DECODER: Final = decoder_of_numbers(str)


@lru_cache
def tokens_of(pointer: str) -> tuple[str, ...]:
    """Return the names and indexes of a JSON pointer (RFC 6901)."""
    return tuple(token.replace("~1", "/").replace("~0", "~") for token in pointer.split("/")[1:])


def pointer_of(tokens: Iterable[str]) -> str:
    """Return the JSON pointer of names and indexes."""
    return "".join(f"/{_escaped(token)}" for token in tokens)


def member_of(document: object, tokens: Sequence[str]) -> object:
    """Return what the tokens of a JSON pointer name in dicts and lists, or None."""
    found = document
    for token in tokens:
        if isinstance(found, dict):
            found = found.get(token)
        elif isinstance(found, list):
            found = item_of(found, token)
        else:
            return None
    return found


def siblings(document: object, tokens: Sequence[str]) -> list[str]:
    """Return the pointers of what stands beside the first token of a pointer that names nothing.

    If the pointer names an object or an array, these are the pointers of its members.
    """
    at, found = "", document
    for token in tokens:
        inner = member_of(found, [token])
        if inner is None:
            break
        at, found = f"{at}/{_escaped(token)}", inner
    if isinstance(found, list):
        return [f"{at}/{index}" for index in range(len(found))]
    return [f"{at}/{_escaped(name)}" for name in found] if isinstance(found, dict) else []


def _escaped(token: str) -> str:
    return token.replace("~", "~0").replace("/", "~1")


def item_of(items: Sequence[object], token: str) -> object:
    """Return the item at an index, or None."""
    index = index_of(token)
    return None if index is None else next(islice(items, index, None), None)


def index_of(token: str) -> int | None:
    """Return the index that a token of a pointer is, or None."""
    return int(token) if _INDEX.fullmatch(token) else None
