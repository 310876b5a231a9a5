"""ID page: the history of one id, why its record was refused, and how to forget it."""

from typing import Any, Final, NamedTuple

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from ringfence_api.console.client import ApiProblem, ConsoleClient
from ringfence_api.console.forms import query_of, read, redirect, segment
from ringfence_api.console.last_answers import LastAnswers, oldest
from ringfence_api.console.render import page, shows_problems

EMPTY_ID: Final = "hex:"
"""Notation of the empty id in a path."""
AT_ONCE: Final = 1_000
"""Ids on the page at once: the largest page of the API."""


class IdDeadLetters(NamedTuple):
    """The dead letters of one id among a page of the newest ones of its address."""

    letters: list[dict[str, Any]]
    scanned: int
    next_page_token: str | None
    problem: ApiProblem | None


def add(routes: APIRouter, last: LastAnswers) -> None:
    """Add the routes of the page."""

    @routes.get("/console/ids")
    @shows_problems("ids")
    async def ids(request: Request) -> Response:
        """Show whether an id is known, and since which message."""
        params = query_of(request)
        found = refusals = None
        if "address" in params:
            query = {"address": params["address"], "id": request.query_params.get("id", "")}
            found = await last.get(request, "/v1/records:explain", query)
            if "refusals" in params and found.ok:
                api = ConsoleClient(request)
                refusals = await _refusals(api, found.document["id"], params.get("page_token"))
        return await page(
            request,
            "ids.html",
            section="ids",
            found=found,
            as_of=oldest(found),
            params=params,
            refusals=refusals,
        )

    @routes.post("/console/ids/forget")
    @shows_problems("ids")
    async def forget(request: Request) -> Response:
        """Forget an id of an address."""
        form = await read(request)
        address, identifier = form.get("address", ""), form.get("id", "")
        path = f"/v1/addresses/{segment(address)}/ids/{segment(identifier or EMPTY_ID)}"
        query = {"reason": form.get("reason", "")}
        reply = await ConsoleClient(request).send("DELETE", path, query)
        last.clear()
        reply.required()
        return redirect(
            "/console/ids", address=address, id=identifier or EMPTY_ID, done="forgotten"
        )


async def _refusals(
    api: ConsoleClient, id_document: dict[str, Any], token: str | None
) -> IdDeadLetters:
    """Search the newest dead letters of an address for an id; there is no index by id."""
    names = {"address": id_document["address"], "id": id_document["id"] or EMPTY_ID}
    query = {**names, "newest": True, "page_size": AT_ONCE}
    found = await api.get("/v1/dead-letters", {**query, "page_token": token})
    document = found.document
    return IdDeadLetters(
        document.get("dead_letters", []),
        document.get("scanned", 0),
        document.get("next_page_token"),
        found.problem,
    )
