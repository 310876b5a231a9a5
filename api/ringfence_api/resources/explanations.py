"""`/v1/records:explain`: what was decided about a record or an id, why, and what followed.

The answer joins the dead letters, the remembered ids, the redrives and the inputs, so that every
client says the same. One request searches as many dead letters as one page does; its page token
continues the search.
"""

from collections.abc import AsyncIterator, Sequence
from typing import Annotated, Final, NamedTuple

from fastapi import APIRouter, Query, Request
from starlette.concurrency import run_in_threadpool

from ringfence_api.openapi import errors
from ringfence_api.parameters import (
    OneAddressInQuery,
    OneIdInQuery,
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
from ringfence_api.resources.redrives import Redrive
from ringfence_api.resources.service import known_partitions
from ringfence_api.restored import require_restored
from ringfence_api.schemas import Identifier, Sighting
from ringfence_client.headers import id_text
from ringfence_service.formatting import plural
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

_NEVER_WRITTEN: Final = frozenset({"topic", "partition", "end"})
"""Absences of a record that was never in an input, so that it cannot have a dead letter either."""

_SEARCH_PAGES: Final = 10
_ADDRESSES_OF_A_PAGE: Final = 1_000
"""How many addresses are asked for an id that the record's own address does not remember.

Ten thousand take the loops some ten milliseconds.
"""

_ACCEPTED: Final = "A redrive has accepted it since: it is the accepted record now."

At = Annotated[
    str | None,
    Query(
        max_length=300,
        description="The position of a dead letter or of an input record, as "
        "topic-partition@offset; instead of `address` and `id`.",
    ),
]


class _Search(NamedTuple):
    """How far a search for the newest dead letter of a record came."""

    letter: DeadLetterView | None = None
    searched: int = 0
    token: str | None = None
    """Continues the search; None if it has ended."""


_NO_SEARCH: Final = _Search()


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
        address: OneAddressInQuery = None,
        id: OneIdInQuery = None,  # noqa: A002 - the name in the query
        page_token: PageToken = "",
    ) -> Explanation:
        """Explain what was decided about a record or an id, why, and what has happened since."""
        with_payload = may_read_payload(request)
        if at is not None and address is None and id is None:
            position = DeadLetterPosition(*parse_position(at))
            return await explainer.record(position, page_token, with_payload=with_payload)
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
        if known.sightings:
            first = _text(known.sightings[0])
            sentence = (
                f"{query.address} knows the id: another record with this id is a duplicate of "
                f"{first}."
            )
            return _explanation("accepted", sentence, id=known)
        if known.known:
            sentence = f"{query.address} knows the id: another record with this id is a duplicate."
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

    async def record(
        self, at: DeadLetterPosition, token: str, *, with_payload: bool
    ) -> Explanation:
        """Explain the record at a position of a dead-letter topic or an input.

        Raises ProblemError if no record can be there.
        """
        letter = await run_in_threadpool(self._letters.one, at)
        if not isinstance(letter, Absence):
            return await self._refused(at, letter, token, with_payload=with_payload)
        if letter.why != "topic":
            sentence = absence_sentence("a dead letter", "a dead-letter topic", at, letter)
            raise _absent(letter, sentence + await self._next_letter(at))
        record = await run_in_threadpool(self._letters.record, at)
        if isinstance(record, Absence) and record.why in _NEVER_WRITTEN:
            raise _absent(record, self._never_written(at, record))
        committed = await self._committed(at)
        if committed is not None and at.offset >= committed:
            if isinstance(record, Absence):
                raise _absent(record, _no_input_record(at, record))
            sentence = (
                f"{_text(at)} is not decided yet: {at.topic}-{at.partition} is at offset "
                f"{committed}."
            )
            return _explanation("undecided", sentence, at)
        found = await self._newest_letter(at, token)
        if found.letter is not None:
            return await self._refused(
                at, found.letter, None, with_payload=with_payload, searched=found.searched
            )
        nothing = f"None of the {found.searched:,} newest dead letters is of this record."
        if isinstance(record, InputRecord):
            return await self._not_refused(at, record, found, nothing)
        sentence = f"{_no_input_record(at, record)} {nothing}"
        if found.token is None:
            raise _absent(record, sentence)
        return _explanation("unknown", sentence, at, search=found)

    async def _refused(
        self,
        at: DeadLetterPosition,
        letter: DeadLetterView,
        token: str | None,
        *,
        with_payload: bool,
        searched: int = 0,
    ) -> Explanation:
        """Explain a dead letter. Without a token it is the newest one of its record."""
        known, id_error = await self._known_of(letter)
        jobs, jobs_error = await self._jobs_of(letter)
        source = _source_of(letter)
        is_remembered = known is not None and _text(source) in map(_text, known.sightings)
        accepting = next((job for job in jobs if _accepted_all(job)), None)
        is_accepted = is_remembered or accepting is not None
        search = _NO_SEARCH
        if not is_accepted and token is not None and any(job.progress.refused for job in jobs):
            search = await self._newest_letter(source, token, letter.time_ms)
        newer = search.letter
        if newer is not None and newer.position == letter.position:
            newer = None
        accepted, since = (
            (True, _ACCEPTED)
            if is_remembered
            else _followed(jobs, accepting, newer, search, jobs_error)
        )
        comparison = _Comparison()
        if letter.reason == "duplicate" and letter.original is not None:
            comparison = _Comparison(error="That needs the role payload:read.")
            if with_payload:
                comparison = await run_in_threadpool(self._compared, letter)
        cause = letter.cause or letter.reason
        return Explanation(
            position=_text(at),
            decision="refused",
            sentence=f"{_text(source)} was not accepted: {cause}."
            if letter.reason is not None
            else f"{_text(at)} is a foreign record: another program wrote it.",
            dead_letter=DeadLetter.of(letter, with_payload=with_payload),
            original=None if comparison.original is None else StoredRecord.of(comparison.original),
            original_error=comparison.error,
            content_differs=comparison.differs,
            id=known,
            id_error=id_error,
            accepted_since=accepted if letter.reason is not None else None,
            since=since,
            redrives=tuple(Redrive.of(job, with_payload=with_payload) for job in jobs),
            newer_dead_letter=None if newer is None else DeadLetter.of(newer),
            searched=searched + search.searched,
            next_page_token=search.token,
        )

    async def _not_refused(
        self, at: DeadLetterPosition, record: InputRecord, search: _Search, nothing: str
    ) -> Explanation:
        """Explain a decided record without a found dead letter, by its id."""
        identifier, others = record.identifier, ""
        if identifier is None or record.address is None:
            known = f"Its id is not known: {record.id_error}."
            accepted = "It was accepted"
        else:
            async for address, sightings in self._holders(record.address, identifier):
                positions = [*map(_text, sightings)]
                if _text(at) in positions:
                    found = await self._identifier(IdQuery(address, identifier))
                    original = f"the original of the id {found.id} at {address}"
                    sentence = f"{_text(at)} was accepted: it is {original}."
                    return _explanation(
                        "accepted", sentence, at, id=found, search=search._replace(token=None)
                    )
                others += "".join(f", {each} at {address}" for each in positions)
            others = others and f", but as that of {others.removeprefix(', ')}"
            known = (
                f"Its id {id_text(identifier)} is not remembered as that of this record{others}."
            )
            accepted = "It was accepted and its id is forgotten"
        sentence = (
            f"{_text(at)} is decided. {nothing} {known} {accepted}, or it is a duplicate that its "
            "address drops or marks, or its group is not complete."
        )
        return _explanation("unknown", sentence, at, search=search)

    async def _newest_letter(
        self, source: DeadLetterPosition, token: str, since_ms: int | None = None
    ) -> _Search:
        """Search one page for the newest dead letter of a record, decided since a time."""
        before, cursor = _search_of(token)
        wanted = DeadLetterFilter(source=(*source,), from_ms=since_ms)
        page = await run_in_threadpool(self._letters.page, wanted, cursor, 1, newest=True)
        searched = before + page.scanned
        if page.letters:
            return _Search(page.letters[0], searched)
        return _Search(
            None, searched, None if page.cursor is None else token_of([searched, page.cursor])
        )

    async def _next_letter(self, at: DeadLetterPosition) -> str:
        """Return a sentence that names the next dead letter of the partition, if there is one."""
        page = await run_in_threadpool(
            self._letters.page, DeadLetterFilter(), None, 1, newest=False, after=at
        )
        names = [_text(each.position) for each in page.letters]
        return f" The next dead letter of the partition is {names[0]}." if names else ""

    async def _committed(self, at: DeadLetterPosition) -> int | None:
        """Return the committed offset of a partition; None while not all instances answer."""
        known = await known_partitions(self._view)
        for each in known.partitions if known.complete else ():
            if each.source == at[:2]:
                return each.committed_offset
        return None

    def _never_written(self, at: DeadLetterPosition, absence: Absence) -> str:
        """Return the sentence about a position where no input has had a record."""
        sentence = _no_input_record(at, absence)
        settings = self._view.settings
        if absence.why != "topic" or settings is None:
            return sentence
        try:
            routes = settings.read().effective.config.routes
        except Unavailable:
            return sentence
        names = [
            route.name
            for route in routes
            if at.topic in {route.output.replace("{topic}", name) for name in route.inputs}
        ]
        if not names:
            return sentence
        return f"{_text(at)} is not a dead letter: {at.topic} is an output of {', '.join(names)}."

    async def _known_of(self, letter: DeadLetterView) -> tuple[Identifier | None, str | None]:
        """Return what the address knows of the id of a dead letter; else None, and why."""
        if letter.address is None or letter.identifier is None:
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
        """Compare a duplicate with its original. Blocks."""
        assert letter.original is not None  # of a duplicate
        if not is_position(letter.original):
            return _Comparison(error="Its position is not known.")
        at = DeadLetterPosition(*parse_position(letter.original))
        try:
            found = self._letters.record(at)
        except Unavailable as refused:
            return _Comparison(error=str(refused))
        if isinstance(found, Absence):
            return _Comparison(error=_no_input_record(at, found))
        return _Comparison(found, differs=not is_same_content(letter.value, found.value))

    async def _identifier(self, query: IdQuery) -> Identifier:
        require_restored(self._view.board.read())
        answer = await self._view.inbox.ask(query, self._view.ask_timeout_s)
        return Identifier.of(query, answer)

    async def _holders(
        self, own: str, identifier: bytes
    ) -> AsyncIterator[tuple[str, tuple[Sighting, ...]]]:
        """Yield the addresses that remember an id, that of the record first."""
        yield own, (await self._identifier(IdQuery(own, identifier))).sightings
        token = ""
        for _ in range(_SEARCH_PAGES):
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


def _followed(
    jobs: Sequence[RedriveView],
    accepting: RedriveView | None,
    newer: DeadLetterView | None,
    search: _Search,
    error: str | None,
) -> tuple[bool | None, str | None]:
    """Return whether a redrive has accepted a record that is not remembered, and a sentence."""
    if error is not None:
        return None, f"Whether it was redriven cannot be looked up now: {error}"
    if accepting is not None:
        return True, (
            f"The redrive {accepting.id} has accepted it since, with mode {accepting.order.mode}, "
            "so the output has it."
        )
    if newer is not None:
        return False, f"A redrive refused it again, as {_text(newer.position)}."
    if not jobs:
        return False, None
    done = jobs[0].progress
    sentence = (
        f"The redrive {jobs[0].id} has sent it since, and has accepted {done.accepted:,} of "
        f"{plural(done.matched, 'dead letter')}."
    )
    if search.token is not None:
        sentence += (
            " It may have refused it again: the "
            f"{search.searched:,} newest dead letters do not tell."
        )
    return None, sentence


def _accepted_all(job: RedriveView) -> bool:
    """Whether a redrive has certainly accepted each dead letter that it has sent."""
    return 0 < job.progress.accepted == job.progress.matched


def _source_of(letter: DeadLetterView) -> DeadLetterPosition:
    """Return the position of the record of a dead letter; that of a foreign record is its own."""
    if letter.source is None:
        return letter.position
    return DeadLetterPosition(letter.source.topic, letter.source.partition, letter.source.offset)


def _no_input_record(at: DeadLetterPosition, absence: Absence) -> str:
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
        case [int(searched), cursor] if searched >= 0:
            return searched, cursor
        case _:
            raise NotPossible("The page token is not one that an explanation returned.")
