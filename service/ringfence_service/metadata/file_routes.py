"""File routes: the inputs of each instance's routes with scope `address`, as its own file has them.

During a rolling update the files of the instances differ, and a record that one instance
repartitions may reach another whose file has no route for it. So each instance writes its routes to
the metadata topic before it reads anything, and again only when they change: of two instances, the
one whose record is later in the topic has the newer file. For an instance with a new name the age
of its file is unknown: it counts as that of other instances with the same routes.
"""

from collections.abc import Container, Mapping
from typing import Final, NamedTuple

from ringfence_service.config.expressions import reads
from ringfence_service.config.model import Config
from ringfence_service.metadata.record import MetadataRecord, read

_KIND: Final = "file-routes"


class InstanceFileRoutes(NamedTuple):
    """The routes with scope `address` in the file of one instance."""

    instance: str
    inputs: Mapping[str, tuple[str, ...]]
    """Topics and expressions as in the file, by the names of the routes."""

    @classmethod
    def of(cls, file: Config) -> "InstanceFileRoutes":
        """Return the routes of a file, without any settings made over REST."""
        inputs = {route.name: route.inputs for route in file.routes if route.is_repartitioned}
        return cls(file.service.instance, inputs)

    def record(self, *, is_first: bool) -> MetadataRecord:
        """Return the record of the metadata topic; `is_first` marks the instance's first one."""
        value: dict[str, object] = {"inputs": self.inputs}
        return MetadataRecord.of(
            [_KIND, self.instance], value | ({"first": True} if is_first else {})
        )


class _Written(NamedTuple):
    offset: int
    routes: InstanceFileRoutes
    is_first: bool
    """Whether it is the instance's first record, whose offset says nothing about the file's age."""


class GroupFileRoutes:
    """The file routes of all instances, as far as the metadata topic was read."""

    def __init__(self) -> None:
        self._by_instance: dict[str, _Written] = {}

    def take(self, key: bytes | None, value: bytes | None, offset: int) -> bool:
        """Apply one record; return whether it is of this kind."""
        match read(key):
            case [kind, str(instance)] if kind == _KIND:
                routes = InstanceFileRoutes(instance, _inputs(value))
                self._by_instance[instance] = _Written(offset, routes, _is_first(value))
                return True
            case _:
                return False

    def has(self, own: InstanceFileRoutes) -> bool:
        """Return whether an instance's record matches its file; without routes it needs none."""
        written = self._by_instance.get(own.instance)
        return own == (InstanceFileRoutes(own.instance, {}) if written is None else written.routes)

    def record_of(self, own: InstanceFileRoutes) -> MetadataRecord:
        """Return the record that an instance has to write."""
        return own.record(is_first=own.instance not in self._by_instance)

    def newer(self, instance: str, topic: str, replaced: Container[str]) -> str | None:
        """Return an instance whose newer file has a route that reads a topic; None if none does.

        `replaced` are the routes that were set over REST, so that no file applies to them.
        """
        age = self._age_of(instance)
        for written in self._by_instance.values():
            if written.offset > age and any(
                reads(inputs, topic)
                for name, inputs in written.routes.inputs.items()
                if name not in replaced
            ):
                return written.routes.instance
        return None

    def _age_of(self, instance: str) -> int:
        """Return the offset before which files are older than the instance's; -1 if unknown."""
        own = self._by_instance.get(instance)
        if own is None:
            return -1
        if not own.is_first:
            return own.offset
        known = (written for written in self._by_instance.values() if not written.is_first)
        same = (each.offset for each in known if each.routes.inputs == own.routes.inputs)
        return max(same, default=-1)


def _inputs(value: bytes | None) -> Mapping[str, tuple[str, ...]]:
    match read(value):
        case {"inputs": dict(inputs)}:
            return {name: tuple(topics) for name, topics in inputs.items()}
        case _:
            return {}


def _is_first(value: bytes | None) -> bool:
    match read(value):
        case {"first": True}:
            return True
        case _:
            return False
