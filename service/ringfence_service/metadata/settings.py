"""Settings overlay and history: the settings made over REST, on top of those of the file.

An entry replaces the whole entry of that name in the file, and null removes it; a paused route is
not read. The result is validated by the rules of the file, with the same messages. Pure.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, replace
from typing import Final, NamedTuple, cast

from ringfence_service.config.addresses import AddressBook
from ringfence_service.config.load import Config, read_addresses, read_route, usable
from ringfence_service.config.model import RouteSettings
from ringfence_service.config.targets import target_problems
from ringfence_service.config.validation import NamedRoute, route_problems
from ringfence_service.errors import ConfigIssue, ConfigPath
from ringfence_service.metadata.record import MetadataRecord, read

Keys = Mapping[str, object]

_FIXED: Final = ("scope", "address", "id")


_NO_ROUTES: Final = ConfigIssue(
    "no route is left, so there is nothing to read",
    "keep the last route and pause it",
    (("routes",),),
)


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


class EffectiveSettings(NamedTuple):
    """The effective settings: those of the file with the overlay applied."""

    config: Config
    paused: frozenset[str]
    """Names of routes."""


class OverlayError(NamedTuple):
    """A problem in an overlay, and its path from the top of the overlay."""

    path: ConfigPath
    problem: ConfigIssue


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


def apply_overlay(
    file: Config, overlay: SettingsOverlay
) -> tuple[EffectiveSettings, list[OverlayError]]:
    """Return the file's settings with an overlay applied, and the problems of the result."""
    problems: list[ConfigIssue] = []
    named = list(_routes(file, overlay, problems))
    has_registry = bool(file.schema_registry.url)
    if not named:
        problems.append(_NO_ROUTES)
    problems += route_problems(named, file.service.group_id, has_registry=has_registry)
    problems += target_problems(named, file.service.group_id)
    book = _addresses(file, overlay, problems)
    errors = [OverlayError(_path(problem, overlay), problem) for problem in problems]
    names = {route.route.name for route in named}
    unknown = [name for name in overlay.paused if name not in names]
    errors += [OverlayError(("paused",), _no_such_route(name)) for name in unknown]
    config = replace(file, routes=usable(named), addresses=book)
    return EffectiveSettings(config, frozenset(overlay.paused) & names), errors


def fixed_faults(before: Config, after: Config) -> list[OverlayError]:
    """Return the forbidden changes: keys of a route on which its remembered ids depend."""
    had = {route.name: route for route in before.routes}
    return [
        OverlayError(
            ("routes", route.name, key),
            ConfigIssue(
                f'routes["{route.name}"].{key} is "{getattr(route, key)}", but the route was '
                f'created with "{getattr(had[route.name], key)}", which cannot change',
                "delete the route and create another",
            ),
        )
        for route in after.routes
        if route.name in had
        for key in _FIXED
        if getattr(route, key) != getattr(had[route.name], key)
    ]


def keys_of(route: RouteSettings) -> dict[str, object]:
    """Return all keys of a route except its name, as JSON values."""
    values = {each.name: getattr(route, each.name) for each in fields(route) if each.name != "name"}
    return {key: list(v) if isinstance(v, tuple) else v for key, v in values.items()}


def _with(
    entries: Mapping[str, Keys | None], name: str, keys: Keys | None, *, in_file: bool
) -> dict[str, Keys | None]:
    found = dict(entries)
    found[name] = keys
    if keys is None and not in_file:
        del found[name]  # the file has no entry that null would have to hide
    return found


def _routes(
    file: Config, overlay: SettingsOverlay, problems: list[ConfigIssue]
) -> Iterator[NamedRoute]:
    """Yield the file's routes in order, as overridden; then those that only the overlay has."""
    for route in file.routes:
        if route.name in overlay.routes:
            yield from _own_route(route.name, overlay.routes[route.name], problems)
        else:
            yield NamedRoute(f'routes["{route.name}"]', route)
    in_file = {route.name for route in file.routes}
    for name, keys in overlay.routes.items():
        if name not in in_file:
            yield from _own_route(name, keys, problems)


def _own_route(name: str, keys: Keys | None, problems: list[ConfigIssue]) -> Iterator[NamedRoute]:
    if keys is None:
        return
    given = keys.get("name", name)
    if given != name:
        what = f'routes["{name}"].name is "{given}"'
        fix = "the name of a route cannot change; omit the key"
        problems.append(ConfigIssue(what, fix, (("routes", name, "name"),)))
    yield read_route({**keys, "name": name}, "", problems)


def _addresses(file: Config, overlay: SettingsOverlay, problems: list[ConfigIssue]) -> AddressBook:
    given = {pattern: keys for pattern, keys in overlay.addresses.items() if keys is not None}
    read = read_addresses(given, problems)
    kept = {p: keys for p, keys in file.addresses.patterns.items() if p not in overlay.addresses}
    return AddressBook.of({**kept, **read.patterns})


def _no_such_route(name: str) -> ConfigIssue:
    return ConfigIssue(f'paused contains "{name}", which is not a route', "remove it")


def _path(problem: ConfigIssue, overlay: SettingsOverlay) -> ConfigPath:
    """Return the first path of a problem that the overlay has, or else the section."""
    for section, *rest in problem.paths:
        if rest and rest[0] in getattr(overlay, section):
            return (section, *rest)
    return problem.paths[0][:1] if problem.paths else ()


def _is_table(value: object) -> bool:
    """Return whether a JSON value is an object whose members are all objects or null."""
    if not isinstance(value, dict):
        return False
    entries = cast("dict[str, object]", value)
    return all(keys is None or isinstance(keys, dict) for keys in entries.values())


KIND: Final = "settings"

FORMAT: Final = 1

KEPT_MAX: Final = 100
"""How many documents are kept, to be listed and returned to; all readers have them in memory.

A partition that last applied an older one has to apply the settings to all of its caches.
"""


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


def evaluate(file: Config, document: SettingsRevision) -> tuple[EffectiveSettings, str | None]:
    """Return the settings that a document would give, and why it is invalid; None if valid."""
    if document.overlay is None:
        sentence = "this version cannot read them; run the newer version that wrote them"
        return EffectiveSettings(file, frozenset()), sentence
    effective, errors = apply_overlay(file, document.overlay)
    return effective, " ".join(str(error.problem) for error in errors) or None


def effective_settings(
    file: Config, documents: Iterable[SettingsRevision]
) -> tuple[EffectiveSettings, int]:
    """Return the effective settings: those of the newest valid document, and its revision.

    The revision is 0 if the file alone is effective. A file with `managed_by = "file"` ignores all
    documents.
    """
    if is_file_managed(file):
        documents = ()
    for document in documents:
        effective, fault = evaluate(file, document)
        if fault is None:
            return effective, document.revision
    return EffectiveSettings(file, frozenset()), 0


def is_file_managed(file: Config) -> bool:
    """Return whether the file alone is effective, and settings made over REST are ignored."""
    return file.service.managed_by == "file"


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
