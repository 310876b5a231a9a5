"""ID page: what is known of one id, why its record was dropped, and what to do about it."""

from typing import Any, Final, NamedTuple

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from api.console.client import ApiProblem, ConsoleClient
from api.console.forms import asked, read, see, segment
from api.console.render import page, shown

EMPTY_ID: Final = "hex:"
"""How the empty id is written in a path."""
AT_ONCE: Final = 1_000


class IdDeadLetters(NamedTuple):
    """Dead letters of one id, as far as one look at its address' newest ones goes."""

    letters: list[dict[str, Any]]
    scanned: int
    next_page_token: str | None
    problem: ApiProblem | None


def add(routes: APIRouter) -> None:
    """Add the pages."""

    @routes.get("/console/ids")
    @shown("ids")
    async def ids(request: Request) -> Response:
        """Whether an id is known, and since which message."""
        told = asked(request)
        found = refusals = None
        is_strange = False
        if "address" in told:
            api, address = ConsoleClient(request), told["address"]
            query = {"address": address, "name": request.query_params.get("id", "")}
            found = await api.get("/v1/ids", query)
            if found.ok and not found.document["known"]:
                seen = (await api.get("/v1/addresses", {"name": address})).document
                is_strange = seen.get("complete", False) and not seen["partitions"]
            if "refusals" in told and found.ok:
                refusals = await _refusals(api, found.document, told.get("page_token"))
        return await page(
            request,
            "ids.html",
            section="ids",
            found=found,
            told=told,
            is_strange=is_strange,
            refusals=refusals,
        )

    @routes.post("/console/ids/forget")
    @shown("ids")
    async def forget(request: Request) -> Response:
        """Have an address forget an id."""
        form = await read(request)
        address, identifier = form.get("address", ""), form.get("id", "")
        path = f"/v1/addresses/{segment(address)}/ids/{segment(identifier or EMPTY_ID)}"
        query = {"reason": form.get("reason", "")}
        (await ConsoleClient(request).send("DELETE", path, query)).needed()
        return see("/console/ids", address=address, id=identifier or EMPTY_ID, done="forgotten")


async def _refusals(
    api: ConsoleClient, asked_for: dict[str, Any], token: str | None
) -> IdDeadLetters:
    """Look for an id among the newest dead letters of its address, which no index holds."""
    query = {"address": asked_for["address"], "newest": True, "page_size": AT_ONCE}
    found = await api.get("/v1/dead-letters", {**query, "page_token": token})
    told = found.document
    return IdDeadLetters(
        [each for each in told.get("dead_letters", ()) if each["id"] == asked_for["id"]],
        told.get("scanned", 0),
        told.get("next_page_token"),
        found.problem,
    )
