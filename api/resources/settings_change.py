"""Settings changes: the steps of every change of settings: try, write, wait for its effect."""

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Annotated, Any, Final, Literal, NamedTuple, Self, cast

from fastapi import Depends, Query, Request, Response
from pydantic import AfterValidator, ConfigDict, Field
from starlette.concurrency import run_in_threadpool

from api.audit_context import Reason, actor_of, changed
from api.openapi import Responses, errors
from api.ports import ServiceView
from api.preconditions import DryRun, IfMatch, IfNoneMatch, Preconditions, etag_of, tell_etag
from api.problems import (
    BREAKS_RULES,
    EXISTS,
    MANAGED_BY_FILE,
    MATCH_REQUIRED,
    NEEDS_FORCE,
    STALE,
    UNAVAILABLE,
    FieldError,
    ProblemError,
    ProblemExtras,
    pointer,
)
from api.schemas import Document, time_of
from service.config.addresses import AddressBook
from service.config.load import Config, RouteSettings
from service.metadata.settings import (
    OverlayError,
    SettingsHistory,
    SettingsOverlay,
    differences,
    keys_of,
)
from service.metadata.settings import SettingsRevision as SettingsDocument
from service.metadata.settings_change import (
    Change,
    InvalidSettingsError,
    SettingsChange,
    SettingsEditor,
)
from service.queries.settings import EvictionAnswer, EvictionQuery, Setting
from service.queries.sizing import duration_ms

Source = Literal["file", "rest"]


class Route(Document):
    """A route in force: all of its keys, where it comes from, whether it is paused."""

    name: str = Field(description="The name of the route.")
    source: Source = Field(description="`rest` where it was set over REST, else `file`.")
    paused: bool = Field(description="Whether its inputs are not read now.")
    inputs: tuple[str, ...] = Field(
        description="Topic names, or one regular expression that starts with `^`."
    )
    scope: str = Field(
        description="`address`: an id counts on all partitions; `partition`: on one."
    )
    address: str = Field(description="A template: whose ring decides.")
    id: str = Field(description="A template of the id; empty for the headers.")
    output: str = Field(description="A template: where accepted records go.")
    dead_letter: str = Field(description="A template: where the others go.")
    allowed_outputs: tuple[str, ...] = Field(description="Topics that a record may choose.")
    missing_id: str = Field(
        description="What is done without an id: `pass`, `stamp` or `dead_letter`."
    )
    on_partitions_added: str = Field(description="With scope `partition`: `fail` or `keep`.")
    etag: str = Field(description="Of the document, as If-Match takes it.")

    @classmethod
    def of(cls, route: RouteSettings, overlay: SettingsOverlay) -> Self:
        """Describe a route."""
        source = "rest" if route.name in overlay.routes else "file"
        told = {
            "name": route.name,
            "source": source,
            "paused": route.name in overlay.paused,
            **keys_of(route),
        }
        return cls.model_validate({**told, "etag": etag_of(told)})


class Routes(Document):
    """Routes by name."""

    routes: tuple[Route, ...] = Field(description="By name.")
    revision: int = Field(description="Of the newest settings.")
    next_page_token: str | None = Field(
        description="Give it as `page_token` for the next page; null at the end."
    )
    complete: Literal[True] = Field(default=True, description="Always.")


class AddressSetting(Document):
    """What one pattern gives: its own keys, and no other."""

    model_config = ConfigDict(frozen=True, extra="allow")

    pattern: str = Field(
        description="Words between dots; `*` is any word, `#` at the end any number of them."
    )
    source: Source = Field(description="`rest` where it was set over REST, else `file`.")
    etag: str = Field(description="Of the document, as If-Match takes it.")

    @classmethod
    def of(cls, pattern: str, keys: Mapping[str, object], overlay: SettingsOverlay) -> Self:
        """Describe a pattern."""
        source = "rest" if pattern in overlay.addresses else "file"
        told = {"pattern": pattern, "source": source, **keys}
        return cls.model_validate({**told, "etag": etag_of(told)})


class AddressSettings(Document):
    """Patterns, in order."""

    address_settings: tuple[AddressSetting, ...] = Field(description="By pattern.")
    revision: int = Field(description="Of the newest settings.")
    next_page_token: str | None = Field(
        description="Give it as `page_token` for the next page; null at the end."
    )
    complete: Literal[True] = Field(default=True, description="Always.")


class SettingsView(Document):
    """All that is set over REST; null takes away what the file has."""

    routes: dict[str, dict[str, Any] | None] = Field(description="Routes by name.")
    addresses: dict[str, dict[str, Any] | None] = Field(description="Address settings by pattern.")
    paused: tuple[str, ...] = Field(description="Names of routes.")
    revision: int = Field(description="Which one this is; 0 before anything was set.")

    @classmethod
    def of(cls, overlay: SettingsOverlay, revision: int) -> Self:
        """Describe an overlay."""
        return cls.model_validate({**overlay._asdict(), "revision": revision})


class Revision(Document):
    """One document of the history."""

    revision: int = Field(description="The number of the revision.")
    time: datetime | None = Field(description="Null where it is not known.")
    actor: str = Field(description="Who made the change.")
    reason: str = Field(description="Why the change was made.")
    source: str = Field(description="How the change was made: `rest`.")
    changes: tuple[str, ...] = Field(description="What it says that the one before does not.")

    @classmethod
    def of(cls, document: SettingsDocument, documents: SettingsHistory) -> Self:
        """Describe a document beside the one before it."""
        return cls(
            revision=document.revision,
            time=time_of(document.time_ms) if document.time_ms else None,
            actor=document.actor,
            reason=document.reason,
            source=document.source,
            changes=_changes(document, documents),
        )


class RevisionDocument(Revision):
    """One document of the history, with all that it sets."""

    settings: SettingsView | None = Field(description="Null where this version cannot read it.")

    @classmethod
    def of(cls, document: SettingsDocument, documents: SettingsHistory) -> Self:
        """Describe a document."""
        base = Revision.of(document, documents)
        overlay = document.overlay
        settings = None if overlay is None else SettingsView.of(overlay, document.revision)
        return cls(**dict(base), settings=settings)


class RevisionsPage(Document):
    """The history, the newest first."""

    revisions: tuple[Revision, ...] = Field(description="The newest first.")
    next_page_token: str | None = Field(
        description="Give it as `page_token` for the next page; null at the end."
    )
    complete: Literal[True] = Field(default=True, description="Always.")


class Forgotten(Document):
    """What a change makes of one address on one deciding partition."""

    address: str = Field(description="The address.")
    topic: str = Field(description="The topic that is decided.")
    partition: int = Field(description="The number of the partition.")
    strategy: str = Field(description="The strategy now.")
    new_strategy: str = Field(description="The strategy after the change.")
    ids_held: int = Field(description="How many ids are held.")
    ids_forgotten: int = Field(description="How many ids are forgotten.")
    oldest_time: datetime | None = Field(description="Of those that are forgotten.")
    newest_time: datetime | None = Field(description="Of those that are forgotten.")


class Forgetting(Document):
    """What a change of address settings has addresses forget."""

    ids_forgotten: int = Field(description="How many ids are forgotten.")
    caches_changed: int = Field(description="An address counts on each deciding partition.")
    needs_force: bool = Field(description="Some would be forgotten whole: add `force=true`.")
    addresses: tuple[Forgotten, ...] = Field(description="The first thousand.")
    complete: bool = Field(description="False: other instances may forget more.")

    @classmethod
    def of(cls, answer: EvictionAnswer) -> Self:
        """Describe what loops have answered."""
        return cls(
            ids_forgotten=answer.ids_forgotten,
            caches_changed=answer.caches_total,
            needs_force=answer.needs_force > 0,
            addresses=tuple(
                Forgotten(
                    **{name: getattr(each, name) for name in _TOLD},
                    oldest_time=_maybe(each.oldest_time_ms),
                    newest_time=_maybe(each.newest_time_ms),
                )
                for each in answer.caches
            ),
            complete=answer.complete,
        )


class Outcome(Document):
    """What a change has done, or would do."""

    dry_run: bool = Field(description="True: nothing was changed.")
    revision: int = Field(description="Of the settings as they are now.")
    applied: bool | None = Field(
        description="With `wait=applied`: whether every deciding partition has it."
    )
    before: dict[str, Any] | None = Field(description="What stood before; null for nothing.")
    after: dict[str, Any] | None = Field(description="What stands after; null for nothing.")
    effect: tuple[str, ...] = Field(description="What becomes different, in sentences.")
    forgets: Forgetting | None = Field(description="Where address settings change, in a dry run.")


_TOLD = (
    "address",
    "topic",
    "partition",
    "strategy",
    "new_strategy",
    "ids_held",
    "ids_forgotten",
)


def route_of(config: Config, overlay: SettingsOverlay, name: str) -> Route | None:
    """A route in force, if there is one of this name."""
    found = next((route for route in config.routes if route.name == name), None)
    return None if found is None else Route.of(found, overlay)


def pattern_of(config: Config, overlay: SettingsOverlay, pattern: str) -> AddressSetting | None:
    """What a pattern gives, if it stands anywhere."""
    keys = config.addresses.patterns.get(pattern)
    return None if keys is None else AddressSetting.of(pattern, keys, overlay)


def _changes(document: SettingsDocument, documents: SettingsHistory) -> tuple[str, ...]:
    before = documents.before(document)
    base = SettingsOverlay() if document.number == 1 else before and before.overlay
    if document.overlay is None or base is None:
        return ()
    return differences(base, document.overlay)


def _maybe(time_ms: int | None) -> datetime | None:
    return None if time_ms is None else time_of(time_ms)


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

Describe = Callable[[Config, SettingsOverlay, int], dict[str, Any] | None]
"""The document that is changed, with its ETag, as it is with this overlay; None where it is not."""


def _seconds(text: str) -> str:
    if duration_ms(text) is None:
        raise ValueError("a duration is written as 500ms, 10s or PT10S")
    return text


class WriteTarget(NamedTuple):
    """Where something stands that a PUT may make."""

    section: str
    name: str
    path: str


class SettingsWrite(NamedTuple):
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
) -> SettingsWrite:
    """Read the parameters that all writes of settings have."""
    timeout_s = min(_WAIT_S_MAX, (duration_ms(within) or 0) / 1000)
    return SettingsWrite(request, response, dry_run, wait is not None, timeout_s, force, reason)


_Writing = Annotated[SettingsWrite, Depends(_writing)]


async def _changing(how: _Writing, if_match: IfMatch = None) -> SettingsWrite:
    return how._replace(preconditions=Preconditions(if_match))


async def _making(
    how: _Writing, if_match: IfMatch = None, if_none_match: IfNoneMatch = None
) -> SettingsWrite:
    return how._replace(preconditions=Preconditions(if_match, if_none_match))


How = Annotated[SettingsWrite, Depends(_changing)]

HowMade = Annotated[SettingsWrite, Depends(_making)]
"""Of what may be new."""


async def write(
    view: ServiceView,
    how: SettingsWrite,
    change: Change,
    describe: Describe,
    place: WriteTarget | None = None,
) -> Outcome:
    """Make a change, or try it out; `place` is where its body stands, which may be new."""
    desk = desk_of(view)
    if desk.read().file.service.managed_by == "file":
        sentence = (
            'service.managed_by is "file": change the file and restart, or write '
            'managed_by = "rest" there.'
        )
        raise ProblemError(MANAGED_BY_FILE, sentence)
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


def desk_of(view: ServiceView) -> SettingsEditor:
    """Where settings are changed."""
    assert view.settings is not None  # who has these resources has it
    return view.settings


async def _ruled(step: Callable[[], SettingsChange], prefix: tuple[str, ...]) -> SettingsChange:
    """Run a step that may block; what breaks the rules is told with its place in the body."""
    try:
        return await run_in_threadpool(step)
    except InvalidSettingsError as refused:
        faults = tuple(_field_error(fault, prefix) for fault in refused.faults)
        raise ProblemError(
            BREAKS_RULES, str(refused), extras=ProblemExtras(errors=faults)
        ) from refused


def _field_error(fault: OverlayError, prefix: tuple[str, ...]) -> FieldError:
    path = fault.path
    steps = path[len(prefix) :] if path[: len(prefix)] == prefix else ()
    return FieldError(pointer=pointer("body", *steps), detail=str(fault.problem), code="rule")


async def _forgets(
    view: ServiceView, tried: SettingsChange, how: SettingsWrite
) -> Forgetting | None:
    """What addresses would forget: asked for a dry run, and where force may be needed."""
    before, after = tried.before.effective.config.addresses, tried.effective.config.addresses
    if before.patterns == after.patterns or not (how.dry_run or _is_elsewhere(before, after)):
        return None
    checked = cast("Mapping[str, Mapping[str, Setting]]", after.patterns)  # as all of a book is
    answer = await view.inbox.ask(EvictionQuery(checked), view.ask_timeout_s)
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
    raise ProblemError(NEEDS_FORCE, f"{what}; look at the dry run, and send force=true.")


def _is_elsewhere(before: AddressBook, after: AddressBook) -> bool:
    """Whether some pattern gives another way of remembering."""
    return any(_ways(before.patterns, key) != _ways(after.patterns, key) for key in _ELSEWHERE)


def _ways(patterns: Mapping[str, Mapping[str, object]], key: str) -> dict[str, object]:
    return {pattern: keys[key] for pattern, keys in patterns.items() if key in keys}
