"""Redrives page: choose dead letters, count them, confirm, and watch the job."""

import uuid
from typing import Any, Final

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from api.console.client import ApiReply, ConsoleClient
from api.console.forms import REASONS, FilterForm, asked, read, see, segment
from api.console.render import page, shown

MODES: Final = {
    "through": "Decide again. What is remembered is refused again; nothing is forgotten.",
    "forget": "Forget each id first, then let its record through. It is remembered again after. "
    "The output then holds a duplicate twice.",
    "bypass": "Write straight to the output. Ids stay remembered as they are. "
    "The output then holds a duplicate twice.",
}


def add(routes: APIRouter) -> None:
    """Add the pages."""

    @routes.get("/console/redrives")
    @shown("redrives")
    async def redrives(request: Request) -> Response:
        """All that are known, the newest first."""
        query = {"page_size": 50, "page_token": asked(request).get("page_token")}
        found = (await ConsoleClient(request).get("/v1/redrives", query)).needed()
        return await page(request, "redrives.html", section="redrives", found=found)

    @routes.get("/console/redrive")
    @shown("redrives")
    async def redrive(request: Request) -> Response:
        """One, and how far it is."""
        path = f"/v1/redrives/{segment(asked(request).get('id', ''))}"
        found = (await ConsoleClient(request).get(path)).needed()
        return await page(request, "redrive.html", section="redrives", redrive=found)

    @routes.post("/console/redrive/cancel")
    @shown("redrives")
    async def cancel(request: Request) -> Response:
        """End one."""
        form = await read(request, "id", "reason")
        path = f"/v1/redrives/{segment(form['id'])}:cancel"
        (await ConsoleClient(request).send("POST", path, {"reason": form["reason"]})).needed()
        return see("/console/redrive", id=form["id"])

    _add_wizard(routes)


def _add_wizard(routes: APIRouter) -> None:
    @routes.get("/console/redrives/new")
    @shown("redrives")
    async def choose(request: Request) -> Response:
        """The first step: which."""
        wanted = FilterForm.of(asked(request))
        return await page(
            request, "redrive_choose.html", section="redrives", wanted=wanted, reasons=REASONS
        )

    @routes.get("/console/redrives/count")
    @shown("redrives")
    async def count(request: Request) -> Response:
        """The second step: how many these are, some of them, and what is to be done."""
        wanted = FilterForm.of(asked(request))
        preview = await _ordered(ConsoleClient(request), wanted, {"mode": "through"}, dry_run=True)
        return await page(
            request,
            "redrive_count.html",
            section="redrives",
            wanted=wanted,
            preview=preview,
            modes=MODES,
        )

    @routes.post("/console/redrives/confirm")
    @shown("redrives")
    async def confirm(request: Request) -> Response:
        """The third step: once more in words; nothing has happened yet."""
        form = await read(request, "mode", "max_per_second", "limit", "why")
        wanted = FilterForm.of(form)
        preview = await _ordered(ConsoleClient(request), wanted, form, dry_run=True)
        return await page(
            request,
            "redrive_confirm.html",
            section="redrives",
            wanted=wanted,
            form=form,
            preview=preview,
            modes=MODES,
            once=uuid.uuid4().hex,
        )

    @routes.post("/console/redrives/start")
    @shown("redrives")
    async def start(request: Request) -> Response:
        """The last step."""
        form = await read(request)
        begun = await _ordered(ConsoleClient(request), FilterForm.of(form), form, dry_run=False)
        return see("/console/redrive", id=begun.needed()["id"])


async def _ordered(
    api: ConsoleClient, wanted: FilterForm, form: dict[str, str], *, dry_run: bool
) -> ApiReply:
    """Order it, or have it counted; sent twice by a hasty hand, it begins once."""
    order: dict[str, Any] = {"mode": form.get("mode", ""), **wanted.order()}
    for name in ("max_per_second", "limit"):
        number = form.get(name, "").replace(",", "").replace(" ", "")
        if number:  # what is none, the API refuses
            order[name] = number
    headers = {"Idempotency-Key": form["once"]} if form.get("once") and not dry_run else {}
    # Names of its own: the filter has a reason and a key too.
    query = {"dry_run": dry_run or None, "reason": form.get("why")}
    return await api.send("POST", "/v1/redrives", query, body=order, headers=headers)
