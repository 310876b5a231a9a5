"""Settings changes: the steps of every change (validate, write, wait until applied) and schemas."""

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Annotated, Any, Final, Literal, NamedTuple, Self, cast

from fastapi import Depends, Query, Request, Response
from pydantic import AfterValidator, ConfigDict, Field
from starlette.concurrency import run_in_threadpool

from ringfence_api.audit_context import Reason, actor_of, changed
from ringfence_api.openapi import Responses, errors
from ringfence_api.ports import ServiceView
from ringfence_api.preconditions import (
    DryRun,
    IfMatch,
    IfNoneMatch,
    Preconditions,
    etag_of,
    set_etag,
)
from ringfence_api.problems import (
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
from ringfence_api.schemas import Document, time_of
from ringfence_service.config.addresses import AddressBook
from ringfence_service.config.model import Config, RouteSettings
from ringfence_service.config.reach import reach_of
from ringfence_service.formatting import duration_ms
from ringfence_service.metadata.overlay import OverlayError, keys_of
from ringfence_service.metadata.settings import SettingsHistory, SettingsOverlay, differences
from ringfence_service.metadata.settings import SettingsRevision as SettingsDocument
from ringfence_service.metadata.settings_change import (
    Change,
    InvalidSettingsError,
    SettingsChange,
    SettingsEditor,
)
from ringfence_service.queries.settings import EvictionAnswer, EvictionQuery, Setting

Source = Literal["file", "rest"]


class Route(Document):
    """An effective route: all of its keys, its source, and whether it is paused."""

    name: str = Field(description="The name of the route.")
    source: Source = Field(description="`rest` if it was set over REST, else `file`.")
    paused: bool = Field(description="If true, its inputs are not read.")
    inputs: tuple[str, ...] = Field(
        description="Topic names, or one regular expression that starts with `^`."
    )
    scope: str = Field(
        description="`address`: an id is unique over all partitions; `partition`: within one."
    )
    address: str = Field(description="Template of the address that decides.")
    id: str = Field(description="Template of the id; empty to use the headers.")
    output: str = Field(description="Template of the output topic for accepted records.")
    dead_letter: str = Field(description="Template of the dead-letter topic for other records.")
    allowed_outputs: tuple[str, ...] = Field(description="Output topics that a record may choose.")
    reply_topics: tuple[str, ...] = Field(
        description="Topics that a record may name in `_REPLY_TO`, for a reply with its decision."
    )
    missing_id: str = Field(
        description="What happens to a record without an id: `pass`, `stamp` or `dead_letter`."
    )
    on_partitions_added: str = Field(
        description="With scope `partition`, the reaction to added partitions: `fail` or `keep`."
    )
    etag: str = Field(description="ETag of the document, for If-Match.")

    @classmethod
    def of(cls, route: RouteSettings, overlay: SettingsOverlay) -> Self:
        """Build the document from a route and the overlay that may set it."""
        source = "rest" if route.name in overlay.routes else "file"
        fields = {
            "name": route.name,
            "source": source,
            "paused": route.name in overlay.paused,
            **keys_of(route),
        }
        return cls.model_validate({**fields, "etag": etag_of(fields)})


class Routes(Document):
    """A page of the effective routes."""

    routes: tuple[Route, ...] = Field(description="The routes, in order of matching.")
    revision: int = Field(description="Revision of the newest settings.")
    next_page_token: str | None = Field(
        description="Send it as `page_token` to get the next page; null on the last page."
    )
    complete: Literal[True] = Field(default=True, description="Always true.")


class AddressSetting(Document):
    """The settings of one pattern: only the keys that it sets itself."""

    model_config = ConfigDict(frozen=True, extra="allow")

    pattern: str = Field(
        description="Words separated by dots; `*` matches one word, `#` at the end any number."
    )
    source: Source = Field(description="`rest` if it was set over REST, else `file`.")
    etag: str = Field(description="ETag of the document, for If-Match.")

    @classmethod
    def of(cls, pattern: str, keys: Mapping[str, object], overlay: SettingsOverlay) -> Self:
        """Build the document from the keys of a pattern and the overlay that may set it."""
        source = "rest" if pattern in overlay.addresses else "file"
        fields = {"pattern": pattern, "source": source, **keys}
        return cls.model_validate({**fields, "etag": etag_of(fields)})


class AddressSettings(Document):
    """A page of the patterns."""

    address_settings: tuple[AddressSetting, ...] = Field(description="Sorted by pattern.")
    revision: int = Field(description="Revision of the newest settings.")
    next_page_token: str | None = Field(
        description="Send it as `page_token` to get the next page; null on the last page."
    )
    complete: Literal[True] = Field(default=True, description="Always true.")


class SettingsView(Document):
    """All settings made over REST; null removes an entry of the file."""

    routes: dict[str, dict[str, Any] | None] = Field(description="Routes by name.")
    addresses: dict[str, dict[str, Any] | None] = Field(description="Address settings by pattern.")
    paused: tuple[str, ...] = Field(description="Names of paused routes.")
    revision: int = Field(description="Revision of these settings; 0 before the first change.")

    @classmethod
    def of(cls, overlay: SettingsOverlay, revision: int) -> Self:
        """Build the document from an overlay."""
        return cls.model_validate({**overlay._asdict(), "revision": revision})


class Revision(Document):
    """A revision of the settings."""

    revision: int = Field(description="The number of the revision.")
    time: datetime | None = Field(description="When it was written; null if unknown.")
    actor: str = Field(description="Who made the change.")
    reason: str = Field(description="Why the change was made.")
    source: str = Field(description="How the change was made: `rest`.")
    changes: tuple[str, ...] = Field(
        description="The differences to the previous revision, in sentences."
    )

    @classmethod
    def of(cls, document: SettingsDocument, documents: SettingsHistory) -> Self:
        """Build the document from a revision and the one before it."""
        return cls(
            revision=document.revision,
            time=time_of(document.time_ms) if document.time_ms else None,
            actor=document.actor,
            reason=document.reason,
            source=document.source,
            changes=_changes(document, documents),
        )


class RevisionDocument(Revision):
    """A revision of the settings, with its content."""

    settings: SettingsView | None = Field(
        description="The settings; null if this version cannot read them."
    )

    @classmethod
    def of(cls, document: SettingsDocument, documents: SettingsHistory) -> Self:
        """Build the document from a revision, with its settings."""
        base = Revision.of(document, documents)
        overlay = document.overlay
        settings = None if overlay is None else SettingsView.of(overlay, document.revision)
        return cls(**dict(base), settings=settings)


class RevisionsPage(Document):
    """A page of the revisions, newest first."""

    revisions: tuple[Revision, ...] = Field(description="The revisions, newest first.")
    next_page_token: str | None = Field(
        description="Send it as `page_token` to get the next page; null on the last page."
    )
    complete: Literal[True] = Field(default=True, description="Always true.")


class Forgotten(Document):
    """The effect of a change on one address of one deciding partition."""

    address: str = Field(description="The address.")
    topic: str = Field(description="The topic whose records are decided.")
    partition: int = Field(description="The number of the partition.")
    strategy: str = Field(description="The current strategy.")
    new_strategy: str = Field(description="The strategy after the change.")
    ids_held: int = Field(description="Number of ids held.")
    ids_forgotten: int = Field(description="Number of ids that would be forgotten.")
    oldest_time: datetime | None = Field(description="Time of the oldest of these ids.")
    newest_time: datetime | None = Field(description="Time of the newest of these ids.")


class Forgetting(Document):
    """The ids that a change of address settings makes addresses forget."""

    ids_forgotten: int = Field(description="Number of ids that would be forgotten.")
    caches_changed: int = Field(
        description="Number of caches that change: one per address and deciding partition."
    )
    needs_force: bool = Field(
        description="If true, some caches would be discarded completely: add `force=true`."
    )
    addresses: tuple[Forgotten, ...] = Field(description="The changes by address, at most 1,000.")
    complete: bool = Field(description="If false, other instances may forget more.")

    @classmethod
    def of(cls, answer: EvictionAnswer) -> Self:
        """Build the document from the answer of the loops."""
        return cls(
            ids_forgotten=answer.ids_forgotten,
            caches_changed=answer.caches_total,
            needs_force=answer.needs_force > 0,
            addresses=tuple(
                Forgotten(
                    **{name: getattr(each, name) for name in _SHARED_FIELDS},
                    oldest_time=_maybe(each.oldest_time_ms),
                    newest_time=_maybe(each.newest_time_ms),
                )
                for each in answer.caches
            ),
            complete=answer.complete,
        )


class Outcome(Document):
    """The result of a change, or of a dry run."""

    dry_run: bool = Field(description="If true, nothing was changed.")
    revision: int = Field(description="Revision of the current settings.")
    applied: bool | None = Field(
        description="With `wait=applied`: whether every deciding partition has applied it."
    )
    before: dict[str, Any] | None = Field(description="The value before; null if there was none.")
    after: dict[str, Any] | None = Field(description="The value after; null if there is none.")
    effect: tuple[str, ...] = Field(description="The differences, in sentences.")
    forgets: Forgetting | None = Field(
        description="What addresses would forget; in a dry run that changes address settings."
    )
    warnings: tuple[str, ...] = Field(
        description="What `ringfence check` warns of after the change and not before: patterns "
        "that match no address, keys that are not read, and detection that is off."
    )


_SHARED_FIELDS = (
    "address",
    "topic",
    "partition",
    "strategy",
    "new_strategy",
    "ids_held",
    "ids_forgotten",
)


def route_of(config: Config, overlay: SettingsOverlay, name: str) -> Route | None:
    """Return the effective route with this name, or None."""
    found = next((route for route in config.routes if route.name == name), None)
    return None if found is None else Route.of(found, overlay)


def pattern_of(config: Config, overlay: SettingsOverlay, pattern: str) -> AddressSetting | None:
    """Return the settings of a pattern, or None if it has none."""
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
"""How long a request may wait for its change: it holds one of the server's threads meanwhile.

The change is made in any case, and a response after the wait is 202. A partition without an
owner applies nothing, so the limit is longer than `service.session_timeout_ms` by default.
"""

_STORAGE_KEYS: Final = ("strategy", "persist_id_cache")

WRITES: Final[Responses] = {
    **errors(MANAGED_BY_FILE, EXISTS, STALE, BREAKS_RULES, MATCH_REQUIRED, UNAVAILABLE),
    202: {
        "description": "Written, but not applied by every partition before the timeout.",
        "model": Outcome,
    },
}

ADMIN: Final[dict[str, Any]] = {"x-role": "admin"}

Describe = Callable[[Config, SettingsOverlay, int], dict[str, Any] | None]
"""Returns the changed document with its ETag, under an overlay; None if it does not exist."""


def _check_duration(text: str) -> str:
    if duration_ms(text) is None:
        raise ValueError("a duration is written as 500ms, 10s or PT10S")
    return text


class WriteTarget(NamedTuple):
    """The section, name and path of a resource that a PUT may create."""

    section: str
    name: str
    path: str


class SettingsWrite(NamedTuple):
    """The options of a settings change: its parameters and preconditions."""

    request: Request
    response: Response
    dry_run: bool
    wait: bool
    timeout_s: float
    force: bool
    reason: str
    preconditions: Preconditions = Preconditions(None)


async def _options(
    request: Request,
    response: Response,
    *,
    dry_run: DryRun = False,
    wait: Annotated[
        Literal["applied"] | None,
        Query(
            description="`applied`: respond once every deciding partition has applied the change."
        ),
    ] = None,
    within: Annotated[
        str,
        AfterValidator(_check_duration),
        Query(
            alias="timeout",
            description="Maximum time to wait, up to a minute: `PT10S`, `10s`, `500ms`.",
        ),
    ] = "10s",
    force: Annotated[
        bool, Query(description="Make the change even if addresses forget all of their ids.")
    ] = False,
    reason: Reason = "",
) -> SettingsWrite:
    """Read the parameters that all changes of settings have."""
    timeout_s = min(_WAIT_S_MAX, (duration_ms(within) or 0) / 1000)
    return SettingsWrite(request, response, dry_run, wait is not None, timeout_s, force, reason)


_Options = Annotated[SettingsWrite, Depends(_options)]


async def _change_options(options: _Options, if_match: IfMatch = None) -> SettingsWrite:
    return options._replace(preconditions=Preconditions(if_match))


async def _put_options(
    options: _Options, if_match: IfMatch = None, if_none_match: IfNoneMatch = None
) -> SettingsWrite:
    return options._replace(preconditions=Preconditions(if_match, if_none_match))


Options = Annotated[SettingsWrite, Depends(_change_options)]

PutOptions = Annotated[SettingsWrite, Depends(_put_options)]
"""The options of a PUT, which may create the resource."""


async def write(
    view: ServiceView,
    options: SettingsWrite,
    change: Change,
    describe: Describe,
    target: WriteTarget | None = None,
) -> Outcome:
    """Make a change, or only validate it in a dry run.

    `target` is the resource that a PUT may create. Raise ProblemError if the file manages the
    settings, if they are not valid, or if ids would be discarded without `force`.
    """
    editor = settings_editor(view)
    if editor.read().file.service.managed_by == "file":
        sentence = (
            'service.managed_by is "file": change the file and restart, or set '
            'managed_by = "rest" there.'
        )
        raise ProblemError(MANAGED_BY_FILE, sentence)
    prefix = () if target is None else (target.section, target.name)
    preview = await _validated(lambda: editor.try_out(change), prefix)
    forgets = (
        None if options.force and not options.dry_run else await _forgets(view, preview, options)
    )
    edited = preview
    if not options.dry_run:
        actor = actor_of(options.request)
        edited = await _validated(
            lambda: editor.edit(change, actor=actor, reason=options.reason), prefix
        )
    was, now = edited.before, edited.overlay
    before = describe(was.effective.config, was.readable, was.revision)
    after = describe(edited.effective.config, now, edited.revision)
    applied: bool | None = None
    if not options.dry_run:
        changed(options.request, before=before, after=after)
        if target is not None and before is None:
            options.response.status_code = 201
            options.response.headers["Location"] = target.path
        if options.wait:
            applied = await run_in_threadpool(editor.wait, edited, options.timeout_s)
            if not applied:
                options.response.status_code = 202
        if after is not None:
            set_etag(options.response, after["etag"])
    return Outcome(
        dry_run=options.dry_run,
        revision=edited.revision,
        applied=applied,
        before=before,
        after=after,
        effect=differences(was.readable, now),
        forgets=forgets,
        warnings=await run_in_threadpool(
            _new_warnings, was.effective.config, edited.effective.config
        ),
    )


def _new_warnings(before: Config, after: Config) -> tuple[str, ...]:
    """Return what to warn of after a change and not before it."""
    old, new = (reach_of(each.routes, each.addresses, ()).warnings for each in (before, after))
    return tuple(each for each in new if each not in old)


def settings_editor(view: ServiceView) -> SettingsEditor:
    """Return the editor of the settings."""
    assert view.settings is not None  # set in a program with these resources
    return view.settings


async def _validated(step: Callable[[], SettingsChange], prefix: tuple[str, ...]) -> SettingsChange:
    """Run a blocking step; report invalid settings with JSON Pointers into the body."""
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
    view: ServiceView, preview: SettingsChange, options: SettingsWrite
) -> Forgetting | None:
    """Return what addresses would forget, for a dry run; raise ProblemError if force is needed."""
    before, after = preview.before.effective.config.addresses, preview.effective.config.addresses
    if before.patterns == after.patterns or not (
        options.dry_run or _changes_storage(before, after)
    ):
        return None
    # An address book contains only valid values.
    checked = cast("Mapping[str, Mapping[str, Setting]]", after.patterns)
    answer = await view.inbox.ask(EvictionQuery(checked), view.ask_timeout_s)
    forgetting = Forgetting.of(answer)
    is_safe = answer.complete and not forgetting.needs_force
    if options.dry_run or options.force or is_safe:
        return forgetting
    what = (
        f"{answer.needs_force} caches would be discarded, because their strategy or storage "
        f"changes, and {answer.ids_forgotten} ids forgotten"
    )
    if not forgetting.needs_force:
        what = "Other instances did not report whether their caches would be discarded"
    raise ProblemError(NEEDS_FORCE, f"{what}; check with a dry run, then send force=true.")


def _changes_storage(before: AddressBook, after: AddressBook) -> bool:
    """Return whether the strategy or the storage of some pattern changes."""
    return any(
        _values_of(before.patterns, key) != _values_of(after.patterns, key) for key in _STORAGE_KEYS
    )


def _values_of(patterns: Mapping[str, Mapping[str, object]], key: str) -> dict[str, object]:
    return {pattern: keys[key] for pattern, keys in patterns.items() if key in keys}
