"""Settings pages: the effective settings, their history, and changes with a preview."""

import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final, NamedTuple, get_args

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from ringfence_api.console.client import ApiProblem, ApiReply, ConsoleClient, Document, PageFailed
from ringfence_api.console.diff import between
from ringfence_api.console.forms import as_toml, from_toml, query_of, read, redirect, segment
from ringfence_api.console.render import page, shows_problems
from ringfence_api.problems import INVALID, NOT_FOUND
from ringfence_service.config.model import MissingId, OnPartitionsAdded, RouteSettings, Scope

COLLECTIONS: Final = {"route": "/v1/routes", "address": "/v1/address-settings"}
_FIELDS: Final = ("kind", "name", "etag", "text", "reason", "what")
_KEY: Final = "key."
"""What the fields of a route begin with in a form."""
_READ_ONLY: Final = ("name", "pattern", "source", "paused", "etag")


class RouteField(NamedTuple):
    """A field of the form of a route: a key, what it is, and how its value is entered."""

    key: str
    label: str
    hint: str = ""
    options: tuple[str, ...] = ()
    """The values to choose from; empty for text."""
    is_list: bool = False
    """Whether it is a list, with an item on each line."""
    is_fixed: bool = False
    """Whether it cannot change once the route exists."""

    @property
    def default(self) -> str:
        """Return the value of a route that does not set the key."""
        return self.shown(getattr(RouteSettings(), self.key))

    def shown(self, value: object) -> str:
        """Return a value as the field shows it."""
        return "\n".join(map(str, value)) if isinstance(value, list | tuple) else str(value)

    def value(self, text: str) -> str | list[str]:
        """Return the value that was entered."""
        return (
            [line.strip() for line in text.splitlines() if line.strip()] if self.is_list else text
        )


ROUTE_FIELDS: Final = (
    RouteField(
        "inputs",
        "Input topics",
        "One on each line; or one regular expression that starts with ^.",
        is_list=True,
    ),
    RouteField("output", "Output topic"),
    RouteField("dead_letter", "Dead-letter topic"),
    RouteField(
        "scope",
        "Scope",
        "Where equal ids are looked for. address: all partitions; partition: one, which is faster.",
        get_args(Scope),
        is_fixed=True,
    ),
    RouteField("address", "Address", "Records of one address share its ids.", is_fixed=True),
    RouteField(
        "id", "Id", "Empty: the header _DUPL_ID; else a template such as {json:/id}.", is_fixed=True
    ),
    RouteField("missing_id", "A record without an id", options=get_args(MissingId)),
    RouteField(
        "allowed_outputs",
        "Allowed outputs",
        "One on each line; required where the record determines its output.",
        is_list=True,
    ),
    RouteField(
        "reply_topics",
        "Reply topics",
        "One on each line: topics that a record may name in _REPLY_TO.",
        is_list=True,
    ),
    RouteField(
        "on_partitions_added",
        "If an input gets more partitions",
        options=get_args(OnPartitionsAdded),
    ),
)


def add(routes: APIRouter) -> None:
    """Add the routes of the pages."""
    _add_reading(routes)
    _add_editing(routes)
    _add_history(routes)


def _add_reading(routes: APIRouter) -> None:
    @routes.get("/console/settings")
    @shows_problems("settings")
    async def settings(request: Request) -> Response:
        """Show all settings."""
        api = ConsoleClient(request)
        return await page(
            request,
            "settings.html",
            section="settings",
            routes=await api.get("/v1/routes", {"page_size": 1000}),
            patterns=await api.get("/v1/address-settings", {"page_size": 1000}),
            revisions=await api.get("/v1/settings/revisions", {"page_size": 20}),
            keys=own_keys,
            done=query_of(request).get("done", ""),
        )

    @routes.post("/console/settings/pause")
    @shows_problems("settings")
    async def pause(request: Request) -> Response:
        """Pause or resume a route."""
        form = await read(request)
        what = "resume" if form.get("what") == "resume" else "pause"
        path = f"/v1/routes/{segment(form.get('name', ''))}:{what}"
        query = {"reason": form.get("reason", ""), "wait": "applied", "timeout": "5s"}
        (await ConsoleClient(request).send("POST", path, query)).required()
        return redirect("/console/settings", done=what)


def _add_editing(routes: APIRouter) -> None:
    @routes.get("/console/settings/edit")
    @shows_problems("settings")
    async def edit(request: Request) -> Response:
        """Show a route, or the settings of a pattern, as TOML to edit."""
        params = query_of(request)
        kind, name = _kind(params), params.get("name", "")
        found = await ConsoleClient(request).get(_path(kind, name)) if name else None
        keys = own_keys(found.document) if found is not None and found.ok else {}
        proposed = {key[4:]: _value(text) for key, text in params.items() if key.startswith("set.")}
        return await page(
            request,
            "edit.html",
            section="settings",
            kind=kind,
            name=name,
            etag=found.etag if found is not None and found.ok else None,
            text=as_toml({**keys, **proposed}),
            fields=_fields({**keys, **proposed}, kind),
            problem=None,
            reason="",
        )

    @routes.post("/console/settings/edit")
    @shows_problems("settings")
    async def edit_again(request: Request) -> Response:
        """Return from the preview to the form, as it was filled in."""
        return await _edit_page(request, await read(request), None)

    @routes.post("/console/settings/preview")
    @shows_problems("settings")
    async def preview(request: Request) -> Response:
        """Show what a change would do; nothing has changed yet."""
        form = _with_text(await read(request, *_FIELDS))
        tried = await _send_change(ConsoleClient(request), form, dry_run=True)
        if not tried.ok:
            return await _edit_page(request, form, tried.problem)
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
    @shows_problems("settings")
    async def apply(request: Request) -> Response:
        """Make the change."""
        form = await read(request, *_FIELDS)
        made = await _send_change(ConsoleClient(request), form, dry_run=False)
        if not made.ok:
            return await _edit_page(request, form, made.problem)
        return redirect(
            "/console/settings", done="written" if made.document["applied"] is False else "applied"
        )


def _add_history(routes: APIRouter) -> None:
    @routes.get("/console/settings/revision")
    @shows_problems("settings")
    async def revision(request: Request) -> Response:
        """Show a revision, and its differences to the current settings."""
        api, number = ConsoleClient(request), segment(query_of(request).get("number", ""))
        found = (await api.get(f"/v1/settings/revisions/{number}")).required()
        now = (await api.get("/v1/settings")).required()
        return await page(
            request,
            "revision.html",
            section="settings",
            found=found,
            lines=between(now, found["settings"], ignored=("revision",)),
            etag=(await api.get("/v1/settings")).etag,
        )

    @routes.post("/console/settings/rollback")
    @shows_problems("settings")
    async def rollback(request: Request) -> Response:
        """Restore the settings of a revision."""
        form = await read(request)
        path = f"/v1/settings/revisions/{segment(form.get('number', ''))}:rollback"
        query = {"reason": form.get("reason", ""), "wait": "applied", "timeout": "5s"}
        if form.get("force"):
            query["force"] = "true"
        headers = {"If-Match": form["etag"]} if form.get("etag") else {}
        (await ConsoleClient(request).send("POST", path, query, headers=headers)).required()
        return redirect("/console/settings", done="rollback")


async def _send_change(api: ConsoleClient, form: dict[str, str], *, dry_run: bool) -> ApiReply:
    """Send the PUT or DELETE of a form."""
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


async def _edit_page(
    request: Request, form: dict[str, str], problem: ApiProblem | None
) -> Response:
    """Show the form as it was filled in, with its errors."""
    keys: dict[str, Any] = {}
    with suppress(ValueError):  # the problem says so
        keys = from_toml(form.get("text", ""))
    return await page(
        request,
        "edit.html",
        section="settings",
        status=200 if problem is None else problem.status,
        kind=_kind(form),
        name=form.get("name", ""),
        etag=form.get("etag") or None,
        text=form.get("text", ""),
        fields=_fields(keys, _kind(form)),
        problem=problem,
        reason=form.get("reason", ""),
    )


def _with_text(form: dict[str, str]) -> dict[str, str]:
    """Return a form whose text has the keys that the fields of a route contain."""
    entered = {
        each.key: each.value(form[_KEY + each.key])
        for each in ROUTE_FIELDS
        if form.get(_KEY + each.key)
    }
    return {**form, "text": as_toml(entered)} if entered else form


def _fields(keys: Mapping[str, object], kind: str) -> list[tuple[RouteField, str]] | None:
    """Return the fields of a route and their values; None if they cannot contain all keys."""
    if kind != "route" or keys.keys() - {each.key for each in ROUTE_FIELDS}:
        return None
    return [(each, each.shown(keys.get(each.key, ""))) for each in ROUTE_FIELDS]


def own_keys(document: Document) -> dict[str, Any]:
    """Return the settings in a document, without its read-only fields."""
    return {key: value for key, value in document.items() if key not in _READ_ONLY}


def _kind(params: dict[str, str]) -> str:
    kind = params.get("kind", "")
    if kind not in COLLECTIONS:
        detail = (
            "Settings belong to a route or an address pattern; choose one on the settings page."
        )
        raise PageFailed(ApiProblem(NOT_FOUND.status, NOT_FOUND.name, NOT_FOUND.title, detail))
    return kind


def _path(kind: str, name: str) -> str:
    return f"{COLLECTIONS[kind]}/{segment(name)}"


def _value(text: str) -> str | int | bool:
    if text in {"True", "False"}:
        return text == "True"
    return int(text) if re.fullmatch(r"[0-9]{1,18}", text) else text
