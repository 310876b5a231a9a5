"""Parameters: addresses and ids as a request writes them.

An id is bytes. Text stands for its UTF-8, `hex:` and `base64:` for any bytes; so a text id that
begins with one of these prefixes has to be written in hex. The inverse is `headers.id_text`. In a
path they are percent-encoded, and decoded here, after the path was matched.
"""

import base64
import binascii
import json
from collections.abc import Awaitable, Callable
from typing import Annotated, Final, NamedTuple
from urllib.parse import unquote

from fastapi import Path, Query
from pydantic import AfterValidator, PlainValidator

from api.content import well_formed
from ringfence.headers import ID_BYTES_MAX, PUBLISHER_BYTES_MAX
from service.queries.errors import NotPossible

_HEX: Final = "hex:"

_BASE64: Final = "base64:"

_URL_SAFE: Final = str.maketrans("-_", "+/")

_ID_NOTE: Final = "As text, or any bytes as `hex:` or `base64:` (either alphabet)."


def parse_id(text: object) -> bytes:
    """Return the bytes of an id in REST notation; ValueError for what is none, text or not."""
    if not isinstance(text, str):
        raise ValueError("an id is text; any bytes are written as hex: or base64:")  # noqa: TRY004 - pydantic's
    identifier = _id_bytes(text)
    if len(identifier) > ID_BYTES_MAX:
        sentence = f"an id has at most {ID_BYTES_MAX} bytes, this one {len(identifier)}"
        raise ValueError(sentence)
    return identifier


def _id_bytes(text: str) -> bytes:
    if text.startswith(_HEX):
        try:
            return binascii.unhexlify(text.removeprefix(_HEX))
        except ValueError:
            raise ValueError("after hex: stand pairs of hexadecimal digits") from None
    if text.startswith(_BASE64):
        digits = text.removeprefix(_BASE64).translate(_URL_SAFE).rstrip("=")
        try:
            return base64.b64decode(digits + "=" * (-len(digits) % 4), validate=True)
        except ValueError:
            raise ValueError("after base64: stand letters, digits, + / or - _, and =") from None
    return text.encode()


def _id_in_path(text: str) -> bytes:
    return parse_id(unquote(text, errors="strict"))


def _one_id(text: str | None) -> bytes | None:
    return None if text is None else parse_id(text)


def _not_empty(address: str) -> str:
    if not address:
        raise ValueError("an address has at least one character")
    return address


def _publisher_in_path(text: str) -> str:
    name = unquote(text, errors="strict")
    if not name or len(name.encode()) > PUBLISHER_BYTES_MAX:
        raise ValueError(f"a name has 1 to {PUBLISHER_BYTES_MAX} bytes as UTF-8")
    return name


AddressInPath = Annotated[
    str,
    Path(description="The address, percent-encoded (`/` as `%2F`)."),
    AfterValidator(unquote),
]

AddressInQuery = Annotated[
    str, Query(description="The address, of any characters."), AfterValidator(_not_empty)
]

OneAddressInQuery = Annotated[
    str | None,
    Query(description="The address, of any characters; without it, all are listed."),
    AfterValidator(lambda address: None if address is None else _not_empty(address)),
]

PublisherInPath = Annotated[
    str,
    Path(description="The name of a publisher, percent-encoded (`/` as `%2F`)."),
    AfterValidator(_publisher_in_path),
]

RouteInPath = Annotated[
    str,
    Path(description="The name of a route, percent-encoded."),
    AfterValidator(unquote),
]

PatternInPath = Annotated[
    str,
    Path(description="A pattern, percent-encoded (`#` as `%23`, `*` as `%2A`, `/` as `%2F`)."),
    AfterValidator(unquote),
]

PatternInQuery = Annotated[
    str, Query(description="The pattern, of any characters."), AfterValidator(_not_empty)
]

OnePatternInQuery = Annotated[
    str | None, Query(description="A pattern; without it, all are listed.")
]

IdInPath = Annotated[
    bytes,
    Path(description=_ID_NOTE + " Percent-encoded (`/` as `%2F`)."),
    PlainValidator(_id_in_path, json_schema_input_type=str),
]

IdInQuery = Annotated[
    bytes,
    Query(description=_ID_NOTE + " Empty is the empty id."),
    PlainValidator(parse_id, json_schema_input_type=str),
]

OneIdInQuery = Annotated[
    bytes | None,
    Query(description=_ID_NOTE + " Empty is the empty id; without it, all are listed."),
    PlainValidator(_one_id, json_schema_input_type=str | None),
]


class AddressingMode(NamedTuple):
    """How a request names a resource: in the path, or by query, whatever a proxy makes of paths."""

    name: str
    step: str
    """What stands for it in the path."""
    read: Callable[..., Awaitable[str]]


async def _address_by_path(address: AddressInPath) -> str:
    return address


async def _address_by_query(name: AddressInQuery) -> str:
    return name


async def _address_of_ids(address: AddressInQuery) -> str:
    return address


async def _pattern_by_path(pattern: PatternInPath) -> str:
    return pattern


async def _pattern_by_query(name: PatternInQuery) -> str:
    return name


ADDRESS_WAYS: Final = (
    AddressingMode("path", "/{address}", _address_by_path),
    AddressingMode("query", "", _address_by_query),
)

ID_WAYS: Final = (
    AddressingMode("path", "/addresses/{address}/ids", _address_by_path),
    AddressingMode("query", "/ids", _address_of_ids),
)
"""Of the ids of an address; there, `name` is that of an id."""

PATTERN_WAYS: Final = (
    AddressingMode("path", "/{pattern}", _pattern_by_path),
    AddressingMode("query", "", _pattern_by_query),
)

PageSize = Annotated[int, Query(ge=1, le=1_000, description="How many at most.")]

PageToken = Annotated[
    str, Query(max_length=20_000, description="`next_page_token` of the page before.")
]

_NOT_GIVEN: Final = "The page token is none that a page has given."


def token_of(place: object) -> str:
    """A place in a list, which JSON can hold, as a token."""
    return base64.urlsafe_b64encode(json.dumps(place).encode()).decode().rstrip("=")


def place_of(token: str) -> object:
    """The place of a token, None of an empty one; NotPossible for one that no page has given."""
    if not token:
        return None
    try:
        told: object = json.loads(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
        well_formed(told)
    except (ValueError, RecursionError, binascii.Error):
        raise NotPossible(_NOT_GIVEN) from None
    return told


def name_of(token: str) -> str | None:
    """The same, of a list in the order of names."""
    place = place_of(token)
    if place is not None and not isinstance(place, str):
        raise NotPossible(_NOT_GIVEN)
    return place
