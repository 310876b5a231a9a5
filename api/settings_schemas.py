"""What the resources of settings answer: routes, address settings, the whole, its history."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Literal, Self

from pydantic import ConfigDict, Field

from api.preconditions import etag_of
from api.schemas import Document, time_of
from service.config import Config, RouteSettings
from service.differences import differences
from service.overlay import Overlay, keys_of
from service.queries.settings import ForgottenAnswer
from service.revisions import Document as SettingsDocument
from service.revisions import Revisions

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
    def of(cls, route: RouteSettings, overlay: Overlay) -> Self:
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
    def of(cls, pattern: str, keys: Mapping[str, object], overlay: Overlay) -> Self:
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
    def of(cls, overlay: Overlay, revision: int) -> Self:
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
    def of(cls, document: SettingsDocument, documents: Revisions) -> Self:
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
    def of(cls, document: SettingsDocument, documents: Revisions) -> Self:
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
    def of(cls, answer: ForgottenAnswer) -> Self:
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


def route_of(config: Config, overlay: Overlay, name: str) -> Route | None:
    """A route in force, if there is one of this name."""
    found = next((route for route in config.routes if route.name == name), None)
    return None if found is None else Route.of(found, overlay)


def pattern_of(config: Config, overlay: Overlay, pattern: str) -> AddressSetting | None:
    """What a pattern gives, if it stands anywhere."""
    keys = config.addresses.patterns.get(pattern)
    return None if keys is None else AddressSetting.of(pattern, keys, overlay)


def _changes(document: SettingsDocument, documents: Revisions) -> tuple[str, ...]:
    before = documents.before(document)
    base = Overlay() if document.number == 1 else before and before.overlay
    if document.overlay is None or base is None:
        return ()
    return differences(base, document.overlay)


def _maybe(time_ms: int | None) -> datetime | None:
    return None if time_ms is None else time_of(time_ms)
