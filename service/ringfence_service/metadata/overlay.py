"""Overlay on the file: the effective settings, which the rules of the file validate.

An entry of the overlay replaces the whole entry of that name in the file, and null removes it; a
paused route is not read. Only routes and addresses change while the service runs; everything else
in the file needs a restart. The messages are those of the file. Pure.
"""

from collections.abc import Iterable, Iterator
from dataclasses import fields, replace
from typing import Final, NamedTuple

from ringfence_service.config.addresses import AddressBook
from ringfence_service.config.load import read_addresses, read_route, usable
from ringfence_service.config.model import Config, RouteSettings
from ringfence_service.config.targets import target_problems
from ringfence_service.config.validation import NamedRoute, route_problems
from ringfence_service.errors import ConfigIssue, ConfigPath
from ringfence_service.metadata.settings import Keys, SettingsOverlay, SettingsRevision

_FIXED: Final = ("scope", "address", "id")

_NO_ROUTES: Final = ConfigIssue(
    "no route is left, so there is nothing to read",
    "keep the last route and pause it",
    (("routes",),),
)


class EffectiveSettings(NamedTuple):
    """The effective settings: those of the file with the overlay applied."""

    config: Config
    paused: frozenset[str]
    """Names of routes."""


class OverlayError(NamedTuple):
    """A problem in an overlay, and its path from the top of the overlay."""

    path: ConfigPath
    problem: ConfigIssue


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
