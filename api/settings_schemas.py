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

    name: str
    source: Source = Field(description="`rest` where it was set over REST, else `file`.")
    paused: bool
    inputs: tuple[str, ...]
    scope: str
    address: str
    id: str
    output: str
    dead_letter: str
    allowed_outputs: tuple[str, ...]
    missing_id: str
    on_partitions_added: str
    etag: str

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

    routes: tuple[Route, ...]
    revision: int = Field(description="Of the newest settings.")
    next_page_token: str | None
    complete: Literal[True] = True


class AddressSetting(Document):
    """What one pattern gives: its own keys, and no other."""

    model_config = ConfigDict(frozen=True, extra="allow")

    pattern: str
    source: Source = Field(description="`rest` where it was set over REST, else `file`.")
    etag: str

    @classmethod
    def of(cls, pattern: str, keys: Mapping[str, object], overlay: Overlay) -> Self:
        """Describe a pattern."""
        source = "rest" if pattern in overlay.addresses else "file"
        told = {"pattern": pattern, "source": source, **keys}
        return cls.model_validate({**told, "etag": etag_of(told)})


class AddressSettings(Document):
    """Patterns, in order."""

    address_settings: tuple[AddressSetting, ...]
    revision: int = Field(description="Of the newest settings.")
    next_page_token: str | None
    complete: Literal[True] = True


class SettingsView(Document):
    """All that is set over REST; null takes away what the file has."""

    routes: dict[str, dict[str, Any] | None]
    addresses: dict[str, dict[str, Any] | None]
    paused: tuple[str, ...] = Field(description="Names of routes.")
    revision: int = Field(description="Which one this is; 0 before anything was set.")

    @classmethod
    def of(cls, overlay: Overlay, revision: int) -> Self:
        """Describe an overlay."""
        return cls.model_validate({**overlay._asdict(), "revision": revision})


class Revision(Document):
    """One document of the history."""

    revision: int
    time: datetime
    actor: str
    reason: str
    source: str
    changes: tuple[str, ...] = Field(description="What it says that the one before does not.")

    @classmethod
    def of(cls, document: SettingsDocument, documents: Revisions) -> Self:
        """Describe a document beside the one before it."""
        return cls(
            revision=document.revision,
            time=time_of(document.time_ms),
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

    revisions: tuple[Revision, ...]
    next_page_token: str | None
    complete: Literal[True] = True


class Forgotten(Document):
    """What a change makes of one address on one deciding partition."""

    address: str
    topic: str
    partition: int
    strategy: str
    new_strategy: str
    ids_held: int
    ids_forgotten: int
    oldest_time: datetime | None = Field(description="Of those that are forgotten.")
    newest_time: datetime | None


class Forgetting(Document):
    """What a change of address settings has addresses forget."""

    ids_forgotten: int
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

    dry_run: bool
    revision: int = Field(description="Of the settings as they are now.")
    applied: bool | None = Field(
        description="With `wait=applied`: whether every deciding partition has it."
    )
    before: dict[str, Any] | None
    after: dict[str, Any] | None
    effect: tuple[str, ...]
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
