"""Content: whether two values say the same, as far as duplicates and their originals are compared.

Bytes that are equal are the same content, and so are two JSON documents with equal canonical texts:
a publisher that serialises a message again may order its members differently.
"""

from collections.abc import Sequence

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
