"""Settings documents: the settings made over REST, as they were given, and their history.

They stand on top of those of the file, see `overlay`. Pure.
"""

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple, cast

from ringfence_service.metadata.record import MetadataRecord, read

Keys = Mapping[str, object]

KIND: Final = "settings"

FORMAT: Final = 1

KEPT_MAX: Final = 100
"""How many documents are kept, to be listed and returned to; all readers have them in memory.

A partition that last applied an older one has to apply the settings to all of its caches.
"""


class SettingsOverlay(NamedTuple):
    """The settings made over REST, as they were given."""

    routes: Mapping[str, Keys | None] = {}
    addresses: Mapping[str, Keys | None] = {}
    paused: tuple[str, ...] = ()

    def with_route(self, name: str, keys: Keys | None, *, in_file: bool) -> "SettingsOverlay":
        """Return the overlay with a new entry for a route; None removes the route and its pause."""
        routes = _with(self.routes, name, keys, in_file=in_file)
        paused = self.paused if keys is not None else tuple(p for p in self.paused if p != name)
        return self._replace(routes=routes, paused=paused)

    def with_address(self, pattern: str, keys: Keys | None, *, in_file: bool) -> "SettingsOverlay":
        """Return the overlay with a new entry for a pattern; None removes the pattern."""
        return self._replace(addresses=_with(self.addresses, pattern, keys, in_file=in_file))

    def with_pause(self, name: str, *, paused: bool) -> "SettingsOverlay":
        """Return the overlay with a route paused or resumed."""
        others = tuple(each for each in self.paused if each != name)
        return self._replace(paused=(*others, name) if paused else others)


def overlay_of(document: object) -> SettingsOverlay | None:
    """Return the overlay in a decoded JSON document; None if it is malformed."""
    if not isinstance(document, dict):
        return None
    routes, addresses = document.get("routes", {}), document.get("addresses", {})
    paused = document.get("paused", [])
    is_valid = _is_table(routes) and _is_table(addresses) and isinstance(paused, list | tuple)
    if not is_valid or not all(isinstance(name, str) for name in paused):
        return None
    return SettingsOverlay(routes, addresses, tuple(paused))


def _with(
    entries: Mapping[str, Keys | None], name: str, keys: Keys | None, *, in_file: bool
) -> dict[str, Keys | None]:
    found = dict(entries)
    found[name] = keys
    if keys is None and not in_file:
        del found[name]  # the file has no entry that null would have to hide
    return found


def _is_table(value: object) -> bool:
    """Return whether a JSON value is an object whose members are all objects or null."""
    if not isinstance(value, dict):
        return False
    entries = cast("dict[str, object]", value)
    return all(keys is None or isinstance(keys, dict) for keys in entries.values())


class SettingsRevision(NamedTuple):
    """One settings document: its overlay, and who wrote it when and why."""

    number: int
    """Counted from 1."""
    revision: int
    overlay: SettingsOverlay | None
    """None if this version cannot read it."""
    source: str
    actor: str
    reason: str
    time_ms: int


FILE: Final = SettingsRevision(0, 0, SettingsOverlay(), "file", "", "", 0)
"""Revision 0: an empty overlay, so that the file alone is effective."""


class SettingsHistory:
    """The settings documents that are kept, by number."""

    def __init__(self) -> None:
        self._by_number: dict[int, SettingsRevision] = {}

    def take(self, key: bytes | None, value: bytes | None, revision: int) -> bool:
        """Apply one record; return whether it is a settings document. A tombstone is not."""
        number = _number(key)
        if number is None:
            return False
        if value is None:
            self._by_number.pop(number, None)
            return False
        self._by_number[number] = _document(number, value, revision)
        return True

    @property
    def newest(self) -> SettingsRevision | None:
        """The newest document; None before the first."""
        return self._by_number[max(self._by_number)] if self._by_number else None

    @property
    def revision(self) -> int:
        """The revision of the newest document; 0 before the first."""
        return self.newest.revision if self.newest else 0

    def at(self, revision: int) -> SettingsRevision | None:
        """Return the document with this revision; None if it is not kept."""
        return next((each for each in self if each.revision == revision), None)

    def before(self, document: SettingsRevision) -> SettingsRevision | None:
        """Return the document before this one; None if it is not kept."""
        return self._by_number.get(document.number - 1)

    def overlay_at(self, revision: int) -> SettingsOverlay | None:
        """Return the overlay of a revision; None if it is no longer known."""
        if not revision:
            return SettingsOverlay() if 1 in self._by_number or not self._by_number else None
        found = self.at(revision)
        return None if found is None else found.overlay

    def copy(self) -> "SettingsHistory":
        """Return a copy for another thread."""
        copied = SettingsHistory()
        copied._by_number = dict(self._by_number)
        return copied

    def __iter__(self) -> Iterator[SettingsRevision]:
        """The newest first."""
        return iter([self._by_number[number] for number in sorted(self._by_number, reverse=True)])

    def records(
        self, overlay: SettingsOverlay, *, actor: str, reason: str, time_ms: int
    ) -> list[MetadataRecord]:
        """Return the records that add a document: first the removals of old ones, then it."""
        number = self.newest.number + 1 if self.newest else 1
        document = {
            "format": FORMAT,
            **overlay._asdict(),
            "source": "rest",
            "actor": actor,
            "reason": reason,
            "time_ms": time_ms,
        }
        old = [each for each in sorted(self._by_number) if each <= number - KEPT_MAX]
        gone = [MetadataRecord.gone([KIND, each]) for each in old]
        return [*gone, MetadataRecord.of([KIND, number], document)]


def _number(key: bytes | None) -> int | None:
    match read(key):
        case [kind, int(number)] if kind == KIND:
            return number
        case _:
            return None


def _document(number: int, value: bytes, revision: int) -> SettingsRevision:
    decoded = read(value)
    document = decoded if isinstance(decoded, dict) else {}
    overlay = overlay_of(document) if document.get("format") == FORMAT else None
    source, actor, reason = (str(document.get(name, "")) for name in ("source", "actor", "reason"))
    stored_ms = document.get("time_ms")
    time_ms = stored_ms if isinstance(stored_ms, int) else 0
    return SettingsRevision(number, revision, overlay, source, actor, reason, time_ms)


def differences(before: SettingsOverlay, after: SettingsOverlay) -> tuple[str, ...]:
    """Return one line for each entry that differs."""
    return (
        *_entries("routes", before.routes, after.routes),
        *_entries("addresses", before.addresses, after.addresses),
        *(f"paused: {name}" for name in after.paused if name not in before.paused),
        *(f"resumed: {name}" for name in before.paused if name not in after.paused),
    )


def _entries(
    section: str, before: Mapping[str, Keys | None], after: Mapping[str, Keys | None]
) -> Iterator[str]:
    for name in sorted(before.keys() | after.keys()):
        where = f'{section}."{name}"'
        if name not in after:
            yield f"{where}: override removed"
        elif name not in before:
            yield f"{where}: {'deleted' if after[name] is None else 'set'}"
        elif before[name] != after[name]:
            was, now = before[name] or {}, after[name]
            if now is None:
                yield f"{where}: deleted"
                continue
            keys = sorted(key for key in was.keys() | now.keys() if was.get(key) != now.get(key))
            yield f"{where}: {', '.join(_change(key, was, now) for key in keys)}"


def _change(key: str, was: Keys, now: Keys) -> str:
    return f"{key} {was.get(key, 'unset')} → {now.get(key, 'unset')}"
