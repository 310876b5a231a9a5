"""Instance registry: the instances of the group and their API addresses, as each registers itself.

Each instance has one record on the metadata topic and deletes it in an orderly shutdown. The record
of an instance that died stays until the instance returns, or until another instance has not reached
it for a long time.
"""

from typing import Final, NamedTuple

from ringfence_service.metadata.record import MetadataRecord, read

_KIND: Final = "instance"


class Registration(NamedTuple):
    """An instance as it registers itself."""

    name: str
    url: str
    """The URL at which other instances reach its API; empty if they cannot."""
    started_at_ms: int
    version: str

    @property
    def record(self) -> MetadataRecord:
        """The registration as a record of the metadata topic."""
        return MetadataRecord.of([_KIND, self.name], self._asdict())


def removal_of(name: str) -> MetadataRecord:
    """Return the record that deletes a registration."""
    return MetadataRecord.gone([_KIND, name])


class InstanceRegistry:
    """The registered instances."""

    def __init__(self) -> None:
        self._by_name: dict[str, Registration] = {}

    def take(self, key: bytes | None, value: bytes | None) -> bool:
        """Apply one record; return whether it is a registration."""
        name = _name(key)
        if name is None:
            return False
        registration = _registration(name, value)
        if registration is None:
            self._by_name.pop(name, None)
        else:
            self._by_name[name] = registration
        return True

    def get(self, name: str) -> Registration | None:
        """Return the instance of this name; None if it is not registered."""
        return self._by_name.get(name)

    @property
    def all(self) -> tuple[Registration, ...]:
        """All registered instances, sorted by name."""
        return tuple(self._by_name[name] for name in sorted(self._by_name))


def _name(key: bytes | None) -> str | None:
    match read(key):
        case [kind, str(name)] if kind == _KIND:
            return name
        case _:
            return None


def _registration(name: str, value: bytes | None) -> Registration | None:
    match read(value):
        case {"name": given, "url": str(url), "started_at_ms": int(at_ms), "version": str(version)}:
            return Registration(name, url, at_ms, version) if given == name else None
        case _:
            return None
