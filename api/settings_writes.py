"""Settings writes: how every resource of settings makes its change: tried, written, waited for."""

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Final, Literal, NamedTuple, cast

from fastapi import Depends, Query, Request, Response
from pydantic import AfterValidator
from starlette.concurrency import run_in_threadpool

from api.documents import Responses, errors
from api.preconditions import DryRun, IfMatch, IfNoneMatch, Preconditions, tell_etag
from api.problems import (
    BREAKS_RULES,
    EXISTS,
    MANAGED_BY_FILE,
    MATCH_REQUIRED,
    NEEDS_FORCE,
    STALE,
    UNAVAILABLE,
    Extras,
    FieldError,
    Refusal,
    pointer,
)
from api.settings_schemas import Forgetting, Outcome
from api.view import ServiceView
from api.writes import Reason, actor_of, changed
from service.addresses import AddressBook
from service.changes import Change, Edited, SettingsDesk, SettingsRefused
from service.config import Config
from service.differences import differences
from service.overlay import Fault, Overlay
from service.queries.settings import ForgottenQuery, Setting
from service.sizing import duration_ms

_WAIT_S_MAX: Final = 60.0
_ELSEWHERE: Final = ("strategy", "persist_id_cache")

WRITES: Final[Responses] = {
    **errors(MANAGED_BY_FILE, EXISTS, STALE, BREAKS_RULES, MATCH_REQUIRED, UNAVAILABLE),
    202: {
        "description": "Written, and not applied everywhere before the time was over.",
        "model": Outcome,
    },
}
ADMIN: Final[dict[str, Any]] = {"x-role": "admin"}

Describe = Callable[[Config, Overlay, int], dict[str, Any] | None]
"""The document that is changed, with its ETag, as it is with this overlay; None where it is not."""


def _seconds(text: str) -> str:
    if duration_ms(text) is None:
        raise ValueError("a duration is written as 500ms, 10s or PT10S")
    return text


class Place(NamedTuple):
    """Where something stands that a PUT may make."""

    section: str
    name: str
    path: str


class Writing(NamedTuple):
    """A change that is asked for, and how it is to be made."""

    request: Request
    response: Response
    dry_run: bool
    wait: bool
    timeout_s: float
    force: bool
    reason: str
    preconditions: Preconditions = Preconditions(None)


async def _writing(
    request: Request,
    response: Response,
    *,
    dry_run: DryRun = False,
    wait: Annotated[
        Literal["applied"] | None,
        Query(description="`applied`: answer when every deciding partition goes by it."),
    ] = None,
    within: Annotated[
        str,
        AfterValidator(_seconds),
        Query(
            alias="timeout",
            description="How long to wait at most, up to a minute: `PT10S`, `10s`, `500ms`.",
        ),
    ] = "10s",
    force: Annotated[
        bool, Query(description="Change the strategy of addresses that remember something.")
    ] = False,
    reason: Reason = "",
) -> Writing:
    """Read the parameters that all writes of settings have."""
    timeout_s = min(_WAIT_S_MAX, (duration_ms(within) or 0) / 1000)
    return Writing(request, response, dry_run, wait is not None, timeout_s, force, reason)


_Writing = Annotated[Writing, Depends(_writing)]


async def _changing(how: _Writing, if_match: IfMatch = None) -> Writing:
    return how._replace(preconditions=Preconditions(if_match))


async def _making(
    how: _Writing, if_match: IfMatch = None, if_none_match: IfNoneMatch = None
) -> Writing:
    return how._replace(preconditions=Preconditions(if_match, if_none_match))


How = Annotated[Writing, Depends(_changing)]
HowMade = Annotated[Writing, Depends(_making)]
"""Of what may be new."""


async def write(
    view: ServiceView,
    how: Writing,
    change: Change,
    describe: Describe,
    place: Place | None = None,
) -> Outcome:
    """Make a change, or try it out; `place` is where its body stands, which may be new."""
    desk = desk_of(view)
    if desk.read().file.service.managed_by == "file":
        sentence = (
            'service.managed_by is "file": change the file and restart, or write '
            'managed_by = "rest" there.'
        )
        raise Refusal(MANAGED_BY_FILE, sentence)
    prefix = () if place is None else (place.section, place.name)
    tried = await _ruled(lambda: desk.try_out(change), prefix)
    forgets = None if how.force and not how.dry_run else await _forgets(view, tried, how)
    edited = tried
    if not how.dry_run:
        actor = actor_of(how.request)
        edited = await _ruled(lambda: desk.edit(change, actor=actor, reason=how.reason), prefix)
    was, now = edited.before, edited.overlay
    before = describe(was.effective.config, was.readable, was.revision)
    after = describe(edited.effective.config, now, edited.revision)
    applied: bool | None = None
    if not how.dry_run:
        changed(how.request, before=before, after=after)
        if place is not None and before is None:
            how.response.status_code = 201
            how.response.headers["Location"] = place.path
        if how.wait:
            applied = await run_in_threadpool(desk.wait, edited, how.timeout_s)
            if not applied:
                how.response.status_code = 202
        if after is not None:
            tell_etag(how.response, after["etag"])
    return Outcome(
        dry_run=how.dry_run,
        revision=edited.revision,
        applied=applied,
        before=before,
        after=after,
        effect=differences(was.readable, now),
        forgets=forgets,
    )


def desk_of(view: ServiceView) -> SettingsDesk:
    """Where settings are changed."""
    assert view.settings is not None  # who has these resources has it
    return view.settings


async def _ruled(step: Callable[[], Edited], prefix: tuple[str, ...]) -> Edited:
    """Run a step that may block; what breaks the rules is told with its place in the body."""
    try:
        return await run_in_threadpool(step)
    except SettingsRefused as refused:
        faults = tuple(_field_error(fault, prefix) for fault in refused.faults)
        raise Refusal(BREAKS_RULES, str(refused), extras=Extras(errors=faults)) from refused


def _field_error(fault: Fault, prefix: tuple[str, ...]) -> FieldError:
    path = fault.path
    steps = path[len(prefix) :] if path[: len(prefix)] == prefix else ()
    return FieldError(pointer=pointer("body", *steps), detail=str(fault.problem), code="rule")


async def _forgets(view: ServiceView, tried: Edited, how: Writing) -> Forgetting | None:
    """What addresses would forget: asked for a dry run, and where force may be needed."""
    before, after = tried.before.effective.config.addresses, tried.effective.config.addresses
    if before.patterns == after.patterns or not (how.dry_run or _is_elsewhere(before, after)):
        return None
    checked = cast("Mapping[str, Mapping[str, Setting]]", after.patterns)  # as all of a book is
    answer = await view.inbox.ask(ForgottenQuery(checked), view.ask_timeout_s)
    forgetting = Forgetting.of(answer)
    is_safe = answer.complete and not forgetting.needs_force
    if how.dry_run or how.force or is_safe:
        return forgetting
    what = (
        f"{answer.needs_force} caches remember in a way that ends with this, and would forget "
        f"{answer.ids_forgotten} ids"
    )
    if not forgetting.needs_force:
        what = "Other instances may remember in a way that ends with this, and cannot be asked here"
    raise Refusal(NEEDS_FORCE, f"{what}; look at the dry run, and send force=true.")


def _is_elsewhere(before: AddressBook, after: AddressBook) -> bool:
    """Whether some pattern gives another way of remembering."""
    return any(_ways(before.patterns, key) != _ways(after.patterns, key) for key in _ELSEWHERE)


def _ways(patterns: Mapping[str, Mapping[str, object]], key: str) -> dict[str, object]:
    return {pattern: keys[key] for pattern, keys in patterns.items() if key in keys}
