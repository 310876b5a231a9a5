"""Paging: a long list in pages, each of which tells where the next begins.

A token is opaque: what it holds may change between versions, and only the one that gave it reads
it.
"""

import base64
import binascii
import json
from typing import Annotated, Final

from fastapi import Query

from api.media import well_formed
from service.control import NotPossible

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
