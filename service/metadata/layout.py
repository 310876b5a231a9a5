"""Topology record: the choices of the first start that cannot change later.

The scope and the address of a route, and the number of deciding partitions, determine where an id
is remembered. Any other choice would look for it elsewhere, so the choice is stored, and a later
difference stops the service at its start.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from service.config.load import Config
from service.dedup.route import resolve
from service.kafka.admin import TopicInfo
from service.metadata.record import MetadataRecord, read

_KEY: Final = ["layout"]


class RouteTopology(NamedTuple):
    """Of one route."""

    scope: str
    address: str
    id: str


class Topology(NamedTuple):
    """Of one group."""

    routes: Mapping[str, RouteTopology]
    partitions: Mapping[str, int]
    """Of the inputs whose partitions decide."""
    by_address: int = 0
    """Partitions of the topic by-address; 0 where there is none."""

    @classmethod
    def of(cls, config: Config, topics: Mapping[str, TopicInfo]) -> "Topology":
        """As it is configured; `topics` are the inputs that exist."""
        service = config.service
        bound = resolve(config.routes, topics, service.group_id)
        partitions = {
            name: topics[name].partitions
            for name, route in bound.items()
            if route.settings.scope == "partition"
        }
        routes = {r.name: RouteTopology(r.scope, r.address, r.id) for r in config.routes}
        is_needed = any(route.scope == "address" for route in config.routes)
        return cls(routes, partitions, service.by_address_partitions if is_needed else 0)

    @property
    def record(self) -> MetadataRecord:
        """As the config topic holds it."""
        routes = {name: route._asdict() for name, route in self.routes.items()}
        return MetadataRecord.of(_KEY, {**self._asdict(), "routes": routes})


def contradiction(first: Topology, now: Topology) -> str | None:
    """What has changed that may not, and what to do; None where nothing has.

    Routes and inputs come and go. Partitions that were added are `on_partitions_added`'s.
    """
    for name, route in now.routes.items():
        before = first.routes.get(name, route)
        for key in RouteTopology._fields:
            was, is_now = getattr(before, key), getattr(route, key)
            if was != is_now:
                return (
                    f'The route "{name}" was started with {key} = "{was}", and now it has '
                    f'"{is_now}"; write what it had, or delete the route and make another.'
                )
    if first.by_address and now.by_address and first.by_address != now.by_address:
        return (
            f"service.by_address_partitions was {first.by_address} at the first start, and now it "
            f"is {now.by_address}; write {first.by_address}, or start a new group."
        )
    for topic, count in now.partitions.items():
        had = first.partitions.get(topic, count)
        if count < had:
            return (
                f"{topic} was first read with {had} partitions, and now it has {count}; "
                "make it as it was, or start a new group with another service.group_id."
            )
    return None


def layout_of(key: bytes | None, value: bytes | None) -> Topology | None:
    """The layout that a record of the config topic tells; None for all others."""
    told = read(value) if read(key) == _KEY else None
    if not isinstance(told, dict):
        return None
    try:
        routes = {name: RouteTopology(**route) for name, route in told["routes"].items()}
        partitions = {name: int(count) for name, count in told["partitions"].items()}
        return Topology(routes, partitions, int(told["by_address"]))
    except (KeyError, TypeError, ValueError, AttributeError):
        return None
