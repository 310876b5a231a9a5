"""Preconditions of changes: optimistic locking with `If-Match` and `If-None-Match`.

A client names the version that it changes, so it cannot overwrite a change that it has not seen.
Every document has a strong ETag. A change of an existing document needs `If-Match`;
`If-None-Match: *` creates one. A dry run is checked in the same way.
"""

import hashlib
import json
from typing import Annotated, Final, NamedTuple

from fastapi import Header, Query, Response

from ringfence_api.problems import EXISTS, MATCH_REQUIRED, STALE, ProblemError

ANY: Final = "*"

IfMatch = Annotated[
    str | None, Header(alias="If-Match", description="The ETag of the document to change, or `*`.")
]
IfNoneMatch = Annotated[
    str | None,
    Header(alias="If-None-Match", description="`*`: only if the document does not exist yet."),
]
DryRun = Annotated[bool, Query(description="Change nothing; return what the change would do.")]


class Preconditions(NamedTuple):
    """The conditional headers of a request that changes a document."""

    if_match: str | None
    if_none_match: str | None = None


def etag_of(document: object) -> str:
    """Return the strong ETag of a JSON value; equal content has the same ETag on every instance."""
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return f'"{hashlib.sha256(text.encode()).hexdigest()[:32]}"'


def set_etag(response: Response, etag: str) -> None:
    """Set the ETag header of a response."""
    response.headers["ETag"] = etag


def check(preconditions: Preconditions, etag: str | None, what: str) -> None:
    """Raise ProblemError unless the preconditions hold; `etag` is None for a missing document."""
    if_match, if_none_match = preconditions
    if if_none_match is not None:
        _check_new(if_none_match, etag, what)
    elif etag is None:
        if if_match is not None:
            raise ProblemError(STALE, f"{what} does not exist; omit If-Match to create it.")
    elif if_match is None:
        sentence = f"{what} exists; send If-Match with its current ETag, {etag}."
        raise ProblemError(MATCH_REQUIRED, sentence, headers={"ETag": etag})
    else:
        check_match(if_match, etag, what)


def check_match(if_match: str | None, etag: str, what: str) -> None:
    """Raise ProblemError if `If-Match` names another version; without the header, accept."""
    if if_match is not None and not names(if_match, etag):
        sentence = f"{what} has changed; read it again: its ETag is now {etag}."
        raise ProblemError(STALE, sentence, headers={"ETag": etag})


def _check_new(if_none_match: str, etag: str | None, what: str) -> None:
    if etag is not None and names(if_none_match, etag):
        sentence = f"{what} exists; send If-Match with its ETag to change it."
        raise ProblemError(EXISTS, sentence, headers={"ETag": etag})


def names(header: str, etag: str) -> bool:
    """Return whether a header with a list of ETags matches; weak ETags never match."""
    named = [each.strip() for each in header.split(",")]
    return ANY in named or etag in named
