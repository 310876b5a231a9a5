"""Topology record: the choices of the first start that cannot change later.

The scope and the address of a route, and the number of deciding partitions, determine where an id
is remembered. With other values the service would look for it elsewhere. So the values are stored,
and a later difference stops the service at its start. The form of templates is one of them: routes
that began before fields were escaped, or with an earlier preset, keep their ids and addresses.
"""

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Final, NamedTuple

from ringfence_service.config.model import Config, RouteSettings
from ringfence_service.config.templates import ESCAPED, earlier, is_escaped, unmarked
from ringfence_service.dedup.route import resolve
from ringfence_service.errors import ConfigIssue
from ringfence_service.kafka.model import TopicInfo
from ringfence_service.metadata.record import MetadataRecord, read

_KEY: Final = ["layout"]


class RouteTopology(NamedTuple):
    """The fixed choices of one route."""

    scope: str
    address: str
    id: str

    @classmethod
    def of(cls, route: RouteSettings) -> "RouteTopology":
        """Return the choices of a route; a template whose fields are escaped says so."""
        return cls(route.scope, _stored(route.address), _stored(route.id))


def _stored(template: str) -> str:
    return f"{ESCAPED if is_escaped(template) else ''}{unmarked(template)}"


class Topology(NamedTuple):
    """The fixed choices of one group."""

    routes: Mapping[str, RouteTopology]
    partitions: Mapping[str, int]
    """Partition counts of the inputs of routes with scope `partition`."""
    by_address: int = 0
    """Partitions of the topic by-address; 0 if there is none."""

    @classmethod
    def of(cls, config: Config, topics: Mapping[str, TopicInfo]) -> "Topology":
        """Return the topology of a configuration; `topics` are the inputs that exist."""
        service = config.service
        bound = resolve(config.routes, topics, service.group_id)
        partitions = {
            name: topics[name].partitions
            for name, route in bound.items()
            if route.settings.scope == "partition"
        }
        routes = {route.name: RouteTopology.of(route) for route in config.routes}
        is_needed = any(route.is_repartitioned for route in config.routes)
        return cls(routes, partitions, service.by_address_partitions if is_needed else 0)

    def without(self, names: Collection[str]) -> "Topology":
        """Return the topology without some routes, which are then new ones."""
        routes = {name: route for name, route in self.routes.items() if name not in names}
        return self._replace(routes=routes)

    @property
    def record(self) -> MetadataRecord:
        """The topology as a record of the metadata topic."""
        routes = {name: route._asdict() for name, route in self.routes.items()}
        return MetadataRecord.of(_KEY, {**self._asdict(), "routes": routes})


def as_started(config: Config, first: Topology | None) -> Config:
    """Return the configuration in which started routes have the templates they were started with.

    That is, where the same text means something else today: unescaped fields, or an earlier preset.
    """
    if first is None:
        return config
    routes = tuple(_as_started(each, first.routes.get(each.name)) for each in config.routes)
    return config if routes == config.routes else replace(config, routes=routes)


def _as_started(route: RouteSettings, first: RouteTopology | None) -> RouteSettings:
    if first is None:
        return route
    address = _of_started(route.address, first.address)
    return replace(route, address=address, id=_of_started(route.id, first.id))


def _of_started(template: str, first: str) -> str:
    if _stored(template) == first or template != unmarked(template):
        return template
    return next((each for each in earlier(template) if _stored(each) == first), template)


def contradiction(first: Topology, now: Topology) -> ConfigIssue | None:
    """Return the first forbidden change, and how to undo it; None if there is none.

    Routes and inputs may be added and removed. Added partitions are up to `on_partitions_added`.
    """
    for name, route in now.routes.items():
        before = first.routes.get(name, route)
        for key in RouteTopology._fields:
            was, is_now = getattr(before, key), getattr(route, key)
            if was != is_now:
                return ConfigIssue(
                    f'The route "{name}" was first started with {key} = "{was}", and now it has '
                    f'"{is_now}"',
                    "restore the old value, or give the route another name, to make it a new route",
                )
    if first.by_address and now.by_address and first.by_address != now.by_address:
        return ConfigIssue(
            f"service.by_address_partitions was {first.by_address} at the first start, and now it "
            f"is {now.by_address}",
            f"set {first.by_address}, or start a new group",
        )
    for topic, count in now.partitions.items():
        had = first.partitions.get(topic, count)
        if count < had:
            return ConfigIssue(
                f"{topic} was first read with {had} partitions, and now it has {count}",
                "create it as it was, or start a new group with another service.group_id",
            )
    return None


def layout_of(key: bytes | None, value: bytes | None) -> Topology | None:
    """Return the topology in a record of the metadata topic; None for all other records."""
    document = read(value) if read(key) == _KEY else None
    if not isinstance(document, dict):
        return None
    try:
        routes = {name: RouteTopology(**route) for name, route in document["routes"].items()}
        partitions = {name: int(count) for name, count in document["partitions"].items()}
        return Topology(routes, partitions, int(document["by_address"]))
    except (KeyError, TypeError, ValueError, AttributeError):
        return None
