"""Dead letters pages: counts, a list, one dead letter beside its original, and any record."""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from ringfence_api.console.client import ConsoleClient, Query
from ringfence_api.console.forms import REASONS, FilterForm, query_of, redirect, segment
from ringfence_api.console.render import page, position_of, shows_problems
from ringfence_api.parameters import parse_position
from ringfence_api.ports import may_read_payload
from ringfence_service.schemas.json_difference import Difference, Tokens, difference

PAGE_SIZE: Final = 25
PAGES_MAX: Final = 5
"""How often a step asks for more; a request reads at most 20,000 dead letters."""
MISSING: Final = {"missing": True}
"""Stands for the value of a header that a record does not have."""


def add(routes: APIRouter) -> None:
    """Add the routes of the pages."""

    @routes.get("/console/dead-letters")
    @shows_problems("letters")
    async def letters(request: Request) -> Response:
        """Show dead letters, newest first."""
        params, api = query_of(request), ConsoleClient(request)
        criteria = FilterForm.of(params)
        query = {"newest": True, "page_size": PAGE_SIZE, "page_token": params.get("page_token")}
        return await page(
            request,
            "letters.html",
            section="letters",
            found=await api.get("/v1/dead-letters", {**criteria.query(), **query}),
            summary=await api.get("/v1/dead-letters:summary", {**criteria.query()}),
            criteria=criteria,
            params=params,
            reasons=REASONS,
        )

    @routes.get("/console/dead-letter")
    @shows_problems("letters")
    async def letter(request: Request) -> Response:
        """Show one dead letter, beside its original if the user may read payload."""
        params, api = query_of(request), ConsoleClient(request)
        at = params.get("at", "")
        found = (await api.get("/v1/records:explain", {"at": at, "search": False})).required()
        letter, original = found["dead_letter"], found["original"]
        if letter is None or position_of(letter) != found["position"]:
            return redirect("/console/record", at=at)
        return await page(
            request,
            "letter.html",
            section="letters",
            letter=letter,
            found=found,
            at=at,
            rows=compared(
                letter["payload"], original and original["payload"], found["content_differs"]
            ),
            criteria=FilterForm.of(params),
            end=params.get("end", ""),
        )

    _add_steps(routes)
    _add_record(routes)


def _add_steps(routes: APIRouter) -> None:
    @routes.get("/console/dead-letter/step")
    @shows_problems("letters")
    async def step(request: Request) -> Response:
        """Redirect to the next newer or older dead letter of the partition that matches."""
        params, api = query_of(request), ConsoleClient(request)
        at, criteria, towards = (
            params.get("at", ""),
            FilterForm.of(params),
            params.get("towards", ""),
        )
        query: Query = {
            **criteria.query(),
            "after": at,
            "newest": towards == "older",
            "page_size": 1,
        }
        token = None
        for _ in range(PAGES_MAX):
            found = (await api.get("/v1/dead-letters", {**query, "page_token": token})).required()
            token = found["next_page_token"]
            if found["dead_letters"]:
                next_at = position_of(found["dead_letters"][0])
                return redirect("/console/dead-letter", at=next_at, **criteria.fields)
            if token is None:
                break
        return redirect("/console/dead-letter", at=at, end=towards, **criteria.fields)


def _add_record(routes: APIRouter) -> None:
    @routes.get("/console/record")
    @shows_problems("record")
    async def record(request: Request) -> Response:
        """Show the record at a position: a dead letter on its own page, else that of an input."""
        params, api = query_of(request), ConsoleClient(request)
        at = params.get("at", "")
        if (await api.get(path_of("dead-letters", at))).ok:
            return redirect("/console/dead-letter", at=at)
        found = await api.get(path_of("records", at)) if may_read_payload(request) else None
        letters = explained = None
        if "letters" in params:
            query: Query = {"source": at, "newest": True, "page_size": PAGE_SIZE}
            token = params.get("page_token")
            letters = await api.get("/v1/dead-letters", {**query, "page_token": token})
            if letters.ok and not letters.document["dead_letters"] and token is None:
                query = {"at": at, "search": False}
                explained = await api.get("/v1/records:explain", query)
        return await page(
            request,
            "record.html",
            section="record",
            at=at,
            found=found,
            letters=letters,
            explained=explained,
            params=params,
        )


class ComparedPart(NamedTuple):
    """A part of a record, and the same part of its original; None where the record lacks it."""

    name: str
    is_header: bool
    here: dict[str, Any] | None
    there: dict[str, Any] | None
    differs: bool
    difference: Difference | None = None
    """The members that differ, if both are JSON."""

    @property
    def marked(self) -> tuple[Tokens, ...]:
        """The members whose lines are marked."""
        return self.difference.members if self.difference else ()


def compared(
    payload: Mapping[str, Any] | None,
    original: Mapping[str, Any] | None,
    value_differs: bool | None,  # noqa: FBT001 - a member of the explanation
) -> list[ComparedPart]:
    """Return key, value and headers of a payload beside those of its original, if it is known.

    Headers are paired by name, in order; those of the original alone come last. `value_differs` is
    what the API says of the whole values; None if it has not compared them.
    """
    if payload is None:
        return []
    there = original or {"key": None, "value": None, "headers": ()}
    rows = [(name.capitalize(), False, payload[name], there[name]) for name in ("key", "value")]
    left = [(each["name"], each["value"]) for each in there["headers"]]
    for each in payload["headers"]:
        name = each["name"]
        same = next((other for other in left if other[0] == name), None)
        if same is not None:
            left.remove(same)
        rows.append((name, True, each["value"], MISSING if same is None else same[1]))
    rows += [(name, True, MISSING, value) for name, value in left]
    differing = [original is not None and here != other for _, _, here, other in rows]
    if value_differs is not None:
        differing[1] = value_differs
    return [
        ComparedPart(*row, differs, _difference(row[2], row[3]) if differs else None)
        for row, differs in zip(rows, differing, strict=True)
    ]


def _difference(*contents: dict[str, Any] | None) -> Difference | None:
    """Return which members of two whole contents differ; None unless both are JSON."""
    texts = [each["text"] for each in contents if each and not each.get("truncated", True)]
    one, other = [*texts, None, None][:2]
    return None if one is None or other is None else difference(one.encode(), other.encode())


def path_of(collection: str, position: str) -> str:
    """Return the API path of a position. Raise NotPossible unless it is topic-partition@offset."""
    topic, partition, offset = parse_position(position)
    return f"/v1/{collection}/{segment(topic)}/{partition}/{offset}"
