"""Audit context: who makes a change, why, and what it changed, carried in the request's scope.

A resource records the values before and after; the audit middleware reads them when the response
is ready.
"""

from typing import Annotated, Final, NamedTuple

from fastapi import Depends, Query, Request
from starlette.types import Scope

ANONYMOUS: Final = "anonymous"
_ACTOR: Final = "ringfence.actor"
_CHANGE: Final = "ringfence.change"

Reason = Annotated[
    str, Query(max_length=1_000, description="Why the change is made; kept in the audit log.")
]


DryRun = Annotated[bool, Query(description="Change nothing; return what the change would do.")]


class AuditedChange(NamedTuple):
    """What a request changed: JSON values before and after; None means absent."""

    before: object
    after: object


def actor_of(request: Request) -> str:
    """Return the name of the authenticated client; `anonymous` without authentication."""
    return actor_in(request.scope)


def actor_in(scope: Scope) -> str:
    """Return the name of the client, given the scope of its request."""
    return str(scope.get(_ACTOR, ANONYMOUS))


def set_actor(scope: Scope, name: str) -> None:
    """Store the name of the authenticated client in the scope."""
    scope[_ACTOR] = name


def changed(request: Request, *, before: object = None, after: object = None) -> None:
    """Record what this request changed, for the audit log."""
    request.scope[_CHANGE] = AuditedChange(before, after)


def change_of(scope: Scope) -> AuditedChange | None:
    """Return what a request changed; None if its resource recorded nothing."""
    change = scope.get(_CHANGE)
    return change if isinstance(change, AuditedChange) else None


class RequestedChange(NamedTuple):
    """A requested change, or a dry run of it."""

    request: Request
    dry_run: bool = False

    def changed(self, *, before: object = None, after: object = None) -> None:
        """Record what was changed, unless this is a dry run."""
        if not self.dry_run:
            changed(self.request, before=before, after=after)


async def _with_reason(request: Request, reason: Reason = "") -> RequestedChange:  # noqa: ARG001 - read by the audit
    return RequestedChange(request)


async def _with_dry_run(
    request: Request,
    *,
    dry_run: DryRun = False,
    reason: Reason = "",  # noqa: ARG001 - as above
) -> RequestedChange:
    return RequestedChange(request, dry_run)


WithReason = Annotated[RequestedChange, Depends(_with_reason)]
"""A change without a dry run."""
WithDryRun = Annotated[RequestedChange, Depends(_with_dry_run)]
"""A change that supports a dry run."""
