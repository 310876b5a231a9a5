"""Parameters: the notation of addresses, ids and page tokens in requests.

An id is bytes. It is written as text (UTF-8), or as `hex:` or `base64:` for any bytes; so a text id
that begins with one of these prefixes must be written in hex. `headers.id_text` is the inverse.
In a path, parameters are percent-encoded; they are decoded here, after the path was matched.
"""

import base64
import binascii
import json
import re
from collections.abc import Awaitable, Callable
from typing import Annotated, Final, NamedTuple
from urllib.parse import unquote

from fastapi import Path, Query
from pydantic import AfterValidator, PlainValidator

from ringfence_api import base64url
from ringfence_api.content import well_formed
from ringfence_client.headers import ID_BYTES_MAX, PUBLISHER_BYTES_MAX
from ringfence_service.dedup.dead_letter import stored_id_of
from ringfence_service.queries.errors import NotPossible

_HEX: Final = "hex:"

_BASE64: Final = "base64:"

_URL_SAFE: Final = str.maketrans("-_", "+/")

_ID_NOTE: Final = "The id as text, or any bytes as `hex:` or `base64:` (standard or URL-safe)."


def parse_id(text: object) -> bytes:
    """Return the bytes of an id in REST notation. Raise ValueError if malformed or too long."""
    if not isinstance(text, str):
        raise ValueError("an id is a string; write other bytes as hex: or base64:")  # noqa: TRY004 - for pydantic
    identifier = _id_bytes(text)
    if len(identifier) > ID_BYTES_MAX:
        sentence = f"an id has at most {ID_BYTES_MAX} bytes, this one has {len(identifier)}"
        raise ValueError(sentence)
    return identifier


def _id_bytes(text: str) -> bytes:
    if text.startswith(_HEX):
        try:
            return binascii.unhexlify(text.removeprefix(_HEX))
        except ValueError:
            raise ValueError("hex: must be followed by pairs of hexadecimal digits") from None
    if text.startswith(_BASE64):
        digits = text.removeprefix(_BASE64).translate(_URL_SAFE).rstrip("=")
        try:
            return base64.b64decode(digits + "=" * (-len(digits) % 4), validate=True)
        except ValueError:
            raise ValueError(
                "base64: must be followed by letters, digits, +/ or -_, and ="
            ) from None
    return text.encode()


def sought_id(text: object) -> bytes:
    """Return the bytes of an id that is sought, as `parse_id`; a cut one in its stored form."""
    stored = stored_id_of(text) if isinstance(text, str) else None
    return parse_id(text) if stored is None else stored


def _id_in_path(text: str) -> bytes:
    return sought_id(unquote(text, errors="strict"))


def _one_id(text: str | None) -> bytes | None:
    return None if text is None else sought_id(text)


def _not_empty(address: str) -> str:
    if not address:
        raise ValueError("an address has at least one character")
    return address


def _publisher_in_path(text: str) -> str:
    name = unquote(text, errors="strict")
    if not name or len(name.encode()) > PUBLISHER_BYTES_MAX:
        raise ValueError(f"a name has 1 to {PUBLISHER_BYTES_MAX} bytes in UTF-8")
    return name


AddressInPath = Annotated[
    str,
    Path(description="The address, percent-encoded (`/` as `%2F`)."),
    AfterValidator(unquote),
]

AddressInQuery = Annotated[str, Query(description="The address."), AfterValidator(_not_empty)]

OneAddressInQuery = Annotated[
    str | None,
    Query(description="The address; if omitted, all are listed."),
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

PatternInQuery = Annotated[str, Query(description="The pattern."), AfterValidator(_not_empty)]

OnePatternInQuery = Annotated[
    str | None, Query(description="A pattern; if omitted, all are listed.")
]

IdInPath = Annotated[
    bytes,
    Path(description=_ID_NOTE + " Percent-encoded (`/` as `%2F`)."),
    PlainValidator(_id_in_path, json_schema_input_type=str),
]

IdInQuery = Annotated[
    bytes,
    Query(description=_ID_NOTE + " An empty value is the empty id."),
    PlainValidator(sought_id, json_schema_input_type=str),
]

OneIdInQuery = Annotated[
    bytes | None,
    Query(description=_ID_NOTE + " An empty value is the empty id; if omitted, all are listed."),
    PlainValidator(_one_id, json_schema_input_type=str | None),
]


class AddressingMode(NamedTuple):
    """How a request names a resource: in the path, or in the query for proxies that alter paths."""

    name: str
    segment: str
    """The part of the path template that names the resource."""
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


ADDRESS_MODES: Final = (
    AddressingMode("path", "/{address}", _address_by_path),
    AddressingMode("query", "", _address_by_query),
)

ID_MODES: Final = (
    AddressingMode("path", "/addresses/{address}/ids", _address_by_path),
    AddressingMode("query", "/ids", _address_of_ids),
)
"""For the ids of an address, where the query parameter `name` names an id."""

PATTERN_MODES: Final = (
    AddressingMode("path", "/{pattern}", _pattern_by_path),
    AddressingMode("query", "", _pattern_by_query),
)

PageSize = Annotated[int, Query(ge=1, le=1_000, description="Maximum number of items.")]

PageToken = Annotated[
    str, Query(max_length=20_000, description="`next_page_token` of the previous page.")
]

_POSITION: Final = re.compile(
    r"(?P<topic>[a-zA-Z0-9._-]{1,249})-(?P<partition>[0-9]{1,10})@(?P<offset>[0-9]{1,19})"
)


def is_position(text: str) -> bool:
    """Return whether a text is topic-partition@offset."""
    return _POSITION.fullmatch(text) is not None


def parse_position(text: str) -> tuple[str, int, int]:
    """Return topic, partition and offset of topic-partition@offset. Raise NotPossible."""
    found = _POSITION.fullmatch(text)
    if found is None:
        raise NotPossible("The position of a record is topic-partition@offset, as in orders-3@42.")
    return found["topic"], int(found["partition"]), int(found["offset"])


_NOT_A_PAGE: Final = "The page token is not one that a page returned."


def token_of(position: object) -> str:
    """Return a page token for a position in a list; the position is a JSON value."""
    return base64url.encode(json.dumps(position).encode())


def position_of(token: str) -> object:
    """Return the position in a page token; None for an empty token. Raise NotPossible."""
    if not token:
        return None
    try:
        position: object = json.loads(base64url.decode(token))
        well_formed(position)
    except (ValueError, RecursionError):
        raise NotPossible(_NOT_A_PAGE) from None
    return position


def name_of(token: str) -> str | None:
    """Return the name in a page token of a list sorted by name. Raise NotPossible."""
    name = position_of(token)
    if name is not None and not isinstance(name, str):
        raise NotPossible(_NOT_A_PAGE)
    return name
