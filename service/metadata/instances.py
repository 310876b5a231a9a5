"""Instance registry: the instances of the group and their API addresses, as each registers itself.

Each instance has one record on the metadata topic. It deletes the record when it stops in order;
the record of an instance that died stays until the instance returns, or another one finds it gone
for long.
"""

from typing import Final, NamedTuple

from service.metadata.record import MetadataRecord, read

_KIND: Final = "instance"


class Registration(NamedTuple):
    """An instance, as it tells of itself."""

    name: str
    url: str
    """Where other instances reach its API; empty where they cannot."""
    started_at_ms: int
    version: str

    @property
    def record(self) -> MetadataRecord:
        """As the config topic holds it."""
        return MetadataRecord.of([_KIND, self.name], self._asdict())


def removal_of(name: str) -> MetadataRecord:
    """What takes an announcement away."""
    return MetadataRecord.gone([_KIND, name])


class InstanceRegistry:
    """Those that are announced."""

    def __init__(self) -> None:
        self._by_name: dict[str, Registration] = {}

    def take(self, key: bytes | None, value: bytes | None) -> bool:
        """One record; tells whether it is of an instance."""
        name = _name(key)
        if name is None:
            return False
        announced = _announcement(name, value)
        if announced is None:
            self._by_name.pop(name, None)
        else:
            self._by_name[name] = announced
        return True

    def get(self, name: str) -> Registration | None:
        """The one of this name, if it is announced."""
        return self._by_name.get(name)

    @property
    def all(self) -> tuple[Registration, ...]:
        """By their names."""
        return tuple(self._by_name[name] for name in sorted(self._by_name))


def _name(key: bytes | None) -> str | None:
    match read(key):
        case [kind, str(name)] if kind == _KIND:
            return name
        case _:
            return None


def _announcement(name: str, value: bytes | None) -> Registration | None:
    match read(value):
        case {"name": told, "url": str(url), "started_at_ms": int(at_ms), "version": str(version)}:
            return Registration(name, url, at_ms, version) if told == name else None
        case _:
            return None
