"""Ids as lines: exported to the end, and taken in however many there are.

What one service exports another imports as it is: the oldest first, each with its place. An import
goes in transactions of some thousand ids; one that breaks off has taken in what came before, and is
sent again whole, since what is known already stays as it is.
"""

from collections.abc import AsyncIterator
from typing import Final, NamedTuple

from pydantic import ValidationError

from api.id_schemas import Imported, ImportedLine, Remembered
from api.media import lines_of, read_lines
from api.view import ServiceView
from service.control import NotPossible, Unavailable
from service.queries.ids import IdsAnswer, IdsImport, IdsQuery, ImportAnswer, Known
from state.edit import Source

_EXPORTED_AT_ONCE: Final = 2_000
_IMPORTED_AT_ONCE: Final = 4_000


class Taking(NamedTuple):
    """Where lines are taken in."""

    address: str
    input: str | None
    """The topic in whose stead they are taken; None where each line names an input."""
    dry_run: bool


async def first_page(view: ServiceView, address: str) -> IdsAnswer:
    """Return how an export begins: whatever is wrong is told before the first line."""
    return await view.inbox.ask(_page(address), view.ask_timeout_s)


async def exported(view: ServiceView, address: str, page: IdsAnswer) -> AsyncIterator[bytes]:
    """Give the lines of this page and of all that follow it."""
    while True:
        rows = [Remembered.of(each) for each in page.ids]
        yield lines_of([row.model_dump(mode="json", exclude=_NOT_WRITTEN) for row in rows])
        if page.cursor is None:
            return
        query = _page(address)._replace(cursor=page.cursor)
        page = await view.inbox.ask(query, view.ask_timeout_s)


async def take_in(view: ServiceView, taking: Taking, stream: AsyncIterator[bytes]) -> Imported:
    """Import the lines of a stream."""
    done = Imported(ids=0, new=0, complete=True)
    seen: set[Source] = set()
    try:
        async for part in _parts(stream):
            told = await _taken(view, taking, part, seen)
            done = Imported(
                ids=done.ids + told.ids,
                new=done.new + told.new,
                complete=done.complete and told.complete,
            )
    except (Unavailable, NotPossible) as error:
        if done.ids and not taking.dry_run:
            again = "send all of it again, since what is known stays as it is"
            error.args = (f"{error} {done.ids} ids were taken in before; {again}.",)
        raise
    return done


async def _parts(stream: AsyncIterator[bytes]) -> AsyncIterator[list[Known]]:
    part: list[Known] = []
    async for number, line in read_lines(stream):
        part.append(_known(number, line))
        if len(part) == _IMPORTED_AT_ONCE:
            yield part
            part = []
    if part:
        yield part


async def _taken(
    view: ServiceView, taking: Taking, part: list[Known], seen: set[Source]
) -> ImportAnswer:
    """Take in a part; one that names new places is looked at first, so that it is all or none."""
    places = {Source(each.topic or "", each.partition or 0) for each in part}
    change = IdsImport(taking.address, taking.input, None, tuple(part), dry_run=True)
    if taking.dry_run or not places <= seen:
        answer = await view.inbox.ask(change, view.ask_timeout_s)
        if answer.ids < len(part):
            raise NotPossible(_foreign(len(part) - answer.ids, places))
        seen |= places
        if taking.dry_run:
            return answer
    return await view.inbox.ask(change._replace(dry_run=False), view.ask_timeout_s)


def _known(number: int, line: bytes) -> Known:
    try:
        return ImportedLine.model_validate_json(line).placed()
    except ValidationError as error:
        fault = error.errors()[0]
        where = "".join(f" {step}" for step in fault["loc"])
        what = fault["msg"].removeprefix("Value error, ")
        raise NotPossible(f"Line {number}{where}: {what}.") from None


def _foreign(count: int, places: set[Source]) -> str:
    names = ", ".join(f"{topic}-{partition}" for topic, partition in sorted(places)[:5])
    return (
        f"{count} ids belong to partitions that nobody here decides; their places are {names}. "
        "Name the input in whose stead they are taken with ?input=."
    )


def _page(address: str) -> IdsQuery:
    return IdsQuery(address, None, _EXPORTED_AT_ONCE, oldest_first=True)


_NOT_WRITTEN: Final = {"slots_to_eviction"}
"""It tells of the ring that they come from."""
