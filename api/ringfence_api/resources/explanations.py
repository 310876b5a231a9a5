"""`/v1/records:explain`: what was decided about a record or an id, why, and what followed.

The answer joins the dead letters, the remembered ids, the redrives and the inputs, so that every
client says the same. One request searches as many dead letters as one page does; its page token
continues the search.
"""

from collections.abc import AsyncIterator
from typing import Annotated, Final, NamedTuple

from fastapi import APIRouter, Query, Request
from pydantic import PlainValidator
from starlette.concurrency import run_in_threadpool

from ringfence_api.openapi import errors
from ringfence_api.parameters import (
    PageToken,
    is_position,
    parse_position,
    position_of,
    sought_id,
    token_of,
)
from ringfence_api.ports import ServiceView, may_read_payload
from ringfence_api.problems import (
    NO_RECORD,
    NOT_POSSIBLE,
    UNAVAILABLE,
    ProblemError,
    ProblemExtras,
)
from ringfence_api.resources.address_directory import AddressDirectoryCache
from ringfence_api.resources.addresses import AddressListing, search_id
from ringfence_api.resources.dead_letter_schemas import DeadLetter, StoredRecord
from ringfence_api.resources.dead_letters import absence_sentence
from ringfence_api.resources.explanation_schemas import Decision, Explanation
from ringfence_api.resources.redrive_sequel import REMEMBERED, Sequel, may_have_newer
from ringfence_api.resources.redrives import Redrive
from ringfence_api.resources.service import known_partitions
from ringfence_api.restored import require_restored
from ringfence_api.schemas import Identifier, Sighting
from ringfence_service.dedup.dead_letter import shown_id
from ringfence_service.queries.addresses import AddressQuery
from ringfence_service.queries.dead_letters import (
    Absence,
    DeadLetterFilter,
    DeadLetterPosition,
    DeadLetterView,
    InputRecord,
    RedriveView,
)
from ringfence_service.queries.errors import NotPossible, Unavailable
from ringfence_service.queries.ids import IdQuery
from ringfence_service.schemas.content import is_same_content

_NEVER_WRITTEN: Final = frozenset({"partition", "end"})
"""Absences of a record that was never in an input, so that it cannot have a dead letter either.

A topic that is not an input now may have been one, and its dead letters are still there.
"""

_SEARCH_PAGES: Final = 10
_ADDRESSES_OF_A_PAGE: Final = 1_000
"""How many addresses are asked for an id that the record's own address does not remember.

Ten thousand take the loops some ten milliseconds.
"""

_SEARCHED_MAX: Final = 2**53
"""More than any topic has, and exact in every client's JSON numbers."""

At = Annotated[
    str | None,
    Query(
        max_length=300,
        description="The position of a dead letter or of an input record, as "
        "topic-partition@offset; instead of `address` and `id`.",
    ),
]
AddressOfId = Annotated[
    str | None, Query(min_length=1, description="The address of the id; with `id`.")
]
IdAtAddress = Annotated[
    bytes | None,
    Query(
        description="The id, as text, `hex:` or `base64:`; an empty value is the empty id. With "
        "`address`."
    ),
    PlainValidator(sought_id, json_schema_input_type=str | None),
]
Searching = Annotated[
    bool,
    Query(
        description="If false, no dead letters are searched: neither those of an input record, nor "
        "a newer one of a redriven record."
    ),
]


class _Search(NamedTuple):
    """How far a search for the newest dead letter of a record came."""

    letter: DeadLetterView | None = None
    searched: int = 0
    token: str | None = None
    """Continues the search; None if it has ended."""


_NO_SEARCH: Final = _Search()


class _Asked(NamedTuple):
    """A question about the record at a position."""

    at: DeadLetterPosition
    token: str
    searches: bool
    with_payload: bool


class _Comparison(NamedTuple):
    """The original of a duplicate, or why it was not read, and whether their values differ."""

    original: InputRecord | None = None
    error: str | None = None
    differs: bool | None = None


def router(view: ServiceView) -> APIRouter:
    """Build the router for `/v1/records:explain`."""
    routes = APIRouter(tags=["dead letters"])
    explainer = _Explainer(view)

    @routes.get("/v1/records:explain", responses=errors(NO_RECORD, NOT_POSSIBLE, UNAVAILABLE))
    async def explain(
        request: Request,
        at: At = None,
        address: AddressOfId = None,
        id: IdAtAddress = None,  # noqa: A002 - the name in the query
        search: Searching = True,  # noqa: FBT002
        page_token: PageToken = "",
    ) -> Explanation:
        """Explain what was decided about a record or an id, why, and what has happened since."""
        if at is not None and address is None and id is None:
            position = DeadLetterPosition(*parse_position(at))
            asked = _Asked(position, page_token, search, may_read_payload(request))
            return await explainer.record(asked)
        if at is None and address is not None and id is not None:
            return await explainer.identifier(IdQuery(address, id))
        raise NotPossible("Name a position with at, or an id with address and id.")

    return routes


class _Explainer:
    """Answers from all that the service knows; every request is independent."""

    def __init__(self, view: ServiceView) -> None:
        assert view.letters is not None  # set in a program that writes dead letters
        assert view.redrives is not None  # likewise
        self._view, self._letters, self._redrives = view, view.letters, view.redrives
        self._directories = AddressDirectoryCache(view.inbox, view.ask_timeout_s)

    async def identifier(self, query: IdQuery) -> Explanation:
        """Explain an id: whether its address remembers it, and since which record."""
        known = await self._identifier(query)
        if known.known:
            of = [_text(each) for each in known.sightings[:1] if each.offset is not None]
            original = f"a duplicate of {of[0]}" if of else "a duplicate; the id was imported"
            sentence = f"{query.address} knows the id: another record with this id is {original}."
            return _explanation("accepted", sentence, id=known)
        if known.why is not None:
            return _explanation("unknown", known.why, id=known)
        answer = await self._view.inbox.ask(AddressQuery(query.address), self._view.ask_timeout_s)
        if answer.complete and not answer.partitions:
            sentence = f"No record of the address {query.address} has been seen."
        elif known.complete:
            sentence = f"{query.address} does not know the id: a record with this id is accepted."
        else:
            sentence = (
                f"{query.address} does not know the id, as far as this instance knows: other "
                "instances own partitions of it and do not answer."
            )
        return _explanation("unknown", sentence, id=known)

    async def record(self, asked: _Asked) -> Explanation:
        """Explain the record at a position of a dead-letter topic or an input.

        Raises ProblemError if no record can be there.
        """
        at = asked.at
        letter = await run_in_threadpool(self._letters.one, at)
        if not isinstance(letter, Absence):
            return await self._refused(asked, letter)
        if letter.why != "topic":
            sentence = absence_sentence("a dead letter", "a dead-letter topic", at, letter)
            raise _absent(letter, sentence + await self._next_letter(at, letter))
        record = await run_in_threadpool(self._letters.record, at)
        if isinstance(record, Absence) and record.why in _NEVER_WRITTEN:
            raise _absent(record, _no_input_record(at, record))
        self._refuse_output(at, record)
        committed = await self._committed(at)
        if committed is not None and at.offset >= committed:
            if isinstance(record, Absence):
                raise _absent(record, _no_input_record(at, record))
            sentence = (
                f"{_text(at)} is not decided yet: {at.topic}-{at.partition} is at offset "
                f"{committed}."
            )
            return _explanation("undecided", sentence, at)
        found = await self._newest_letter(at, asked.token) if asked.searches else _NO_SEARCH
        if found.letter is not None:
            return await self._refused(asked, found.letter, found)
        if isinstance(record, InputRecord):
            return await self._not_refused(asked, record, found, is_decided=committed is not None)
        sentence = f"{_no_input_record(at, record)}{_nothing(asked, found)}"
        if found.token is None:
            raise _absent(record, sentence)
        return _explanation("unknown", sentence, at, search=found)

    async def _refused(
        self, asked: _Asked, letter: DeadLetterView, search: _Search | None = None
    ) -> Explanation:
        """Explain a dead letter; if a search has found it, it is the newest one of its record."""
        known, id_error = await self._known_of(letter)
        jobs, jobs_error = await self._jobs_of(letter)
        source = _source_of(letter)
        is_remembered = known is not None and _text(source) in map(_text, known.sightings)
        newer, search_error = None, None
        if search is None:
            search = _NO_SEARCH
            if asked.searches and not is_remembered and may_have_newer(jobs):
                try:
                    search = await self._newest_letter(source, asked.token, letter.time_ms)
                except Unavailable as refused:
                    search_error = str(refused)
                newer = search.letter
        if newer is not None and newer.position == letter.position:
            newer = None
        followed = Sequel(
            jobs,
            () if newer is None else (await self._jobs_of(newer))[0],
            None if newer is None else _text(newer.position),
            search.searched if search.token is not None else None,
            jobs_error or search_error,
            # Without an answer about the id, a redrive that is no longer listed may have accepted
            # the record; an earlier dead letter of the record may have been redriven too.
            is_certain=id_error is None
            and (known is None or known.complete)
            and not letter.redrives
            and letter.reason is not None,
        )
        comparison = _Comparison()
        if letter.original is not None:
            comparison = _Comparison(error="That needs the role payload:read.")
            if asked.with_payload:
                comparison = await run_in_threadpool(self._compared, letter)
        cause = letter.cause or letter.reason
        return Explanation(
            position=_text(asked.at),
            decision="unknown" if letter.reason is None else "refused",
            sentence=f"{_text(letter.position)} is a foreign record: another program wrote it."
            if letter.reason is None
            else f"{_text(source)} was not accepted: {cause}.",
            dead_letter=DeadLetter.of(letter, with_payload=asked.with_payload),
            original=None if comparison.original is None else StoredRecord.of(comparison.original),
            original_error=comparison.error,
            content_differs=comparison.differs,
            id=known,
            id_error=id_error,
            accepted_since=is_remembered or followed.is_accepted,
            since=REMEMBERED if is_remembered else followed.sentence,
            redrives=tuple(Redrive.of(job, with_payload=asked.with_payload) for job in jobs),
            newer_dead_letter=None if newer is None else DeadLetter.of(newer),
            searched=search.searched,
            next_page_token=search.token,
        )

    async def _not_refused(
        self, asked: _Asked, record: InputRecord, search: _Search, *, is_decided: bool
    ) -> Explanation:
        """Explain an input record without a found dead letter, by its id."""
        at, others, identifier = _text(asked.at), "", record.identifier
        if identifier is None or record.address is None:
            known = f"Its id is not known: {record.id_error}."
            accepted = "It was accepted"
        else:
            # Between the first and the last page of a search only its own address is asked.
            is_end = not asked.token or search.token is None
            pages = _SEARCH_PAGES if is_end else 0
            async for address, sightings in self._holders(record.address, identifier, pages):
                positions = [*map(_text, sightings)]
                if at in positions:
                    found = await self._identifier(IdQuery(address, identifier))
                    sentence = (
                        f"{at} was accepted: it is the original of the id "
                        f"{shown_id(identifier)} at {address}."
                    )
                    ended = search._replace(token=None)
                    return _explanation("accepted", sentence, asked.at, id=found, search=ended)
                others += "".join(f", {each} at {address}" for each in positions)
            others = others and f", but as that of {others.removeprefix(', ')}"
            name = f" {shown_id(identifier)}" if asked.with_payload else ""
            known = f"Its id{name} is not remembered as that of this record{others}."
            accepted = "It was accepted and its id is forgotten"
        decided = "is decided" if is_decided else "may not be decided yet"
        sentence = (
            f"{at} {decided}.{_nothing(asked, search)} {known} {accepted}, or it is a duplicate "
            "that its address drops or marks, or its group is not complete."
        )
        return _explanation("unknown", sentence, asked.at, search=search)

    async def _newest_letter(
        self, source: DeadLetterPosition, token: str, since_ms: int | None = None
    ) -> _Search:
        """Search one page for the newest dead letter of a record, decided since a time."""
        before, cursor = _search_of(token)
        from_ms = None if since_ms is None else max(0, since_ms)
        wanted = DeadLetterFilter(source=(*source,), from_ms=from_ms)
        page = await run_in_threadpool(self._letters.page, wanted, cursor, 1, newest=True)
        searched = before + page.scanned
        if page.letters:
            return _Search(page.letters[0], searched)
        return _Search(
            None, searched, None if page.cursor is None else token_of([searched, page.cursor])
        )

    async def _next_letter(self, at: DeadLetterPosition, absence: Absence) -> str:
        """Return a sentence that names the next dead letter of the partition, if there is one."""
        if absence.why not in {"deleted", "gap"}:
            return ""
        try:
            page = await run_in_threadpool(
                self._letters.page, DeadLetterFilter(), None, 1, newest=False, after=at
            )
        except Unavailable:
            return ""
        names = [_text(each.position) for each in page.letters]
        return f" The next dead letter of the partition is {names[0]}." if names else ""

    async def _committed(self, at: DeadLetterPosition) -> int | None:
        """Return the committed offset of a partition; None while not all instances answer."""
        known = await known_partitions(self._view)
        for each in known.partitions if known.complete else ():
            if each.source == at[:2]:
                return each.committed_offset
        return None

    def _refuse_output(self, at: DeadLetterPosition, record: InputRecord | Absence) -> None:
        """Raise ProblemError for a position in an output of a route, which has no dead letters."""
        settings = self._view.settings
        if isinstance(record, InputRecord) or record.why != "topic" or settings is None:
            return
        try:
            routes = settings.read().effective.config.routes
        except Unavailable:
            return
        names = [
            route.name
            for route in routes
            if at.topic in {route.output.replace("{topic}", name) for name in route.inputs}
        ]
        if names:
            sentence = f"{at.topic} is an output of {', '.join(names)}."
            raise _absent(record, f"{_text(at)} is not a dead letter: {sentence}")

    async def _known_of(self, letter: DeadLetterView) -> tuple[Identifier | None, str | None]:
        """Return what the address knows of the id of a dead letter; else None, and why."""
        if not letter.address or letter.identifier is None:
            return None, None
        try:
            query = IdQuery(letter.address, sought_id(letter.identifier))
            return await self._identifier(query), None
        except (Unavailable, ValueError) as refused:
            return None, str(refused)

    async def _jobs_of(self, letter: DeadLetterView) -> tuple[tuple[RedriveView, ...], str | None]:
        """Return the redrives that have sent a dead letter; else none, and why not."""
        if letter.source is None:
            return (), None
        try:
            return await run_in_threadpool(self._redrives.all, letter), None
        except Unavailable as refused:
            return (), str(refused)

    def _compared(self, letter: DeadLetterView) -> _Comparison:
        """Read the original of a dead letter, and compare a duplicate with it. Blocks."""
        assert letter.original is not None  # checked by the caller
        if not is_position(letter.original):
            return _Comparison(error="Its position is not known.")
        at = DeadLetterPosition(*parse_position(letter.original))
        try:
            found = self._letters.record(at)
        except Unavailable as refused:
            return _Comparison(error=str(refused))
        if isinstance(found, Absence):
            return _Comparison(error=_no_input_record(at, found))
        if letter.reason != "duplicate":
            return _Comparison(found)
        return _Comparison(found, differs=not is_same_content(letter.value, found.value))

    async def _identifier(self, query: IdQuery) -> Identifier:
        require_restored(self._view.board.read())
        answer = await self._view.inbox.ask(query, self._view.ask_timeout_s)
        return Identifier.of(query, answer)

    async def _holders(
        self, own: str, identifier: bytes, pages: int
    ) -> AsyncIterator[tuple[str, tuple[Sighting, ...]]]:
        """Yield the addresses that remember an id: that of the record, then those of some pages."""
        yield own, (await self._identifier(IdQuery(own, identifier))).sightings
        token = ""
        for _ in range(pages):
            listing = AddressListing("", "name", _ADDRESSES_OF_A_PAGE, token)
            found = await search_id(self._view, self._directories, identifier, listing)
            for each in found.addresses:
                if each.address != own:
                    yield each.address, each.sightings
            if found.next_page_token is None:
                return
            token = found.next_page_token


def _explanation(
    decision: Decision,
    sentence: str,
    at: DeadLetterPosition | None = None,
    *,
    id: Identifier | None = None,  # noqa: A002 - the name in the document
    search: _Search = _NO_SEARCH,
) -> Explanation:
    """Return the explanation of a record without a dead letter, or of an id."""
    return Explanation(
        position=None if at is None else _text(at),
        decision=decision,
        sentence=sentence,
        dead_letter=None,
        original=None,
        original_error=None,
        content_differs=None,
        id=id,
        id_error=None,
        accepted_since=None,
        since=None,
        redrives=(),
        newer_dead_letter=None,
        searched=search.searched,
        next_page_token=search.token,
    )


def _nothing(asked: _Asked, search: _Search) -> str:
    """Return the sentence about a search that found no dead letter."""
    if not asked.searches:
        return ""
    if not search.searched:
        return " There are no dead letters to search."
    return f" None of the {search.searched:,} newest dead letters is of this record."


def _source_of(letter: DeadLetterView) -> DeadLetterPosition:
    """Return the position of the record of a dead letter; that of a foreign record is its own."""
    if letter.source is None:
        return letter.position
    return DeadLetterPosition(letter.source.topic, letter.source.partition, letter.source.offset)


def _no_input_record(at: DeadLetterPosition, absence: Absence) -> str:
    if absence.why == "topic":
        return f"{at.topic} is neither a dead-letter topic nor an input of this group."
    return absence_sentence("a record of an input", "an input", at, absence)


def _absent(absence: Absence, sentence: str) -> ProblemError:
    return ProblemError(NO_RECORD, sentence, extras=ProblemExtras(absence=absence.why))


def _text(record: DeadLetterPosition | Sighting) -> str:
    """Return the position of a record; an imported id has a partition only."""
    partition = f"{record.topic}-{record.partition}"
    return partition if record.offset is None else f"{partition}@{record.offset}"


def _search_of(token: str) -> tuple[int, object | None]:
    """Return how many dead letters were searched already, and the cursor of the search."""
    match position_of(token):
        case None:
            return 0, None
        case [int(searched), cursor] if 0 <= searched < _SEARCHED_MAX:
            return int(searched), cursor
        case _:
            raise NotPossible("The page token is not one that an explanation returned.")
