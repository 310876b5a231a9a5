"""File routes: which inputs each instance passes on by address, as its own file names them.

While instances are replaced one after the other their files differ, and a record that one of them
passes on may reach another whose file does not name its route. So each instance writes its routes
to the config topic before it reads anything, and writes them again only when they change: of two
instances, the one whose record comes later in the topic has the newer file.
"""

from collections.abc import Container, Mapping
from typing import Final, NamedTuple

from service.config import Config
from service.config_record import ConfigRecord, read
from service.route import reads

_KIND: Final = "file-routes"


class FileRoutes(NamedTuple):
    """Those of one instance that have scope `address`."""

    instance: str
    inputs: Mapping[str, tuple[str, ...]]
    """By the names of the routes, as the file has them: topics and expressions."""

    @classmethod
    def of(cls, file: Config) -> "FileRoutes":
        """Those of a file, whatever is laid over it."""
        carried = {route.name: route.inputs for route in file.routes if route.scope == "address"}
        return cls(file.service.instance, carried)

    @property
    def record(self) -> ConfigRecord:
        """As the config topic holds it."""
        return ConfigRecord.of([_KIND, self.instance], {"inputs": self.inputs})


class FilesRoutes:
    """Those of all instances, as far as the config topic was read."""

    def __init__(self) -> None:
        self._by_instance: dict[str, tuple[int, FileRoutes]] = {}
        """With the offset of the record."""

    def take(self, key: bytes | None, value: bytes | None, offset: int) -> bool:
        """One record; tells whether it is of this kind."""
        match read(key):
            case [kind, str(instance)] if kind == _KIND:
                self._by_instance[instance] = (offset, FileRoutes(instance, _inputs(value)))
                return True
            case _:
                return False

    def has(self, own: FileRoutes) -> bool:
        """Whether an instance has written what its file holds now."""
        return self._of(own.instance)[1] == own

    def newer(self, instance: str, topic: str, replaced: Container[str]) -> str | None:
        """An instance with a newer file, a route of which reads a topic; None where none has.

        `replaced` are routes for which no file counts any more, since they were set over REST.
        """
        written, _ = self._of(instance)
        for offset, other in self._by_instance.values():
            if offset > written and any(
                reads(inputs, topic)
                for name, inputs in other.inputs.items()
                if name not in replaced
            ):
                return other.instance
        return None

    def _of(self, instance: str) -> tuple[int, FileRoutes]:
        return self._by_instance.get(instance, (-1, FileRoutes(instance, {})))


def _inputs(value: bytes | None) -> Mapping[str, tuple[str, ...]]:
    match read(value):
        case {"inputs": dict(inputs)}:
            return {name: tuple(topics) for name, topics in inputs.items()}
        case _:
            return {}
