"""Console client: requests to the admin API in the same process, with the browser's credentials.

Every read and every change passes through the whole application, so that roles, preconditions,
idempotency and the audit log apply to a page as to any client. The page shows an error of the API
as a problem.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final, NamedTuple

import httpx2
from starlette.requests import Request

from ringfence_api.problems import INTERNAL, INVALID, TYPE_PREFIX

_FORWARDED: Final = ("host", "origin", "cookie", "authorization", "x-forwarded-for", "user-agent")
_BASE: Final = "http://console"
"""Never resolved: the Host header of the browser is forwarded."""

Document = dict[str, Any]
Query = Mapping[str, str | float | None]


class ApiProblem(NamedTuple):
    """A problem that the API returned."""

    status: int
    kind: str
    title: str
    detail: str
    faults: tuple[tuple[str, str], ...] = ()
    """JSON Pointer and detail of each error in the request."""


class PageFailed(Exception):  # noqa: N818 - an outcome, not an error
    """The API refused a request that the page depends on."""

    def __init__(self, problem: ApiProblem) -> None:
        super().__init__(problem.detail)
        self.problem = problem


class ApiReply(NamedTuple):
    """A response of the API: a document or a problem."""

    document: Document
    etag: str | None = None
    problem: ApiProblem | None = None
    headers: Mapping[str, str] = {}
    as_of: datetime | None = None
    """When it was asked for, if it is an earlier answer."""

    @property
    def ok(self) -> bool:
        """Whether the response is not a problem."""
        return self.problem is None

    def required(self) -> Document:
        """Return the document. Raise PageFailed for a problem."""
        if self.problem is not None:
            raise PageFailed(self.problem)
        return self.document


class ConsoleClient:
    """The admin API, called on behalf of a request of a browser."""

    def __init__(self, request: Request) -> None:
        client = request.client
        address = ("127.0.0.1", 0) if client is None else (client.host, client.port)
        self._transport = httpx2.ASGITransport(
            app=request.app, raise_app_exceptions=False, client=address
        )
        self._headers = [each for each in request.headers.raw if each[0].decode() in _FORWARDED]

    async def get(self, path: str, query: Query | None = None) -> ApiReply:
        """Read a resource."""
        return await self.send("GET", path, query)

    async def send(
        self,
        method: str,
        path: str,
        query: Query | None = None,
        *,
        body: object = None,
        headers: Mapping[str, str] | None = None,
    ) -> ApiReply:
        """Send a request with `body` as JSON; query parameters that are None are omitted."""
        params = {key: _text(value) for key, value in (query or {}).items() if value is not None}
        added = [(n.encode(), v.encode("latin-1", "replace")) for n, v in (headers or {}).items()]
        try:
            request = httpx2.Request(
                method,
                f"{_BASE}{path}",
                params=params or None,
                json=body,
                headers=[*self._headers, *added],
            )
        except httpx2.InvalidURL:
            detail = "A name is too long for a page; use the API or the command line."
            return ApiReply(
                {}, problem=ApiProblem(INVALID.status, INVALID.name, INVALID.title, detail)
            )
        response = await self._transport.handle_async_request(request)
        await response.aread()
        return _reply(response)


def _text(value: str | float) -> str:  # true and false as in JSON
    return str(value).lower() if isinstance(value, bool) else str(value)


def _reply(response: httpx2.Response) -> ApiReply:
    kind = response.headers.get("content-type", "").partition(";")[0]
    document = response.json() if kind.endswith("json") and response.content else {}
    if response.is_success:
        return ApiReply(document, response.headers.get("etag"), None, dict(response.headers))
    if "detail" not in document:  # an error without a problem document
        document = {
            "title": INTERNAL.title,
            "detail": "See the log of the service for the reason, and try again.",
        }
    problem = problem_in(document, response.status_code)
    return ApiReply(document, response.headers.get("etag"), problem, dict(response.headers))


def problem_in(document: Document, status: int) -> ApiProblem:
    """Return the problem in a document."""
    faults = tuple((each["pointer"], each["detail"]) for each in document.get("errors", ()))
    kind = str(document.get("type", "")).removeprefix(TYPE_PREFIX)
    return ApiProblem(status, kind, document.get("title", ""), document["detail"], faults)
