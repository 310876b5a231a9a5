"""JSON: reads documents whose numbers stay text as written, and finds members by pointers."""

import json
import re
from collections.abc import Sequence
from functools import lru_cache
from itertools import islice
from typing import Final, NoReturn

from service.schemas.errors import UndecodableError

_INDEX: Final = re.compile(r"0|[1-9][0-9]{0,8}")


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


def parsed(document: bytes) -> object:
    """Return JSON with numbers as text; UndecodableError, which continues "the value ..."."""
    try:
        return json.loads(
            document.decode(), parse_int=str, parse_float=str, parse_constant=_refuse_constant
        )
    except UnicodeDecodeError:
        raise UndecodableError("is not JSON: it is not UTF-8 text") from None
    except json.JSONDecodeError as error:
        raise UndecodableError(f"is not JSON from character {error.pos} on") from None
    except RecursionError:
        raise UndecodableError("is JSON that is nested too deeply") from None


@lru_cache
def tokens_of(pointer: str) -> tuple[str, ...]:
    """Return the names and indexes of a JSON pointer (RFC 6901)."""
    return tuple(token.replace("~1", "/").replace("~0", "~") for token in pointer.split("/")[1:])


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


def item_of(items: Sequence[object], token: str) -> object:
    """Return the item at an index, or None."""
    if not _INDEX.fullmatch(token):
        return None
    return next(islice(items, int(token), None), None)


def _refuse_constant(_name: str) -> NoReturn:
    raise json.JSONDecodeError("no JSON", "", 0)  # NaN and Infinity, which Python would take
