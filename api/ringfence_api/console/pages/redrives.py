"""Redrives pages: choose dead letters, count them, confirm, and follow the job."""

import uuid
from typing import Any, Final

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from ringfence_api.console.client import ApiReply, ConsoleClient
from ringfence_api.console.forms import REASONS, FilterForm, query_of, read, redirect, segment
from ringfence_api.console.render import page, shows_problems

MODES: Final = {
    "through": "Decide again. Remembered ids are refused again; nothing is forgotten.",
    "forget": "Forget each id first, then accept its record, which is remembered again. "
    "A duplicate is then in the output a second time.",
    "bypass": "Write directly to the output. Remembered ids do not change. "
    "A duplicate is then in the output a second time.",
}


def add(routes: APIRouter) -> None:
    """Add the routes of the pages."""

    @routes.get("/console/redrives")
    @shows_problems("redrives")
    async def redrives(request: Request) -> Response:
        """Show all known redrives, newest first."""
        query = {"page_size": 50, "page_token": query_of(request).get("page_token")}
        found = (await ConsoleClient(request).get("/v1/redrives", query)).required()
        return await page(request, "redrives.html", section="redrives", found=found)

    @routes.get("/console/redrive")
    @shows_problems("redrives")
    async def redrive(request: Request) -> Response:
        """Show one redrive and its progress."""
        path = f"/v1/redrives/{segment(query_of(request).get('id', ''))}"
        found = (await ConsoleClient(request).get(path)).required()
        return await page(request, "redrive.html", section="redrives", redrive=found)

    @routes.post("/console/redrive/cancel")
    @shows_problems("redrives")
    async def cancel(request: Request) -> Response:
        """Cancel a redrive."""
        form = await read(request, "id", "reason")
        path = f"/v1/redrives/{segment(form['id'])}:cancel"
        (await ConsoleClient(request).send("POST", path, {"reason": form["reason"]})).required()
        return redirect("/console/redrive", id=form["id"])

    _add_wizard(routes)


def _add_wizard(routes: APIRouter) -> None:
    @routes.get("/console/redrives/new")
    @shows_problems("redrives")
    async def choose(request: Request) -> Response:
        """Show the first step: choose dead letters."""
        criteria = FilterForm.of(query_of(request))
        return await page(
            request, "redrive_choose.html", section="redrives", criteria=criteria, reasons=REASONS
        )

    @routes.get("/console/redrives/count")
    @shows_problems("redrives")
    async def count(request: Request) -> Response:
        """Show the second step: counts, samples, and the options of the redrive."""
        criteria, api = FilterForm.of(query_of(request)), ConsoleClient(request)
        preview = await _order(api, criteria, {"mode": "through"}, dry_run=True)
        explained = None
        if criteria.letter:
            explained = await api.get(
                "/v1/records:explain", {"at": criteria.letter, "search": False}
            )
        return await page(
            request,
            "redrive_count.html",
            section="redrives",
            criteria=criteria,
            preview=preview,
            explained=explained,
            modes=MODES,
        )

    @routes.post("/console/redrives/confirm")
    @shows_problems("redrives")
    async def confirm(request: Request) -> Response:
        """Show the third step: a summary to confirm; nothing has been sent yet."""
        form = await read(request, "mode", "max_per_second", "limit", "why")
        criteria = FilterForm.of(form)
        preview = await _order(ConsoleClient(request), criteria, form, dry_run=True)
        return await page(
            request,
            "redrive_confirm.html",
            section="redrives",
            criteria=criteria,
            form=form,
            preview=preview,
            modes=MODES,
            once=uuid.uuid4().hex,
        )

    @routes.post("/console/redrives/start")
    @shows_problems("redrives")
    async def start(request: Request) -> Response:
        """Start the redrive, and show it."""
        form = await read(request)
        started = await _order(ConsoleClient(request), FilterForm.of(form), form, dry_run=False)
        return redirect("/console/redrive", id=started.required()["id"])


async def _order(
    api: ConsoleClient, criteria: FilterForm, form: dict[str, str], *, dry_run: bool
) -> ApiReply:
    """Start or count a redrive; the idempotency key of a form starts at most one."""
    order: dict[str, Any] = {"mode": form.get("mode", ""), **criteria.order()}
    for name in ("max_per_second", "limit"):
        number = form.get(name, "").replace(",", "").replace(" ", "")
        if number:  # the API refuses what is not a number
            order[name] = number
    headers = {"Idempotency-Key": form["once"]} if form.get("once") and not dry_run else {}
    # The form has its own names for these: the filter has a reason and a key too.
    query = {"dry_run": dry_run or None, "reason": form.get("why")}
    return await api.send("POST", "/v1/redrives", query, body=order, headers=headers)
