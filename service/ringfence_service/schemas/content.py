"""Content: whether two values say the same, as far as duplicates and their originals are compared.

Bytes that are equal are the same content, and so are two JSON documents with equal canonical texts:
a publisher that serialises a message again may order its members differently.
"""

import base64
from collections.abc import Mapping, Sequence
from typing import Any

from ringfence_service.schemas.canonical_json import canonical
from ringfence_service.schemas.errors import UndecodableError

Paths = Sequence[Sequence[str]]
"""Members of a document, each by the tokens of its JSON pointer."""


def is_same_content(one: bytes | None, other: bytes | None, without: Paths = ()) -> bool:
    """Return whether two values of records have the same content; None is a tombstone.

    The members `without` do not count.
    """
    if one is None or other is None:
        return one is other
    if one == other:
        return True
    try:
        return canonical(one, (), without) == canonical(other, (), without)
    except UndecodableError:
        return False


def is_same_document(one: Mapping[str, Any] | None, other: Mapping[str, Any] | None) -> bool | None:
    """Return the same for two values as the API returns them; None if one is not whole."""
    if any(each is not None and each["truncated"] for each in (one, other)):
        return None
    return is_same_content(_bytes_of(one), _bytes_of(other))


def _bytes_of(content: Mapping[str, Any] | None) -> bytes | None:
    if content is None:
        return None
    text: str | None = content["text"]
    return base64.b64decode(content["base64"]) if text is None else text.encode()
