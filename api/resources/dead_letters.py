"""`/v1/dead-letters…`: dead letters, browsed, shown and counted.

They are read from the group's dead-letter topics; each request does a bounded amount of work and
reports how far it got. Reading blocks, so it runs in the thread pool.
"""

from typing import Annotated

from fastapi import APIRouter, Depends, Path, Query, Request
from pydantic import AwareDatetime
from starlette.concurrency import run_in_threadpool

from api.openapi import errors
from api.parameters import PageSize, PageToken, parse_id, place_of, token_of
from api.ports import ServiceView, may_read_payload
from api.problems import (
    FORBIDDEN,
    NO_DEAD_LETTER,
    NOT_POSSIBLE,
    UNAVAILABLE,
    ProblemError,
)
from api.resources.dead_letter_schemas import DeadLetter, DeadLetters, DeadLetterSummary
from api.schemas import ms_of
from service.dedup.dead_letter import DeadLetterFilter, DeadLetterPosition
from service.queries.errors import NotPossible

_HEADER = "header."
_CHECKED = errors(NOT_POSSIBLE, UNAVAILABLE)
_HEADERS_NOTE = {
    "parameters": [
        {
            "name": "header.NAME",
            "in": "query",
            "description": "The value of an original header NAME; needs the role `payload:read`.",
            "schema": {"type": "string"},
        }
    ]
}
Topics = Annotated[
    list[str] | None, Query(alias="topic", max_length=1_000, description="Any of these.")
]
Reasons = Annotated[
    list[str] | None, Query(alias="reason", max_length=50, description="Any of these.")
]
AddressOf = Annotated[
    str | None, Query(alias="address", max_length=4096, description="Of the address that decided.")
]
From = Annotated[
    AwareDatetime | None, Query(alias="from", description="Of the decision, inclusive.")
]
To = Annotated[AwareDatetime | None, Query(alias="to", description="Of the decision, exclusive.")]
Key = Annotated[
    str | None,
    Query(alias="key", description="As text, `hex:` or `base64:`; needs the role `payload:read`."),
]


async def _wanted(
    request: Request,
    topics: Topics = None,
    address: AddressOf = None,
    reasons: Reasons = None,
    from_: From = None,
    to: To = None,
    key: Key = None,
) -> DeadLetterFilter:
    wanted = DeadLetterFilter(
        topics=tuple(topics or ()),
        address=address,
        reasons=tuple(reasons or ()),
        from_ms=None if from_ is None else ms_of(from_),
        to_ms=None if to is None else ms_of(to),
        headers=tuple(
            (name.removeprefix(_HEADER), _bytes(name, value))
            for name, value in request.query_params.multi_items()
            if name.startswith(_HEADER)
        ),
        key=None if key is None else _bytes("key", key),
    )
    if wanted.looks_into_payload and not may_read_payload(request):
        raise ProblemError(
            FORBIDDEN,
            "To filter by key or header is to learn of them; ask for the role payload:read, or "
            "filter by address, reason, topic and time.",
        )
    return wanted


def _bytes(name: str, text: str) -> bytes:
    try:
        return parse_id(text)
    except ValueError as error:
        raise NotPossible(f"The value of {name} cannot be read: {error}.") from None


Wanted = Annotated[DeadLetterFilter, Depends(_wanted)]


def router(view: ServiceView) -> APIRouter:
    """Return the routes of dead letters."""
    routes = APIRouter(tags=["dead letters"])
    letters = view.letters
    assert letters is not None  # who has dead letters reads them

    @routes.get("/v1/dead-letters", responses=_CHECKED, openapi_extra=_HEADERS_NOTE)
    async def dead_letters(
        wanted: Wanted,
        newest: Annotated[bool, Query(description="From the end backwards.")] = False,  # noqa: FBT002
        page_size: PageSize = 100,
        page_token: PageToken = "",
    ) -> DeadLetters:
        """Return dead letters, without what the records hold.

        The oldest first, or the newest: always so within a partition; over partitions by time,
        as far as one page reaches.
        """
        place = place_of(page_token)
        page = await run_in_threadpool(letters.page, wanted, place, page_size, newest=newest)
        return DeadLetters(
            dead_letters=tuple(map(DeadLetter.of, page.letters)),
            scanned=page.scanned,
            next_page_token=None if page.place is None else token_of(page.place),
            complete=page.place is None,
        )

    @routes.get("/v1/dead-letters:summary", responses=_CHECKED, openapi_extra=_HEADERS_NOTE)
    async def summary(
        wanted: Wanted,
        page_token: PageToken = "",
    ) -> DeadLetterSummary:
        """Count dead letters by reason, address, topic and hour, as far as one request goes."""
        counts = await run_in_threadpool(letters.count, wanted, place_of(page_token))
        token = None if counts.place is None else token_of(counts.place)
        return DeadLetterSummary.of(counts, token)

    @routes.get(
        "/v1/dead-letters/{topic}/{partition}/{offset}",
        responses=errors(NO_DEAD_LETTER, UNAVAILABLE),
    )
    async def dead_letter(
        request: Request,
        topic: Annotated[str, Path(max_length=249, description="The dead-letter topic.")],
        partition: Annotated[int, Path(ge=0, lt=2**31, description="Its partition.")],
        offset: Annotated[int, Path(ge=0, lt=2**63, description="The offset of the letter.")],
    ) -> DeadLetter:
        """Return one dead letter; with the role `payload:read` also what the record holds."""
        letter = await run_in_threadpool(letters.one, DeadLetterPosition(topic, partition, offset))
        if letter is None:
            detail = (
                f"No dead letter is at {topic}-{partition}@{offset}: the topic is no dead-letter "
                "topic of this group, or the record was deleted; see /v1/dead-letters."
            )
            raise ProblemError(NO_DEAD_LETTER, detail)
        return DeadLetter.of(letter, with_payload=may_read_payload(request))

    return routes
