"""Settings change: the request for a change and its outcome, as values."""

from collections.abc import Callable
from typing import NamedTuple, Protocol

from ringfence_service.config.model import Config
from ringfence_service.metadata.overlay import (
    EffectiveSettings,
    OverlayError,
    apply_overlay,
    effective_settings,
    fixed_faults,
)
from ringfence_service.metadata.settings import SettingsHistory, SettingsOverlay
from ringfence_service.queries.errors import NotPossible


class SettingsSnapshot(NamedTuple):
    """The settings at one moment: the file, the documents, and what is effective."""

    file: Config
    documents: SettingsHistory
    effective: EffectiveSettings
    holding: SettingsOverlay
    """The overlay of `effective`: that of the newest valid document."""

    @classmethod
    def of(cls, file: Config, documents: SettingsHistory) -> "SettingsSnapshot":
        """Return the snapshot in which the newest valid document is effective."""
        effective, revision = effective_settings(file, documents)
        document = documents.at(revision)
        overlay = None if document is None else document.overlay
        return cls(file, documents, effective, overlay or SettingsOverlay())

    @property
    def overlay(self) -> SettingsOverlay:
        """The newest overlay; NotPossible if this version cannot read it."""
        newest = self.documents.newest
        if newest is None:
            return SettingsOverlay()
        if newest.overlay is None:
            sentence = (
                f"This version cannot read the settings of revision {newest.revision}; run the "
                "newer version that wrote them, or roll back to an earlier revision."
            )
            raise NotPossible(sentence)
        return newest.overlay

    @property
    def readable(self) -> SettingsOverlay:
        """The newest overlay, or an empty one if this version cannot read it."""
        newest = self.documents.newest
        return SettingsOverlay() if newest is None or newest.overlay is None else newest.overlay

    @property
    def revision(self) -> int:
        """The revision of the newest document; 0 if there is none."""
        return self.documents.revision


class SettingsChange(NamedTuple):
    """A change that was made, or its preview."""

    before: SettingsSnapshot
    overlay: SettingsOverlay
    effective: EffectiveSettings
    revision: int


class InvalidSettingsError(Exception):
    """The requested settings break the rules of the file."""

    def __init__(self, errors: list[OverlayError]) -> None:
        super().__init__(" ".join(str(error.problem) for error in errors))
        self.faults = tuple(errors)


Change = Callable[[SettingsSnapshot], SettingsOverlay]
"""Returns the new overlay; its exceptions propagate."""


class SettingsEditor(Protocol):
    """The operations of the API on settings; all but `read` may block."""

    def read(self) -> SettingsSnapshot:
        """Return the settings; Unavailable while they are not known."""
        ...

    def try_out(self, change: Change) -> SettingsChange:
        """Return what a change would do; InvalidSettingsError if it breaks a rule."""
        ...

    def edit(self, change: Change, *, actor: str, reason: str) -> SettingsChange:
        """Make a change; InvalidSettingsError, or Unavailable."""
        ...

    def wait(self, edited: SettingsChange, timeout_s: float) -> bool:
        """Return whether all deciding partitions apply a change within the timeout."""
        ...


def checked(snapshot: SettingsSnapshot, overlay: SettingsOverlay) -> EffectiveSettings:
    """Return the settings with a new overlay; InvalidSettingsError if it breaks a rule."""
    effective, errors = apply_overlay(snapshot.file, overlay)
    errors += fixed_faults(snapshot.effective.config, effective.config)
    if errors:
        raise InvalidSettingsError(errors)
    return effective
