"""Rendering: a template and an answer of the API become a page.

Everything is escaped, and every character is visible: characters that change the direction of a
line or have no width are written out, except in fields, which send what they contain (`exact`). A
misspelled name in a template is an error, not an empty place. The content policy lets a page load
its own style, script and pictures, send its own forms, and nothing else.
"""

import hashlib
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from functools import wraps
from importlib import resources
from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from api.console import charts
from api.console import formatting as words
from api.console.client import ApiProblem, ConsoleClient, PageFailed
from api.console.forms import to
from api.principal import principal_of
from service.printable import visible

POLICY: Final = (
    "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self';"
    " form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)

MEDIA_TYPES: Final = {
    "style.css": "text/css; charset=utf-8",
    "script.js": "text/javascript; charset=utf-8",
    "icon.svg": "image/svg+xml",
}


def asset(name: str) -> bytes:
    """A file that pages load."""
    return resources.files("api.console").joinpath("assets", name).read_bytes()


ASSETS: Final = {name: asset(name) for name in MEDIA_TYPES}

ASSET_VERSION: Final = hashlib.sha256(b"".join(ASSETS.values())).hexdigest()[:12]


async def page(
    request: Request,
    template: str,
    *,
    section: str,
    status: int = 200,
    **told: Any,  # noqa: ANN401 - a template takes what its page has
) -> Response:
    """Draw a page; what surrounds it tells which service this is."""
    api = ConsoleClient(request)
    info = await api.get("/v1/info")
    around = {
        "section": section,
        "info": info.needed() if template != "error.html" else info.document,
        "waiting_for": (await api.get("/v1/status")).document.get("waiting_for"),
        "here": _here(request),
        "now": datetime.now(UTC),
        "who": principal_of(request),
    }
    return _html(template, {**around, **told}, status)


def _here(request: Request) -> str:
    """The address of the page on this service, whatever host its request names."""
    query = bytes(request.scope["query_string"]).decode("latin-1")
    return f"{request.scope['path']}?{query}" if query else str(request.scope["path"])


def bare(template: str, status: int = 200, **told: Any) -> Response:  # noqa: ANN401 - see page
    """Draw a page for somebody who may not be told anything yet."""
    return _html(template, {"now": datetime.now(UTC), **told}, status)


async def refusal(request: Request, problem: ApiProblem, section: str = "") -> Response:
    """Draw the page of a problem, under the status that the API gave it."""
    return await page(
        request, "error.html", section=section, status=problem.status, problem=problem
    )


def _html(template: str, told: dict[str, Any], status: int) -> Response:
    text = _ENVIRONMENT.get_template(template).render(told)
    headers = {"Content-Security-Policy": POLICY, "Referrer-Policy": "same-origin"}
    return HTMLResponse(text, status, headers)


def _time(text: str | None, now: datetime) -> Markup | str:
    """A time: of the day as it is read, exact for who points at it or has it read out."""
    time = words.moment(text)
    if time is None:
        return words.NONE
    exact = time.astimezone(UTC).isoformat().replace("+00:00", "Z")
    return Markup('<time datetime="{0}" title="{0}">{1}</time>').format(
        exact, words.clock(time, now)
    )


def _since(text: str | None, now: datetime) -> Markup | str:
    """How long ago."""
    time = words.moment(text)
    if time is None:
        return words.NONE
    exact = time.astimezone(UTC).isoformat().replace("+00:00", "Z")
    return Markup('<time datetime="{0}" title="{0}">{1}</time>').format(exact, words.ago(time, now))


def _seen(value: object) -> object:
    """What stands in a page; whatever is made by a filter or a macro has gone by here."""
    if isinstance(value, str) and not isinstance(value, Markup):
        return visible(value, keep="\n\t")
    return value


def _environment() -> Environment:
    environment = Environment(
        finalize=_seen,
        loader=PackageLoader("api.console"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    for name in (
        "number",
        "rate",
        "short",
        "size",
        "duration",
        "seconds",
        "percent",
        "plural",
        "sentence",
    ):
        environment.filters[name] = getattr(words, name)
    environment.filters["exact"] = Markup.escape
    environment.filters["at"] = _time
    environment.filters["since"] = _since
    environment.globals["short_scale"] = words.short
    environment.globals["version"] = ASSET_VERSION
    environment.globals["to"] = to
    environment.globals["sparkline"] = charts.sparkline
    return environment


_ENVIRONMENT: Final = _environment()

Handler = Callable[[Request], Awaitable[Response]]


def shown(section: str) -> Callable[[Handler], Handler]:
    """Show the problem of a handler that fails, as a page of its section."""

    def around(handler: Handler) -> Handler:
        @wraps(handler)
        async def answered(request: Request) -> Response:
            try:
                return await handler(request)
            except PageFailed as failed:
                return await refusal(request, failed.problem, section)

        return answered

    return around
