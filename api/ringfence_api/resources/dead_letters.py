"""`/v1/dead-letters…`: lists, returns and counts dead letters; `/v1/records…`: their originals.

They are read from the group's dead-letter topics and inputs. Each request does a bounded amount of
work and reports how far it got. Reading blocks, so it runs in the thread pool.
"""

from typing import Annotated

from fastapi import APIRouter, Depends, Path, Query, Request
from pydantic import AwareDatetime
from starlette.concurrency import run_in_threadpool

from ringfence_api.openapi import errors
from ringfence_api.parameters import (
    PageSize,
    PageToken,
    parse_id,
    parse_position,
    position_of,
    token_of,
)
from ringfence_api.ports import ServiceView, may_read_payload
from ringfence_api.principal import EXTRA
from ringfence_api.problems import (
    FORBIDDEN,
    NO_DEAD_LETTER,
    NO_RECORD,
    NOT_POSSIBLE,
    UNAVAILABLE,
    ProblemError,
    ProblemExtras,
)
from ringfence_api.resources.dead_letter_schemas import (
    DeadLetter,
    DeadLetters,
    DeadLetterSummary,
    StoredRecord,
)
from ringfence_api.schemas import ms_of
from ringfence_service.config.tokens import PAYLOAD_READ
from ringfence_service.dedup.dead_letter import shown_id, stored_id_of
from ringfence_service.queries.dead_letters import Absence, DeadLetterFilter, DeadLetterPosition
from ringfence_service.queries.errors import NotPossible

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
    list[str] | None, Query(alias="topic", max_length=1_000, description="Any of these topics.")
]
Reasons = Annotated[
    list[str] | None, Query(alias="reason", max_length=50, description="Any of these reasons.")
]
AddressOf = Annotated[
    str | None, Query(alias="address", max_length=4096, description="The address that decided.")
]
From = Annotated[
    AwareDatetime | None, Query(alias="from", description="Earliest time of the decision.")
]
To = Annotated[
    AwareDatetime | None,
    Query(alias="to", description="End of the time range of the decision, exclusive."),
]
Key = Annotated[
    str | None,
    Query(
        alias="key",
        description="The key, as text, `hex:` or `base64:`; needs the role `payload:read`.",
    ),
]
Source = Annotated[
    str | None,
    Query(
        alias="source",
        max_length=300,
        description="The position of the record in its input, as topic-partition@offset.",
    ),
]
After = Annotated[
    str | None,
    Query(
        max_length=300,
        description="The position of a dead letter, as topic-partition@offset: list only those that"
        " follow it in its partition, in the requested order.",
    ),
]
IdOf = Annotated[str | None, Query(alias="id", description="The id, as text, `hex:` or `base64:`.")]


async def _criteria(
    request: Request,
    topics: Topics = None,
    address: AddressOf = None,
    reasons: Reasons = None,
    from_: From = None,
    to: To = None,
    key: Key = None,
    source: Source = None,
    identifier: IdOf = None,
) -> DeadLetterFilter:
    criteria = DeadLetterFilter(
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
        source=None if source is None else parse_position(source),
        identifier=None if identifier is None else _shown(identifier),
    )
    if criteria.looks_into_payload and not may_read_payload(request):
        raise ProblemError(
            FORBIDDEN,
            "A filter by key or header reveals payload; it needs the role payload:read. Filter "
            "by address, reason, topic or time instead.",
        )
    return criteria


def _shown(identifier: str) -> str:
    """Return an id in the form of the envelope; a cut one already is."""
    is_cut = stored_id_of(identifier) is not None
    return identifier if is_cut else shown_id(_bytes("id", identifier))


def _bytes(name: str, text: str) -> bytes:
    try:
        return parse_id(text)
    except ValueError as error:
        raise NotPossible(f"The value of {name} cannot be read: {error}.") from None


Criteria = Annotated[DeadLetterFilter, Depends(_criteria)]


def router(view: ServiceView) -> APIRouter:
    """Build the router for `/v1/dead-letters`."""
    routes = APIRouter(tags=["dead letters"])
    letters = view.letters
    assert letters is not None  # set in a program that writes dead letters

    @routes.get("/v1/dead-letters", responses=_CHECKED, openapi_extra=_HEADERS_NOTE)
    async def dead_letters(
        criteria: Criteria,
        newest: Annotated[bool, Query(description="List the newest first.")] = False,  # noqa: FBT002
        after: After = None,
        page_size: PageSize = 100,
        page_token: PageToken = "",
    ) -> DeadLetters:
        """List dead letters, without the content of the records.

        The oldest or the newest come first: strictly within a partition; across partitions, each
        page is sorted by time.
        """
        cursor = position_of(page_token)
        beyond = None if after is None else DeadLetterPosition(*parse_position(after))
        page = await run_in_threadpool(
            letters.page, criteria, cursor, page_size, newest=newest, after=beyond
        )
        return DeadLetters(
            dead_letters=tuple(map(DeadLetter.of, page.letters)),
            scanned=page.scanned,
            next_page_token=None if page.cursor is None else token_of(page.cursor),
            complete=page.cursor is None,
        )

    @routes.get("/v1/dead-letters:summary", responses=_CHECKED, openapi_extra=_HEADERS_NOTE)
    async def summary(
        criteria: Criteria,
        page_token: PageToken = "",
    ) -> DeadLetterSummary:
        """Count dead letters by reason, address, topic and hour, in bounded steps."""
        counts = await run_in_threadpool(letters.count, criteria, position_of(page_token))
        token = None if counts.cursor is None else token_of(counts.cursor)
        return DeadLetterSummary.of(counts, token)

    @routes.get(
        "/v1/dead-letters/{topic}/{partition}/{offset}",
        responses=errors(NO_DEAD_LETTER, UNAVAILABLE),
    )
    async def dead_letter(
        request: Request,
        topic: Annotated[str, Path(max_length=249, description="The dead-letter topic.")],
        partition: Annotated[int, Path(ge=0, lt=2**31, description="The number of the partition.")],
        offset: Annotated[int, Path(ge=0, lt=2**63, description="The offset of the dead letter.")],
    ) -> DeadLetter:
        """Return one dead letter; with the role `payload:read`, also the content of the record."""
        letter = await run_in_threadpool(letters.one, DeadLetterPosition(topic, partition, offset))
        if isinstance(letter, Absence):
            position = DeadLetterPosition(topic, partition, offset)
            raise ProblemError(
                NO_DEAD_LETTER,
                absence_sentence("a dead letter", "a dead-letter topic", position, letter),
                extras=ProblemExtras(absence=letter.why),
            )
        return DeadLetter.of(letter, with_payload=may_read_payload(request))

    @routes.get(
        "/v1/records/{topic}/{partition}/{offset}",
        responses=errors(NO_RECORD, UNAVAILABLE),
        openapi_extra={EXTRA: PAYLOAD_READ},
    )
    async def record(
        topic: Annotated[str, Path(max_length=249, description="An input of a route.")],
        partition: Annotated[int, Path(ge=0, lt=2**31, description="The number of the partition.")],
        offset: Annotated[int, Path(ge=0, lt=2**63, description="The offset of the record.")],
    ) -> StoredRecord:
        """Return a record of an input, such as the original of a duplicate."""
        found = await run_in_threadpool(
            letters.record, DeadLetterPosition(topic, partition, offset)
        )
        if isinstance(found, Absence):
            position = DeadLetterPosition(topic, partition, offset)
            raise ProblemError(
                NO_RECORD,
                absence_sentence("a record of an input", "an input", position, found),
                extras=ProblemExtras(absence=found.why),
            )
        return StoredRecord.of(found)

    return routes


def absence_sentence(
    thing: str, topics: str, position: DeadLetterPosition, absence: Absence
) -> str:
    """Return the sentence that says why there is no such thing at a position."""
    topic, number, offset = position
    partition = f"{topic}-{number}"
    at = f"{partition}@{offset}"
    return {
        "topic": f"{at} is not {thing}: {topic} is not {topics} of this group.",
        "partition": f"{at} is not {thing}: {topic} has no partition {number}.",
        "deleted": f"{at} was deleted: {partition} begins at offset {absence.start} now.",
        "end": f"No record is at {at} yet: {partition} ends at offset {absence.end}.",
        "gap": f"No record is at {at}: Kafka marks the end of a transaction there, the transaction "
        "was aborted, or compaction removed the record.",
        "open": f"It is not known yet whether a record is at {at}: a transaction is open there, or "
        "the broker did not answer in time; ask again.",
    }[absence.why]
