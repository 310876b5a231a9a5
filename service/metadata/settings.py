"""Settings overlay and history: what is set over REST, applied to the settings of the file.

An entry replaces the file's entry of its name as a whole, and null removes it; a paused route is
not read. The result is validated by the rules of the file, with the same sentences. Pure.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, replace
from typing import Final, NamedTuple, cast

from service.config.addresses import AddressBook
from service.config.load import Config, read_addresses, read_route, usable
from service.config.model import RouteSettings
from service.config.validation import NamedRoute, route_problems
from service.errors import ConfigIssue
from service.metadata.record import MetadataRecord, read

Keys = Mapping[str, object]

_ROUTE: Final = re.compile(r'routes\["(.*?)"\](?:\.(\w+))?')

_ADDRESS: Final = re.compile(r'addresses\."(.*?)"(?:\.(\w+))?(?= is | holds )')

_FIXED: Final = ("scope", "address", "id")

_BY_ADDRESS: Final = "by-address"


class SettingsOverlay(NamedTuple):
    """One document of what is set, as it was given."""

    routes: Mapping[str, Keys | None] = {}
    addresses: Mapping[str, Keys | None] = {}
    paused: tuple[str, ...] = ()

    def with_route(self, name: str, keys: Keys | None, *, in_file: bool) -> "SettingsOverlay":
        """With another entry for a route; None takes the route away, and its pause with it."""
        routes = _with(self.routes, name, keys, in_file=in_file)
        paused = self.paused if keys is not None else tuple(p for p in self.paused if p != name)
        return self._replace(routes=routes, paused=paused)

    def with_address(self, pattern: str, keys: Keys | None, *, in_file: bool) -> "SettingsOverlay":
        """With another entry for a pattern; None takes it away."""
        return self._replace(addresses=_with(self.addresses, pattern, keys, in_file=in_file))

    def with_pause(self, name: str, *, paused: bool) -> "SettingsOverlay":
        """With a route paused, or not."""
        others = tuple(each for each in self.paused if each != name)
        return self._replace(paused=(*others, name) if paused else others)


class EffectiveSettings(NamedTuple):
    """What holds: the file's settings with the overlay."""

    config: Config
    paused: frozenset[str]
    """Names of routes."""


class OverlayError(NamedTuple):
    """What is wrong with an overlay, and where: the steps from its top."""

    path: tuple[str, ...]
    problem: ConfigIssue


def overlay_of(told: object) -> SettingsOverlay | None:
    """An overlay that was written as JSON; None for what is none."""
    if not isinstance(told, dict):
        return None
    routes, addresses = told.get("routes", {}), told.get("addresses", {})
    paused = told.get("paused", [])
    is_one = _is_table(routes) and _is_table(addresses) and isinstance(paused, list | tuple)
    if not is_one or not all(isinstance(name, str) for name in paused):
        return None
    return SettingsOverlay(routes, addresses, tuple(paused))


def lay_over(
    file: Config, overlay: SettingsOverlay
) -> tuple[EffectiveSettings, list[OverlayError]]:
    """What holds with an overlay, and what is wrong with that."""
    problems: list[ConfigIssue] = []
    named = list(_routes(file, overlay, problems))
    problems += route_problems(named, file.service.group_id)
    problems += _own_log(named)
    book = _addresses(file, overlay, problems)
    faults = [OverlayError(_path(problem, overlay), problem) for problem in problems]
    names = {route.route.name for route in named}
    unknown = [name for name in overlay.paused if name not in names]
    faults += [OverlayError(("paused",), _no_such_route(name)) for name in unknown]
    config = replace(file, routes=usable(named), addresses=book)
    return EffectiveSettings(config, frozenset(overlay.paused) & names), faults


def fixed_faults(before: Config, after: Config) -> list[OverlayError]:
    """What may not change while a route exists, since what is remembered hangs on it."""
    had = {route.name: route for route in before.routes}
    return [
        OverlayError(
            ("routes", route.name, key),
            ConfigIssue(
                f'routes["{route.name}"].{key} is "{getattr(route, key)}", and the route has '
                f'"{getattr(had[route.name], key)}", which cannot change',
                "delete the route and make another",
            ),
        )
        for route in after.routes
        if route.name in had
        for key in _FIXED
        if getattr(route, key) != getattr(had[route.name], key)
    ]


def keys_of(route: RouteSettings) -> dict[str, object]:
    """All keys of a route but its name, as JSON has them."""
    values = {each.name: getattr(route, each.name) for each in fields(route) if each.name != "name"}
    return {key: list(v) if isinstance(v, tuple) else v for key, v in values.items()}


def _with(
    entries: Mapping[str, Keys | None], name: str, keys: Keys | None, *, in_file: bool
) -> dict[str, Keys | None]:
    found = dict(entries)
    found[name] = keys
    if keys is None and not in_file:
        del found[name]  # nothing is left that could come back
    return found


def _routes(
    file: Config, overlay: SettingsOverlay, problems: list[ConfigIssue]
) -> Iterator[NamedRoute]:
    """The file's in their order, each in the version that holds; then the overlay's own."""
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
        problems.append(ConfigIssue(what, "a route keeps its name; leave the key out"))
    yield read_route({**keys, "name": name}, 0, problems)


def _addresses(file: Config, overlay: SettingsOverlay, problems: list[ConfigIssue]) -> AddressBook:
    given = {pattern: keys for pattern, keys in overlay.addresses.items() if keys is not None}
    read = read_addresses(given, problems)
    kept = {p: keys for p, keys in file.addresses.patterns.items() if p not in overlay.addresses}
    return AddressBook.of({**kept, **read.patterns})


def _own_log(named: Iterable[NamedRoute]) -> Iterator[ConfigIssue]:
    """Find an input whose changelog would have the name of another of ours."""
    routes = list(named)
    if any(each.route.scope == "address" for each in routes):
        for where, route, _ in routes:
            if route.scope == "partition" and _BY_ADDRESS in route.inputs:
                what = f'{where}.inputs holds "{_BY_ADDRESS}", whose changelog is that of addresses'
                yield ConfigIssue(what, "read it with a service.group_id of its own")


def _no_such_route(name: str) -> ConfigIssue:
    return ConfigIssue(f'paused holds "{name}", which is no route', "remove it")


def _path(problem: ConfigIssue, overlay: SettingsOverlay) -> tuple[str, ...]:
    """Where in the overlay a problem lies, read from its sentence."""
    for section, shape in (("routes", _ROUTE), ("addresses", _ADDRESS)):
        entries: Mapping[str, object] = getattr(overlay, section)
        for name, key in shape.findall(problem.what):
            if name in entries:
                return (section, name, key) if key else (section, name)
    return ("routes",) if "route" in problem.what else ()


def _is_table(told: object) -> bool:
    """Whether it is entries by name, as JSON has them, each with keys or null."""
    if not isinstance(told, dict):
        return False
    entries = cast("dict[str, object]", told)
    return all(keys is None or isinstance(keys, dict) for keys in entries.values())


KIND: Final = "settings"

FORMAT: Final = 1

KEPT_MAX: Final = 100


class SettingsRevision(NamedTuple):
    """One settings document, and who wrote it why."""

    number: int
    """Which one of them it is, counted from 1."""
    revision: int
    overlay: SettingsOverlay | None
    """None where this version cannot read it."""
    source: str
    actor: str
    reason: str
    time_ms: int


FILE: Final = SettingsRevision(0, 0, SettingsOverlay(), "file", "", "", 0)
"""Revision 0: nothing is set, and the file holds alone."""


class SettingsHistory:
    """Those that are kept, by number."""

    def __init__(self) -> None:
        self._by_number: dict[int, SettingsRevision] = {}

    def take(self, key: bytes | None, value: bytes | None, revision: int) -> bool:
        """One record; tells whether it is a settings document."""
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
        """The one to go by; None before the first."""
        return self._by_number[max(self._by_number)] if self._by_number else None

    @property
    def revision(self) -> int:
        """Of the newest; 0 before the first."""
        return self.newest.revision if self.newest else 0

    def at(self, revision: int) -> SettingsRevision | None:
        """The one with this revision; None where it is not kept."""
        return next((each for each in self if each.revision == revision), None)

    def before(self, document: SettingsRevision) -> SettingsRevision | None:
        """The one that it followed; None where none is kept."""
        return self._by_number.get(document.number - 1)

    def overlay_at(self, revision: int) -> SettingsOverlay | None:
        """What was set by then; None where nobody knows any more."""
        if not revision:
            return SettingsOverlay() if 1 in self._by_number or not self._by_number else None
        found = self.at(revision)
        return None if found is None else found.overlay

    def copy(self) -> "SettingsHistory":
        """As they are now, for another thread."""
        copied = SettingsHistory()
        copied._by_number = dict(self._by_number)
        return copied

    def __iter__(self) -> Iterator[SettingsRevision]:
        """The newest first."""
        return iter([self._by_number[number] for number in sorted(self._by_number, reverse=True)])

    def records(
        self, overlay: SettingsOverlay, *, actor: str, reason: str, time_ms: int
    ) -> list[MetadataRecord]:
        """What to write for one more: the eldest goes, and the document comes last."""
        number = self.newest.number + 1 if self.newest else 1
        told = {
            "format": FORMAT,
            **overlay._asdict(),
            "source": "rest",
            "actor": actor,
            "reason": reason,
            "time_ms": time_ms,
        }
        old = [each for each in sorted(self._by_number) if each <= number - KEPT_MAX]
        gone = [MetadataRecord.gone([KIND, each]) for each in old]
        return [*gone, MetadataRecord.of([KIND, number], told)]


def tried(file: Config, document: SettingsRevision) -> tuple[EffectiveSettings, str | None]:
    """What holds with a document, and why it cannot."""
    if document.overlay is None:
        sentence = "this version cannot read them; run the newer version that wrote them"
        return EffectiveSettings(file, frozenset()), sentence
    effective, faults = lay_over(file, document.overlay)
    return effective, " ".join(str(fault.problem) for fault in faults) or None


def in_force(file: Config, documents: Iterable[SettingsRevision]) -> tuple[EffectiveSettings, int]:
    """What holds by the newest document that can, and its revision; 0 for the file alone.

    A file that manages itself holds whatever else was set.
    """
    if is_alone(file):
        documents = ()
    for document in documents:
        effective, fault = tried(file, document)
        if fault is None:
            return effective, document.revision
    return EffectiveSettings(file, frozenset()), 0


def is_alone(file: Config) -> bool:
    """Whether nothing is laid over the file."""
    return file.service.managed_by == "file"


def _number(key: bytes | None) -> int | None:
    match read(key):
        case [kind, int(number)] if kind == KIND:
            return number
        case _:
            return None


def _document(number: int, value: bytes, revision: int) -> SettingsRevision:
    told = read(value)
    held = told if isinstance(told, dict) else {}
    overlay = overlay_of(held) if held.get("format") == FORMAT else None
    source, actor, reason = (str(held.get(name, "")) for name in ("source", "actor", "reason"))
    told_ms = held.get("time_ms")
    time_ms = told_ms if isinstance(told_ms, int) else 0
    return SettingsRevision(number, revision, overlay, source, actor, reason, time_ms)


def differences(before: SettingsOverlay, after: SettingsOverlay) -> tuple[str, ...]:
    """One line for each entry that is another."""
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
            yield f"{where}: taken back"
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
