"""Console client: asks the admin API of its own process with the browser's credentials.

Every read and every change passes through the whole application, so that roles, preconditions,
idempotency and the audit apply to a page as they do to a program. An error of the API is shown as a
problem on the page.
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import httpx2
from starlette.requests import Request

from api.problems import INTERNAL, INVALID, TYPE_PREFIX

_PASSED_ON: Final = ("host", "origin", "cookie", "authorization", "x-forwarded-for", "user-agent")
_BASE: Final = "http://console"
"""Never resolved: the Host header is the browser's."""

Document = dict[str, Any]
Query = Mapping[str, str | float | None]


class ApiProblem(NamedTuple):
    """Why there is no answer, in the API's words."""

    status: int
    kind: str
    title: str
    detail: str
    faults: tuple[tuple[str, str], ...] = ()
    """Places in what was sent, and what is wrong there."""


class PageFailed(Exception):  # noqa: N818 - it is the answer
    """The API has refused what a page cannot do without."""

    def __init__(self, problem: ApiProblem) -> None:
        super().__init__(problem.detail)
        self.problem = problem


class ApiReply(NamedTuple):
    """What the API has answered: a document or a problem."""

    document: Document
    etag: str | None = None
    problem: ApiProblem | None = None
    headers: Mapping[str, str] = {}

    @property
    def ok(self) -> bool:
        """Whether it is a document."""
        return self.problem is None

    def needed(self) -> Document:
        """The document; PageFailed where there is none."""
        if self.problem is not None:
            raise PageFailed(self.problem)
        return self.document


class ConsoleClient:
    """The admin API, asked on behalf of a request."""

    def __init__(self, request: Request) -> None:
        client = request.client
        place = ("127.0.0.1", 0) if client is None else (client.host, client.port)
        self._transport = httpx2.ASGITransport(
            app=request.app, raise_app_exceptions=False, client=place
        )
        self._headers = [each for each in request.headers.raw if each[0].decode() in _PASSED_ON]

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
        """Send a request; `body` goes as JSON. What has no value is left out of the query."""
        told = {key: _text(value) for key, value in (query or {}).items() if value is not None}
        added = [(n.encode(), v.encode("latin-1", "replace")) for n, v in (headers or {}).items()]
        try:
            request = httpx2.Request(
                method,
                f"{_BASE}{path}",
                params=told or None,
                json=body,
                headers=[*self._headers, *added],
            )
        except httpx2.InvalidURL:
            detail = "A name is too long for a page; ask the API or the command line for it."
            return ApiReply(
                {}, problem=ApiProblem(INVALID.status, INVALID.name, INVALID.title, detail)
            )
        response = await self._transport.handle_async_request(request)
        await response.aread()
        return _reply(response)


def _text(value: str | float) -> str:  # JSON's words for true and false
    return str(value).lower() if isinstance(value, bool) else str(value)


def _reply(response: httpx2.Response) -> ApiReply:
    kind = response.headers.get("content-type", "").partition(";")[0]
    document = response.json() if kind.endswith("json") and response.content else {}
    if response.is_success:
        return ApiReply(document, response.headers.get("etag"), None, dict(response.headers))
    if "detail" not in document:  # it broke off: the log has the rest
        document = {"title": INTERNAL.title, "detail": "The log has the reason; try again."}
    problem = problem_in(document, response.status_code)
    return ApiReply(document, response.headers.get("etag"), problem, dict(response.headers))


def problem_in(document: Document, status: int) -> ApiProblem:
    """The problem that a document tells."""
    faults = tuple((each["pointer"], each["detail"]) for each in document.get("errors", ()))
    kind = str(document.get("type", "")).removeprefix(TYPE_PREFIX)
    return ApiProblem(status, kind, document.get("title", ""), document["detail"], faults)
