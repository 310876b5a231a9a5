"""Audit middleware: records a request that may make a change before it runs, and its outcome after.

If the first record cannot be written, the request is refused (503). The second one is written
before the response is sent, so a client that has the response finds a complete record.
"""

import time
from typing import Final
from urllib.parse import parse_qsl, urlencode

import structlog
from anyio import to_thread
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ringfence_api import problems
from ringfence_api.audit_context import actor_in, change_of
from ringfence_api.auth.authorize import client_of, rule_of
from ringfence_api.ports import AuditPort
from ringfence_api.principal import SAFE, principal_in
from ringfence_service.metadata.audit import AuditRecord, new_id
from ringfence_service.queries.errors import Unavailable

_REASON: Final = "reason"
_log = structlog.stdlib.get_logger(__name__)


class AuditMiddleware:
    """ASGI middleware around the operations that may make changes."""

    def __init__(self, app: ASGIApp, log: AuditPort) -> None:
        self._app = app
        self._log = log

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Record a change, then pass the request on."""
        if scope["type"] != "http" or not rule_of(scope).is_write or scope["method"] in SAFE:
            await self._app(scope, receive, send)
            return
        record = _intent(scope)
        try:
            await to_thread.run_sync(self._log.write, record)
        except Unavailable as error:
            refusal = problems.try_later(error, scope, problems.NOT_AUDITED)
            await refusal(scope, receive, send)
            return
        await self._record_outcome(record, scope, receive, send)

    async def _record_outcome(
        self, record: AuditRecord, scope: Scope, receive: Receive, send: Send
    ) -> None:
        started_s, is_recorded = time.monotonic(), False

        async def record_end(status: int) -> None:
            nonlocal is_recorded
            is_recorded = True
            change = change_of(scope)
            done = record._replace(
                before=None if change is None else change.before,
                after=None if change is None else change.after,
                status=status,
                duration_ms=round((time.monotonic() - started_s) * 1000),
            )
            await to_thread.run_sync(self._write_outcome, done)

        async def send_recorded(message: Message) -> None:
            if message["type"] == "http.response.start":
                await record_end(int(message["status"]))
            await send(message)

        try:
            await self._app(scope, receive, send_recorded)
        except Exception:
            if not is_recorded:
                await record_end(problems.INTERNAL.status)
            raise

    def _write_outcome(self, record: AuditRecord) -> None:
        """Write the outcome; the change is already made, so a failure is only logged."""
        _log.info("audit", **record.document)
        try:
            self._log.write(record)
        except Unavailable as error:
            _log.error("audit_outcome_not_written", id=record.id, cause=str(error))


def _intent(scope: Scope) -> AuditRecord:
    now_ms = time.time_ns() // 1_000_000
    query = parse_qsl(bytes(scope["query_string"]).decode("latin-1"), keep_blank_values=True)
    return AuditRecord(
        id=new_id(now_ms),
        time_ms=now_ms,
        actor=actor_in(scope),
        roles=tuple(sorted(principal_in(scope).roles)),
        request_id=problems.trace_id(scope),
        source=client_of(scope),
        method=str(scope["method"]),
        path=str(scope["path"]),
        query=urlencode([pair for pair in query if pair[0] != _REASON]),
        reason=next((value for name, value in query if name == _REASON), ""),
    )
