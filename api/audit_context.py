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
    str, Query(max_length=1_000, description="Why; it is kept beside the change in the audit.")
]


DryRun = Annotated[bool, Query(description="Change nothing; tell what the change would come to.")]


class AuditedChange(NamedTuple):
    """What a write changed; both sides can be written as JSON, and None is nothing."""

    before: object
    after: object


def actor_of(request: Request) -> str:
    """Who asks, as authentication found; `anonymous` without it."""
    return actor_in(request.scope)


def actor_in(scope: Scope) -> str:
    """Who asks, by the scope of the request."""
    return str(scope.get(_ACTOR, ANONYMOUS))


def set_actor(scope: Scope, name: str) -> None:
    """Name who asks, once it is known."""
    scope[_ACTOR] = name


def changed(request: Request, *, before: object = None, after: object = None) -> None:
    """Tell what this request changed, for the audit."""
    request.scope[_CHANGE] = AuditedChange(before, after)


def change_of(scope: Scope) -> AuditedChange | None:
    """What a request changed, if its resource told."""
    change = scope.get(_CHANGE)
    return change if isinstance(change, AuditedChange) else None


class RequestedChange(NamedTuple):
    """A change that is asked for, or tried out."""

    request: Request
    dry_run: bool = False

    def changed(self, *, before: object = None, after: object = None) -> None:
        """Tell what was changed; nothing was where it was only tried out."""
        if not self.dry_run:
            changed(self.request, before=before, after=after)


async def _reasoned(request: Request, reason: Reason = "") -> RequestedChange:  # noqa: ARG001 - the audit reads it
    return RequestedChange(request)


async def _tried(
    request: Request,
    *,
    dry_run: DryRun = False,
    reason: Reason = "",  # noqa: ARG001 - as above
) -> RequestedChange:
    return RequestedChange(request, dry_run)


Reasoned = Annotated[RequestedChange, Depends(_reasoned)]
"""Of a change that is made at once."""
Tried = Annotated[RequestedChange, Depends(_tried)]
"""Of one that can be tried out."""
