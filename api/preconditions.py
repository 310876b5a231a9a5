"""Preconditions of changes: a client names the version that it changes.

So it cannot overwrite a change that it has not seen. Every document has a strong ETag. A change of
an existing document needs `If-Match`; `If-None-Match: *` creates one. A dry run is checked alike,
and writes nothing.
"""

import hashlib
import json
from typing import Annotated, Final, NamedTuple

from fastapi import Header, Query, Response

from api.problems import EXISTS, MATCH_REQUIRED, STALE, ProblemError

ANY: Final = "*"

IfMatch = Annotated[
    str | None, Header(alias="If-Match", description="The ETag of what is to be changed, or `*`.")
]
IfNoneMatch = Annotated[
    str | None, Header(alias="If-None-Match", description="`*`: only where there is none yet.")
]
DryRun = Annotated[bool, Query(description="Tell what the change would do, and change nothing.")]


class Preconditions(NamedTuple):
    """What a request says of the document that it changes."""

    if_match: str | None
    if_none_match: str | None = None


def etag_of(document: object) -> str:
    """The strong ETag of what JSON can hold: the same for the same content, anywhere."""
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return f'"{hashlib.sha256(text.encode()).hexdigest()[:32]}"'


def tell_etag(response: Response, etag: str) -> None:
    """Put it into the answer."""
    response.headers["ETag"] = etag


def check(preconditions: Preconditions, etag: str | None, what: str) -> None:
    """Refuse a change unless it knows what it changes; without an ETag there is nothing yet."""
    if_match, if_none_match = preconditions
    if if_none_match is not None:
        _check_new(if_none_match, etag, what)
    elif etag is None:
        if if_match is not None:
            raise ProblemError(STALE, f"{what} does not exist; leave If-Match out to make it.")
    elif if_match is None:
        sentence = f"{what} exists; send If-Match with its ETag, which is {etag} now."
        raise ProblemError(MATCH_REQUIRED, sentence, headers={"ETag": etag})
    else:
        check_match(if_match, etag, what)


def check_match(if_match: str | None, etag: str, what: str) -> None:
    """Refuse a change of another version than this one; one that names none is taken."""
    if if_match is not None and not names(if_match, etag):
        sentence = f"{what} is another by now; read it again: its ETag is {etag}."
        raise ProblemError(STALE, sentence, headers={"ETag": etag})


def _check_new(if_none_match: str, etag: str | None, what: str) -> None:
    if etag is not None and names(if_none_match, etag):
        sentence = f"{what} exists; send If-Match with its ETag to change it."
        raise ProblemError(EXISTS, sentence, headers={"ETag": etag})


def names(header: str, etag: str) -> bool:
    """Whether a list of ETags holds this one; a weak one never does."""
    named = [each.strip() for each in header.split(",")]
    return ANY in named or etag in named
