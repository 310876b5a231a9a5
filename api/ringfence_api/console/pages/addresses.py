"""Addresses pages: all addresses, those that evict soonest first, and one address in full."""

from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import urlencode

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from ringfence_api.console.charts import Chart, chart, time_marks, tooltip
from ringfence_api.console.client import ApiReply, ConsoleClient
from ringfence_api.console.forms import query_of, read, redirect, segment, to
from ringfence_api.console.history import AddressPoint, History
from ringfence_api.console.last_answers import LastAnswers, oldest
from ringfence_api.console.render import page, shows_problems
from ringfence_service import formatting as words
from ringfence_service.config.addresses import AddressSettings

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


def add(routes: APIRouter, history: History, last: LastAnswers) -> None:
    """Add the routes of the pages."""

    @routes.get("/console/addresses")
    @shows_problems("addresses")
    async def addresses(request: Request) -> Response:
        """Show all addresses; by default, those that evict soonest come first."""
        params = query_of(request)
        sort = params.get("sort", "horizon")
        query = {"prefix": params.get("prefix"), "page_token": params.get("page_token")}
        found = await last.get(
            request, "/v1/addresses", {**query, "sort": sort, "page_size": PAGE_SIZE}
        )
        resend_ms = words.duration_ms(params.get("resend", ""))
        return await page(
            request,
            "addresses.html",
            section="addresses",
            found=found.required(),
            as_of=oldest(found),
            sort=sort,
            sorts=SORTS,
            prefix=params.get("prefix", ""),
            resend=params.get("resend", ""),
            resend_ms=resend_ms,
            is_short=lambda row: is_short(row["horizon_ms"], resend_ms),
            is_growing=is_growing,
            rates=lambda name: [each.decided_per_minute for each in history.of_address(name)],
        )

    @routes.get("/console/address")
    @shows_problems("addresses")
    async def address(request: Request) -> Response:
        """Show one address."""
        params, api = query_of(request), ConsoleClient(request)
        name = params.get("name", "")
        points = history.of_address(name)
        reply = await last.get(request, "/v1/addresses", {"name": name})
        found = reply.required()
        newest = await _newest(last, request, found, params)
        return await page(
            request,
            "address.html",
            section="addresses",
            found=found,
            is_growing=is_growing(found),
            main_keys=_main_keys(found["strategy"]),
            as_of=oldest(reply, newest),
            ids=newest,
            plan=await _plan(api, name, params),
            requested_window=params.get("retry_window", ""),
            requested_rate=params.get("rate", ""),
            rates=rate_chart(points),
            marks=time_marks([each.middle_s for each in points]),
            forgotten=_count(params.get("done", "")),
        )

    @routes.post("/console/address/clear")
    @shows_problems("addresses")
    async def clear(request: Request) -> Response:
        """Forget all ids of an address."""
        form = await read(request, "name", "reason")
        query = {"name": form["name"], "reason": form["reason"]}
        reply = await ConsoleClient(request).send("POST", "/v1/addresses:clear", query)
        last.clear()
        cleared = reply.required()
        return redirect("/console/address", name=form["name"], done=str(cleared["ids"]))


def _main_keys(strategy: str) -> tuple[str, ...]:
    """Return the settings that are shown though no pattern contains them."""
    by = AddressSettings(strategy=strategy).remembered_by
    return ("strategy", by.size_key, by.time_key, "on_duplicate", "persist_id_cache")


def _count(text: str) -> int | None:
    """Return a number of the query, so that a link cannot put other text into a note."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 19 else None


def rate_chart(points: Sequence[AddressPoint]) -> Chart | None:
    """Draw the decided records per minute; None without a line to draw."""
    rates = [each.decided_per_minute for each in points]
    if len(rates) < 2 or not any(rates):
        return None
    most, now = words.number(max(rates)), words.number(rates[-1])
    return chart(
        "Records per minute",
        f"They reached {most} and are now {now}.",
        [("Decided", "accepted", rates)],
        [
            tooltip(
                each.since_s,
                f"{words.number(each.decided_per_minute)} per minute, "
                f"in the {each.until_s - each.since_s:.0f} s from then on",
            )
            for each in points
        ],
        10.0,
    )


def is_short(horizon_ms: int | None, resend_ms: int | None) -> bool:
    """Return whether an address forgets before its publishers stop resending; false if unknown."""
    return horizon_ms is not None and resend_ms is not None and horizon_ms < resend_ms


def is_growing(row: Mapping[str, Any]) -> bool:
    """Return whether an address has evicted ids and has room again, so that its horizon grows."""
    return row["horizon_ms"] is not None and row["fill"] is not None and row["fill"] < 1


async def _newest(
    last: LastAnswers, request: Request, found: dict[str, Any], params: dict[str, str]
) -> ApiReply | None:
    """Return the newest ids; None for a strategy that remembers no ids."""
    if not AddressSettings(strategy=found["strategy"]).size_of_ids:
        return None
    query = {"page_size": NEWEST, "page_token": params.get("page_token")}
    return await last.get(request, f"/v1/addresses/{segment(found['address'])}/ids", query)


async def _plan(api: ConsoleClient, name: str, params: dict[str, str]) -> dict[str, Any] | None:
    """Return the plan for a retry window, and the link that sets it; None without a window."""
    if "retry_window" not in params:
        return None
    need: dict[str, str | float] = {"retry_window": params["retry_window"]}
    if "rate" in params:
        need["messages_per_second"] = params["rate"]
    reply = await api.send("POST", "/v1/addresses:plan", {"name": name}, body=need)
    change = reply.document.get("request") if reply.ok else None
    edit_url = ""
    if change:
        pattern = change["path"].removeprefix("/v1/address-settings/")
        body = {f"set.{key}": str(value) for key, value in change["body"].items()}
        edit_url = (
            f"{to('/console/settings/edit', kind='address')}&name={pattern}&{urlencode(body)}"
        )
    return {"reply": reply, "edit_url": edit_url}
