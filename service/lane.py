"""Lane: how plain records of one address are decided, without a look at what is always the same.

A record is plain when an id is all that it claims. Invariant: a lane is a short cut and nothing
else; without any, every record has the same fate.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from ringfence.headers import ID_BYTES_MAX
from service.partition import Partition
from service.place import Place
from service.rejection import RejectedError
from service.route import Headers
from service.target import Placing, Target

# For the key, the headers and the envelope of any plain record: an id has 64 KiB at most.
_ROOM_BYTES: Final = 2 * ID_BYTES_MAX


@dataclass(slots=True)  # not frozen: one is made for each address of a slice, and read often
class Lane:
    """What no plain record of the slice changes."""

    admit: Callable[[bytes, int, int], int | None]
    topic: str
    keyed: int
    unkeyed: int
    drops: bool
    label: tuple[str, str]
    place: Place
    dead_letter: Target | None
    """None where it depends on more than the address."""


class Lanes:
    """The lanes of one slice, each opened by the first record that passed all checks."""

    def __init__(self, partition: Partition, placing: Placing, value_bytes_max: int) -> None:
        self._partition = partition
        self._placing = placing
        self._value_bytes_max = value_bytes_max
        self.field = partition.route.address.field
        """The one field that decides the address, if it is one."""
        self.by_value: dict[bytes | None, Lane] = {}
        """By the value of that field; None where the address is the same for all."""

    def open(self, key: bytes | None, headers: Headers, place: Place, target: Target) -> None:
        """Let plain records of this address pass from now on, where nothing else can differ."""
        route, placing = self._partition.route, self._placing
        fits = placing.compressing or self._has_room(target)
        if placing.refused or not fits or not route.output.is_fixed_by_address:
            return
        if route.address.constant is None and self.field is None:
            return  # several fields: no single value stands for the address
        value = None if self.field is None else self.field.of(key, headers)
        self.by_value[value] = Lane(
            place.draft.admit,
            target.topic,
            target.keyed,
            target.unkeyed,
            drops=place.settings.on_duplicate == "drop",
            label=(route.settings.name, place.name),
            place=place,
            dead_letter=self._fixed_dead_letter(place),
        )

    @property
    def only(self) -> Lane | None:
        """The lane of all records, where they have one address and it is open."""
        return self.by_value.get(None) if self.field is None else None

    def _fixed_dead_letter(self, place: Place) -> Target | None:
        """Where every plain duplicate of an address goes, if that is one topic with room."""
        template = self._partition.route.dead_letter
        if not template.is_fixed_by_address:
            return None
        with suppress(RejectedError):
            target = self._placing.named(self._partition, template, None, (), place.name)
            if self._has_room(target):
                return target
        return None

    def _has_room(self, target: Target) -> bool:
        """Whether every record of the slice fits, unless key or headers are enormous.

        Then the broker refuses it, and the loop finds it out.
        """
        return 2 * self._value_bytes_max + _ROOM_BYTES <= target.record_bytes_max
