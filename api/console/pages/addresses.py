"""Addresses page: which addresses evict soonest, and what one address holds."""

from typing import Any, Final
from urllib.parse import urlencode

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from api.console.client import ApiReply, ConsoleClient
from api.console.forms import asked, read, see, segment, to
from api.console.history import History
from api.console.render import page, shown
from service.queries.sizing import duration_ms

PAGE_SIZE: Final = 50
NEWEST: Final = 20
SORTS: Final = {
    "horizon": "Horizon",
    "-fill": "Fill",
    "-ids_held": "Held",
    "-accepted": "Accepted",
    "-duplicates": "Duplicates",
    "name": "Address",
}


def add(routes: APIRouter, history: History) -> None:
    """Add the pages."""

    @routes.get("/console/addresses")
    @shown("addresses")
    async def addresses(request: Request) -> Response:
        """All addresses, those that forget soonest first."""
        told = asked(request)
        sort = told.get("sort", "horizon")
        query = {"prefix": told.get("prefix"), "page_token": told.get("page_token")}
        found = await ConsoleClient(request).get(
            "/v1/addresses", {**query, "sort": sort, "page_size": PAGE_SIZE}
        )
        resend_ms = duration_ms(told.get("resend", ""))
        return await page(
            request,
            "addresses.html",
            section="addresses",
            found=found.needed(),
            sort=sort,
            sorts=SORTS,
            prefix=told.get("prefix", ""),
            resend=told.get("resend", ""),
            resend_ms=resend_ms,
            is_short=lambda row: is_short(row["horizon_ms"], resend_ms),
            rate=history.of_address,
        )

    @routes.get("/console/address")
    @shown("addresses")
    async def address(request: Request) -> Response:
        """One address."""
        told, api = asked(request), ConsoleClient(request)
        name = told.get("name", "")
        found = (await api.get("/v1/addresses", {"name": name})).needed()
        return await page(
            request,
            "address.html",
            section="addresses",
            found=found,
            ids=await _newest(api, found, told),
            plan=await _plan(api, name, told),
            asked_window=told.get("retry_window", ""),
            asked_rate=told.get("rate", ""),
            rate=history.of_address(name),
            forgotten=_count(told.get("done", "")),
        )

    @routes.post("/console/address/clear")
    @shown("addresses")
    async def clear(request: Request) -> Response:
        """Have an address forget everything."""
        form = await read(request, "name", "reason")
        query = {"name": form["name"], "reason": form["reason"]}
        cleared = (await ConsoleClient(request).send("POST", "/v1/addresses:clear", query)).needed()
        return see("/console/address", name=form["name"], done=str(cleared["ids"]))


def _count(text: str) -> int | None:
    """A number of a link; no other text of one stands in a note."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 19 else None


def is_short(horizon_ms: int | None, resend_ms: int | None) -> bool:
    """Whether it forgets before its publishers end; one that never forgot is not known to."""
    return horizon_ms is not None and resend_ms is not None and horizon_ms < resend_ms


async def _newest(
    api: ConsoleClient, found: dict[str, Any], told: dict[str, str]
) -> ApiReply | None:
    """The newest ids; None where it goes by numbers, or by nothing."""
    if found["strategy"] not in {"ring", "window"}:
        return None
    query = {"page_size": NEWEST, "page_token": told.get("page_token")}
    return await api.get(f"/v1/addresses/{segment(found['address'])}/ids", query)


async def _plan(api: ConsoleClient, name: str, told: dict[str, str]) -> dict[str, Any] | None:
    """What a retry window asks for, where one was told, and the page on which it can be set."""
    if "retry_window" not in told:
        return None
    need: dict[str, str | float] = {"retry_window": told["retry_window"]}
    if "rate" in told:
        need["messages_per_second"] = told["rate"]
    reply = await api.send("POST", "/v1/addresses:plan", {"name": name}, body=need)
    wanted = reply.document.get("request") if reply.ok else None
    set_it = ""
    if wanted:
        pattern = wanted["path"].removeprefix("/v1/address-settings/")
        body = {f"set.{key}": str(value) for key, value in wanted["body"].items()}
        set_it = f"{to('/console/settings/edit', kind='address')}&name={pattern}&{urlencode(body)}"
    return {"reply": reply, "set_it": set_it}
