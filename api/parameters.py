"""Parameters: addresses and ids as a request writes them.

An id is bytes. Text stands for its UTF-8, `hex:` and `base64:` for any bytes; so a text id that
begins with one of these prefixes is itself written in hex. The inverse is `headers.id_text`.
In a path they are percent-encoded, and decoded here, after the path was matched.
"""

import base64
import binascii
from typing import Annotated, Final
from urllib.parse import unquote

from fastapi import Path, Query
from pydantic import AfterValidator, PlainValidator

from ringfence.headers import ID_BYTES_MAX

_HEX: Final = "hex:"
_BASE64: Final = "base64:"
_URL_SAFE: Final = str.maketrans("-_", "+/")
_ID_NOTE: Final = "As text, or any bytes as `hex:` or `base64:` (either alphabet)."


def parse_id(text: str) -> bytes:
    """Return the bytes of an id in REST notation."""
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


def _not_empty(address: str) -> str:
    if not address:
        raise ValueError("an address has at least one character")
    return address


AddressInPath = Annotated[
    str,
    Path(description="The address, percent-encoded (`/` as `%2F`)."),
    AfterValidator(unquote),
]
AddressInQuery = Annotated[
    str, Query(description="The address, of any characters."), AfterValidator(_not_empty)
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
