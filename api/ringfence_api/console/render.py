"""Rendering: builds pages from templates and responses of the API.

Everything is escaped, and every character is visible: characters that change the direction of a
line or have no width are written as escapes, except in input fields, which send their content back
(`exact`). A misspelled name in a template is an error. The content security policy allows a page to
load its own style, script and images and to send its own forms, and nothing else.
"""

import hashlib
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from datetime import UTC, datetime
from functools import wraps
from importlib import resources
from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from ringfence_api.console import charts
from ringfence_api.console.client import ApiProblem, ConsoleClient, PageFailed
from ringfence_api.console.forms import to
from ringfence_api.console.json_text import spans
from ringfence_api.principal import principal_of
from ringfence_service import formatting as words
from ringfence_service.printable import visible
from ringfence_service.schemas.json_text import pointer_of

POLICY: Final = (
    "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self';"
    " form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)

_POSITION: Final = re.compile(r"([\w.-]{1,249}-[0-9]{1,10}@[0-9]{1,19})\b", re.ASCII)
"""A position in a text: topic-partition@offset."""

MEDIA_TYPES: Final = {
    "style.css": "text/css; charset=utf-8",
    "script.js": "text/javascript; charset=utf-8",
    "icon.svg": "image/svg+xml",
}


def asset(name: str) -> bytes:
    """Read a static file."""
    return resources.files("ringfence_api.console").joinpath("assets", name).read_bytes()


ASSETS: Final = {name: asset(name) for name in MEDIA_TYPES}

ASSET_VERSION: Final = hashlib.sha256(b"".join(ASSETS.values())).hexdigest()[:12]


async def page(
    request: Request,
    template: str,
    *,
    section: str,
    status: int = 200,
    **context: Any,  # noqa: ANN401 - the context of a template
) -> Response:
    """Render a page, with a sidebar that identifies the service."""
    api = ConsoleClient(request)
    info, who = await api.get("/v1/info"), principal_of(request)
    may_write = info.document.get("settings_managed_by") == "rest"
    shared = {
        "section": section,
        "info": info.required() if template != "error.html" else info.document,
        "waiting_for": (await api.get("/v1/status")).document.get("waiting_for"),
        "here": _path_and_query(request),
        "as_of": None,
        "now": datetime.now(UTC),
        "who": who,
        "may_pause": who.may("operator") and may_write,
        "may_edit": who.may("admin") and may_write,
    }
    return _html(template, {**shared, **context}, status)


def _path_and_query(request: Request) -> str:
    """Return path and query of the page, without the host, which the client chooses."""
    query = bytes(request.scope["query_string"]).decode("latin-1")
    return f"{request.scope['path']}?{query}" if query else str(request.scope["path"])


def bare_page(template: str, status: int = 200, **context: Any) -> Response:  # noqa: ANN401 - as in page
    """Render a page without a sidebar, for unauthenticated clients."""
    return _html(template, {"now": datetime.now(UTC), **context}, status)


async def problem_page(request: Request, problem: ApiProblem, section: str = "") -> Response:
    """Render a problem as a page with the same status."""
    return await page(
        request, "error.html", section=section, status=problem.status, problem=problem
    )


def _html(template: str, context: dict[str, Any], status: int) -> Response:
    text = _ENVIRONMENT.get_template(template).render(context)
    headers = {"Content-Security-Policy": POLICY, "Referrer-Policy": "same-origin"}
    return HTMLResponse(text, status, headers)


def _time(text: str | datetime | None, now: datetime) -> Markup | str:
    """Format a time; its tooltip, which screen readers read too, has the exact value."""
    time = text if isinstance(text, datetime) else words.moment(text)
    if time is None:
        return words.NONE
    exact = time.astimezone(UTC).isoformat().replace("+00:00", "Z")
    return Markup('<time datetime="{0}" title="{0}" data-clock>{1}</time>').format(
        exact, words.clock(time, now)
    )


def _minute(time: datetime) -> Markup:
    """Format hour and minute of a time in UTC, as text of an SVG element."""
    return Markup('<tspan data-minute="{:%Y-%m-%dT%H:%M:%SZ}">{:%H:%M}</tspan>').format(time, time)


def _since(text: str | None, now: datetime) -> Markup | str:
    """Format how long ago a time was, with the exact value as tooltip."""
    time = words.moment(text)
    if time is None:
        return words.NONE
    exact = time.astimezone(UTC).isoformat().replace("+00:00", "Z")
    return Markup('<time datetime="{0}" title="{0}">{1}</time>').format(exact, words.ago(time, now))


def position_of(record: Mapping[str, Any]) -> str:
    """Return the position of a document with topic, partition and offset."""
    return f"{record['topic']}-{record['partition']}@{record['offset']}"


def _linked(text: str) -> Markup:
    """Return a text in which every position is a link to its record."""
    parts = _POSITION.split(visible(text, keep="\n\t"))
    return Markup("").join(_link(each) if at % 2 else each for at, each in enumerate(parts))


def _link(position: str) -> Markup:
    return Markup('<a class="code" href="{}">{}</a>').format(
        to("/console/record", at=position), position
    )


def _guiding(detail: str) -> Markup:
    """Return what to do about a problem, with a page of the console where it names a path."""
    return Markup('<a href="/">Flow</a>').join(visible(detail, keep="\n\t").split("/v1/status"))


def _pretty(text: str, marked: Iterable[tuple[str, ...]] = ()) -> Markup:
    """Return a document with a line for each member; the lines of some members are marked."""
    mark = Markup("<mark>{}</mark>").format
    shown = ((visible(each.text, keep="\n\t"), each.is_marked) for each in spans(text, marked))
    return Markup("").join(mark(part) if is_marked else part for part, is_marked in shown)


def _visible(value: object) -> object:
    """Make every character of a text visible; markup of filters and macros is already visible."""
    if isinstance(value, str) and not isinstance(value, Markup):
        return visible(value, keep="\n\t")
    return value


def _environment() -> Environment:
    environment = Environment(
        finalize=_visible,
        loader=PackageLoader("ringfence_api.console"),
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
    environment.filters["position"] = position_of
    environment.filters["guiding"] = _guiding
    environment.filters["linked"] = _linked
    environment.filters["pointer"] = pointer_of
    environment.filters["pretty"] = _pretty
    environment.filters["minute"] = _minute
    environment.filters["since"] = _since
    environment.globals["short_scale"] = words.short
    environment.globals["version"] = ASSET_VERSION
    environment.globals["to"] = to
    environment.globals["sparkline"] = charts.sparkline
    return environment


_ENVIRONMENT: Final = _environment()

Handler = Callable[[Request], Awaitable[Response]]


def shows_problems(section: str) -> Callable[[Handler], Handler]:
    """Return a decorator that shows PageFailed of a handler as a page of a section."""

    def decorator(handler: Handler) -> Handler:
        @wraps(handler)
        async def wrapper(request: Request) -> Response:
            try:
                return await handler(request)
            except PageFailed as failed:
                return await problem_page(request, failed.problem, section)

        return wrapper

    return decorator
