"""Body limit: the bytes of one body, the memory of all bodies in progress, and their time.

Each operation has a limit for its body, and each kind of client a share of memory: nobody without
credentials takes memory from viewers, nor a viewer from operators. A body that declares its length
is refused before any of it is read. A body in progress is charged for what arrives of it, until
its request has ended.

The lines of an import are processed as they arrive, so there is no limit to their number; with an
`Idempotency-Key` they are buffered whole, and limited.
"""

import asyncio
from typing import Final, NamedTuple

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ringfence_api import problems
from ringfence_api.auth.authorize import rule_of
from ringfence_api.connections import HEAD_BYTES_MAX
from ringfence_api.content import NDJSON
from ringfence_api.middleware.idempotency import HEADER
from ringfence_api.principal import FREE, AccessRule, principal_in
from ringfence_service.config.tokens import LEVELS

STRANGERS_BYTES_MAX: Final = 64 * 1024
"""Without credentials: the form of the login, whose token has up to 20,000 characters."""
VIEWERS_BYTES_MAX: Final = 1024 * 1024
"""For a query: a lookup names up to 1,000 ids."""
_FORM_BYTES_MAX: Final = HEAD_BYTES_MAX
"""For a page of the console: what a form names becomes a path of the API."""
BODY_S_MAX: Final = 120.0
"""For a whole body that is held in memory; the largest one then needs about 1 Mbit/s."""

TEXT_COPIES: Final = 6
"""A byte of a body is held once as it came, four times as text if one character of the text needs
four bytes, and once as the id that it names."""
VALUE_BYTES: Final = 96
"""What a JSON value or a form field takes beside its text, as measured for the smallest ones."""
_SEPARATORS: Final = b",:[{&\n"
"""At least one of them comes with each JSON value, form field and line."""
_CHARGE_PER_BYTE_MAX: Final = 10
"""The largest charge of one body, as a multiple of its byte limit: six for the text, and four for
values of some 24 bytes each. A body of nothing but separators would take a hundred."""

_STRANGERS_SHARE_BYTES: Final = 48 * 1024 * 1024
"""More than the connections of one address can take: 64 of 640 KiB."""
_VIEWERS_SHARE_BYTES: Final = 20 * 1024 * 1024
"""Two of the largest queries. With what the server reads ahead it stays below 32 MiB."""

_INTERNAL: Final = "/v1/internal/"
_CONSOLE: Final = "/console"
_IMPORT: Final = ":import"
_GROWTH: Final = 4


class BodyRefused(HTTPException):
    """A body is refused: the problem and its sentence."""

    def __init__(self, kind: problems.ProblemKind, sentence: str, retry_after_s: int = 0) -> None:
        headers = {"Connection": "close"}
        if retry_after_s:
            headers["Retry-After"] = str(retry_after_s)
        super().__init__(kind.status, sentence, headers)
        self.kind = kind


class Share:
    """The memory that the bodies of one kind of client may take together, in bytes."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.bytes = 0


class _Limit(NamedTuple):
    """The limits of one body."""

    bytes_max: int
    share: Share

    @property
    def charge_max(self) -> int:
        """The largest charge: a body that can never fit in its share is too large."""
        bytes_max = max(self.bytes_max, STRANGERS_BYTES_MAX)  # a small body comes in many pieces
        return min(bytes_max * _CHARGE_PER_BYTE_MAX, self.share.bytes_max)


class BodyBudget:
    """The limits of all bodies of an application, and the memory that they take."""

    def __init__(self, bytes_max: int) -> None:
        """Take `api.body_bytes_max`, the limit for a change."""
        self.bytes_max = bytes_max
        self.strangers = Share(_STRANGERS_SHARE_BYTES)
        self.viewers = Share(_VIEWERS_SHARE_BYTES)
        self.changes = Share(max(bytes_max * _CHARGE_PER_BYTE_MAX, _VIEWERS_SHARE_BYTES))

    def limit_of(self, scope: Scope) -> _Limit:
        """Return the limits of a body, by the operation and the roles of its client."""
        rule = rule_of(scope)
        if (rule.path or "").startswith(_INTERNAL):
            # Its handler checks the signature of another instance before it reads the body. What
            # an instance passes on grows by its encoding.
            return _Limit(self.bytes_max * _GROWTH, self.changes)
        if rule.role == FREE:
            return _Limit(min(self.bytes_max, STRANGERS_BYTES_MAX), self.strangers)
        may_change = principal_in(scope).may(LEVELS[1])
        return _Limit(self._bytes_max_of(rule), self.changes if may_change else self.viewers)

    def _bytes_max_of(self, rule: AccessRule) -> int:
        if rule.is_write:
            return self.bytes_max
        is_page = (rule.path or "").startswith(_CONSOLE)
        return min(self.bytes_max, _FORM_BYTES_MAX if is_page else VIEWERS_BYTES_MAX)


class BodyLimitMiddleware:
    """ASGI middleware around everything that reads a body."""

    def __init__(self, app: ASGIApp, budget: BodyBudget) -> None:
        self._app = app
        self._budget = budget

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, and count what is read of its body."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        if _is_streamed(rule_of(scope), headers):
            await self._app(scope, receive, send)
            return
        body = _HeldBody(receive, self._budget.limit_of(scope))
        try:
            body.declare(headers.get("content-length", ""))
            await self._app(scope, body.receive, send)
        except BodyRefused as refused:
            await on_body_refused(Request(scope), refused)(scope, receive, send)
        finally:
            body.release()


class _HeldBody:
    """A body in progress, and its part of a share."""

    def __init__(self, receive: Receive, limit: _Limit) -> None:
        self._receive = receive
        self._limit = limit
        self._bytes = 0
        self._charge = 0
        self._deadline_s = asyncio.get_running_loop().time() + BODY_S_MAX
        self._is_whole = False

    def declare(self, length: str) -> None:
        """Raise BodyRefused for a declared length beyond the limit."""
        if length.isdecimal() and int(length) > self._limit.bytes_max:
            raise self._too_large()

    async def receive(self) -> Message:
        """Receive the next piece and charge for it. Raise BodyRefused beyond the limits."""
        if self._is_whole:  # what comes now is that the client has gone
            return await self._receive()
        try:
            async with asyncio.timeout_at(self._deadline_s):
                message = await self._receive()
        except TimeoutError:
            sentence = f"The body has not arrived within {BODY_S_MAX:g} s; send it again."
            raise BodyRefused(problems.TOO_SLOW, sentence) from None
        self._is_whole = not message.get("more_body", False)
        self._add(message.get("body", b""))
        return message

    def release(self) -> None:
        """Return the part of the share."""
        self._limit.share.bytes -= self._charge
        self._charge = 0

    def _add(self, piece: bytes) -> None:
        limit = self._limit
        self._bytes += len(piece)
        charge = charge_of(piece)
        if self._bytes > limit.bytes_max:
            raise self._too_large()
        if self._charge + charge > limit.charge_max:
            sentence = "The body has too many values for one request; send several requests."
            raise BodyRefused(problems.TOO_LARGE, sentence)
        if limit.share.bytes + charge > limit.share.bytes_max:
            sentence = "Other requests take the memory for bodies; send this one again."
            raise BodyRefused(problems.UNAVAILABLE, sentence, retry_after_s=1)
        self._charge += charge
        limit.share.bytes += charge

    def _too_large(self) -> BodyRefused:
        sentence = (
            f"The body of this request has at most {self._limit.bytes_max} bytes;"
            " api.body_bytes_max sets the limit for changes."
        )
        return BodyRefused(problems.TOO_LARGE, sentence)


def charge_of(piece: bytes) -> int:
    """Return the bytes of memory that a piece of a body takes at most while its request runs."""
    separators = len(piece) - len(bytes(piece).translate(None, _SEPARATORS))
    return TEXT_COPIES * len(piece) + VALUE_BYTES * (1 + separators)


def on_body_refused(request: Request, refused: BodyRefused) -> Response:
    """Respond to a request whose body is refused; the rest of the body is not read."""
    return problems.problem_response(
        refused.kind, str(refused.detail), request.scope, headers=refused.headers
    )


def _is_streamed(rule: AccessRule, headers: Headers) -> bool:
    """Return whether the body is processed line by line and never held as a whole."""
    return (
        rule.is_write
        and (rule.path or "").endswith(_IMPORT)
        and headers.get("content-type", "").partition(";")[0].strip().lower() == NDJSON
        and HEADER not in headers
    )
