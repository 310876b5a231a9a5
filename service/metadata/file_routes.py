"""File routes: the inputs that each instance passes on by address, as its own file names them.

During a rolling update the files of the instances differ, and a record that one instance passes on
may reach another whose file does not name its route. So each instance writes its routes to the
metadata topic before it reads anything, and again only when they change: of two instances, the one
whose record is later in the topic has the newer file. For an instance that is new by name the age
of its file is unknown: it counts as that of other instances with the same routes.
"""

from collections.abc import Container, Mapping
from typing import Final, NamedTuple

from service.config.load import Config
from service.dedup.route import reads
from service.metadata.record import MetadataRecord, read

_KIND: Final = "file-routes"


class InstanceFileRoutes(NamedTuple):
    """Those of one instance that have scope `address`."""

    instance: str
    inputs: Mapping[str, tuple[str, ...]]
    """By the names of the routes, as the file has them: topics and expressions."""

    @classmethod
    def of(cls, file: Config) -> "InstanceFileRoutes":
        """Those of a file, whatever is laid over it."""
        carried = {route.name: route.inputs for route in file.routes if route.scope == "address"}
        return cls(file.service.instance, carried)

    def record(self, *, is_first: bool) -> MetadataRecord:
        """As the config topic holds it; whether it is the first one of its instance."""
        value: dict[str, object] = {"inputs": self.inputs}
        return MetadataRecord.of(
            [_KIND, self.instance], value | ({"first": True} if is_first else {})
        )


class _Written(NamedTuple):
    offset: int
    routes: InstanceFileRoutes
    is_first: bool
    """Whether the instance has had no other routes, so that its offset says nothing of its file."""


class GroupFileRoutes:
    """Those of all instances, as far as the config topic was read."""

    def __init__(self) -> None:
        self._by_instance: dict[str, _Written] = {}

    def take(self, key: bytes | None, value: bytes | None, offset: int) -> bool:
        """One record; tells whether it is of this kind."""
        match read(key):
            case [kind, str(instance)] if kind == _KIND:
                routes = InstanceFileRoutes(instance, _inputs(value))
                self._by_instance[instance] = _Written(offset, routes, _is_first(value))
                return True
            case _:
                return False

    def has(self, own: InstanceFileRoutes) -> bool:
        """Whether an instance has written what its file holds now; one without routes need not."""
        written = self._by_instance.get(own.instance)
        return own == (InstanceFileRoutes(own.instance, {}) if written is None else written.routes)

    def record_of(self, own: InstanceFileRoutes) -> MetadataRecord:
        """What an instance has to write."""
        return own.record(is_first=own.instance not in self._by_instance)

    def newer(self, instance: str, topic: str, replaced: Container[str]) -> str | None:
        """An instance with a newer file, a route of which reads a topic; None where none has.

        `replaced` are routes for which no file counts any more, since they were set over REST.
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
        """The offset before which files are older than that of an instance; -1 if none is known."""
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
