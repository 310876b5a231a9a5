"""Settings page: the effective settings, their history, and changes with a preview."""

import re
from typing import Any, Final

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from api.console.client import ApiProblem, ApiReply, ConsoleClient, Document, PageFailed
from api.console.diff import between
from api.console.forms import as_toml, asked, from_toml, read, see, segment
from api.console.render import page, shown
from api.problems import INVALID, NOT_FOUND

COLLECTIONS: Final = {"route": "/v1/routes", "address": "/v1/address-settings"}
_FIELDS: Final = ("kind", "name", "etag", "text", "reason", "what")
_OF_THE_API: Final = ("name", "pattern", "source", "paused", "etag")


def add(routes: APIRouter) -> None:
    """Add the pages."""
    _add_reading(routes)
    _add_editing(routes)
    _add_history(routes)


def _add_reading(routes: APIRouter) -> None:
    @routes.get("/console/settings")
    @shown("settings")
    async def settings(request: Request) -> Response:
        """All of them."""
        api = ConsoleClient(request)
        return await page(
            request,
            "settings.html",
            section="settings",
            routes=await api.get("/v1/routes", {"page_size": 1000}),
            patterns=await api.get("/v1/address-settings", {"page_size": 1000}),
            revisions=await api.get("/v1/settings/revisions", {"page_size": 20}),
            keys=own_keys,
            done=asked(request).get("done", ""),
        )

    @routes.post("/console/settings/pause")
    @shown("settings")
    async def pause(request: Request) -> Response:
        """Pause a route, or resume it."""
        form = await read(request)
        what = "resume" if form.get("what") == "resume" else "pause"
        path = f"/v1/routes/{segment(form.get('name', ''))}:{what}"
        query = {"reason": form.get("reason", ""), "wait": "applied", "timeout": "5s"}
        (await ConsoleClient(request).send("POST", path, query)).needed()
        return see("/console/settings", done=what)


def _add_editing(routes: APIRouter) -> None:
    @routes.get("/console/settings/edit")
    @shown("settings")
    async def edit(request: Request) -> Response:
        """A route or the settings of a pattern as text, as in the file."""
        told = asked(request)
        kind, name = _kind(told), told.get("name", "")
        found = await ConsoleClient(request).get(_path(kind, name)) if name else None
        keys = own_keys(found.document) if found is not None and found.ok else {}
        proposed = {key[4:]: _value(text) for key, text in told.items() if key.startswith("set.")}
        return await page(
            request,
            "edit.html",
            section="settings",
            kind=kind,
            name=name,
            etag=found.etag if found is not None and found.ok else None,
            text=as_toml({**keys, **proposed}),
            problem=None,
            reason="",
        )

    @routes.post("/console/settings/edit")
    @shown("settings")
    async def edit_again(request: Request) -> Response:
        """The same as it was filled in, from its preview."""
        return await _again(request, await read(request), None)

    @routes.post("/console/settings/preview")
    @shown("settings")
    async def preview(request: Request) -> Response:
        """What a change would do; nothing has happened yet."""
        form = await read(request, *_FIELDS)
        tried = await _changed(ConsoleClient(request), form, dry_run=True)
        if not tried.ok:
            return await _again(request, form, tried.problem)
        outcome = tried.document
        return await page(
            request,
            "preview.html",
            section="settings",
            form=form,
            outcome=outcome,
            lines=between(outcome["before"], outcome["after"]),
        )

    @routes.post("/console/settings/apply")
    @shown("settings")
    async def apply(request: Request) -> Response:
        """Make the change."""
        form = await read(request, *_FIELDS)
        made = await _changed(ConsoleClient(request), form, dry_run=False)
        if not made.ok:
            return await _again(request, form, made.problem)
        return see(
            "/console/settings", done="written" if made.document["applied"] is False else "applied"
        )


def _add_history(routes: APIRouter) -> None:
    @routes.get("/console/settings/revision")
    @shown("settings")
    async def revision(request: Request) -> Response:
        """What was set once, beside what is set now."""
        api, number = ConsoleClient(request), segment(asked(request).get("number", ""))
        found = (await api.get(f"/v1/settings/revisions/{number}")).needed()
        now = (await api.get("/v1/settings")).needed()
        return await page(
            request,
            "revision.html",
            section="settings",
            found=found,
            lines=between(now, found["settings"], ignored=("revision",)),
            etag=(await api.get("/v1/settings")).etag,
        )

    @routes.post("/console/settings/rollback")
    @shown("settings")
    async def rollback(request: Request) -> Response:
        """Set again what was set once."""
        form = await read(request)
        path = f"/v1/settings/revisions/{segment(form.get('number', ''))}:rollback"
        query = {"reason": form.get("reason", ""), "wait": "applied", "timeout": "5s"}
        if form.get("force"):
            query["force"] = "true"
        headers = {"If-Match": form["etag"]} if form.get("etag") else {}
        (await ConsoleClient(request).send("POST", path, query, headers=headers)).needed()
        return see("/console/settings", done="rollback")


async def _changed(api: ConsoleClient, form: dict[str, str], *, dry_run: bool) -> ApiReply:
    """Put or delete what a form holds."""
    query: dict[str, str | float | None] = {
        "reason": form.get("reason"),
        "dry_run": dry_run or None,
    }
    if not dry_run:
        query |= {"wait": "applied", "timeout": "5s"}
    if form.get("force"):
        query["force"] = True
    headers = {"If-Match": form["etag"]} if form.get("etag") else {"If-None-Match": "*"}
    path = _path(_kind(form), form.get("name", ""))
    if form.get("what") == "delete":
        return await api.send("DELETE", path, query, headers=headers)
    try:
        keys = from_toml(form["text"])
    except ValueError as error:
        return ApiReply(
            {}, problem=ApiProblem(INVALID.status, INVALID.name, INVALID.title, str(error))
        )
    return await api.send("PUT", path, query, body=keys, headers=headers)


async def _again(request: Request, form: dict[str, str], problem: ApiProblem | None) -> Response:
    """The form as it was filled in, with what is wrong with it."""
    return await page(
        request,
        "edit.html",
        section="settings",
        status=200 if problem is None else problem.status,
        kind=_kind(form),
        name=form.get("name", ""),
        etag=form.get("etag") or None,
        text=form.get("text", ""),
        problem=problem,
        reason=form.get("reason", ""),
    )


def own_keys(document: Document) -> dict[str, Any]:
    """What a document sets, without what the API tells of it."""
    return {key: value for key, value in document.items() if key not in _OF_THE_API}


def _kind(told: dict[str, str]) -> str:
    kind = told.get("kind", "")
    if kind not in COLLECTIONS:
        detail = (
            "A setting is of a route or of an address pattern; choose one on the settings page."
        )
        raise PageFailed(ApiProblem(NOT_FOUND.status, NOT_FOUND.name, NOT_FOUND.title, detail))
    return kind


def _path(kind: str, name: str) -> str:
    return f"{COLLECTIONS[kind]}/{segment(name)}"


def _value(text: str) -> str | int | bool:
    if text in {"True", "False"}:
        return text == "True"
    return int(text) if re.fullmatch(r"[0-9]{1,18}", text) else text
