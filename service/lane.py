"""Lane: how plain records of one address are decided, without a look at what is always the same.

A record is plain when an id is all that it claims. Invariant: a lane is a short cut and nothing
else; without any, every record has the same fate.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from ringfence.headers import ID_BYTES_MAX, Reason
from service.partition import Partition
from service.place import Place, Places
from service.plan import Tally
from service.rejection import RejectedError
from service.route import Headers, Template
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
    repeats: int = 0
    """Duplicates that it has answered; counted at the end of the slice."""


class Lanes:
    """The lanes of one slice, opened when an address is met first."""

    def __init__(
        self, partition: Partition, places: Places, placing: Placing, value_bytes_max: int
    ) -> None:
        self._partition = partition
        self._places = places
        self._placing = placing
        self._value_bytes_max = value_bytes_max
        route = partition.route
        self.field = route.address.field
        """The one field that decides the address, if it is one."""
        self.by_value: dict[bytes | None, Lane | None] = {}
        """By the value of that field; None where the address is the same for all."""
        self._has_any = (
            not placing.refused
            and route.output.is_fixed_by_address
            # Several fields: no single value stands for the address.
            and (route.address.constant is not None or self.field is not None)
        )
        self._fixed: dict[str, Target | None] = {}
        """Targets that are the same for all addresses."""

    def count(self, tally: Tally) -> None:
        """Tell of the duplicates that lanes have answered."""
        for lane in self.by_value.values():
            if lane is not None and lane.repeats:
                tally.duplicates[lane.label] += lane.repeats
                if not lane.drops:
                    tally.dead_letters[lane.label[0], Reason.DUPLICATE] += lane.repeats

    def open(self, value: bytes | None, key: bytes | None, headers: Headers) -> Lane | None:
        """Let plain records of this address pass from now on, where nothing else can differ."""
        if not self._has_any or value in self.by_value:
            return None
        lane = None
        with suppress(RejectedError):
            lane = self._opened(key, headers)
        self.by_value[value] = lane
        return lane

    def _opened(self, key: bytes | None, headers: Headers) -> Lane | None:
        placing, route = self._placing, self._partition.route
        place = self._places.find(key, headers)
        if not place.settings.id_cache_size:
            return None
        self._places.check_room(place)
        target = self._target(route.output, place)
        if target is None or not (placing.compressing or self._has_room(target)):
            return None
        # A plain record is remembered, or its address is not new.
        self._places.admit(place)
        return Lane(
            place.draft.admit,
            target.topic,
            target.keyed,
            target.unkeyed,
            drops=place.settings.on_duplicate == "drop",
            label=(route.settings.name, place.name),
            place=place,
            dead_letter=self._dead_letter(place),
        )

    def _dead_letter(self, place: Place) -> Target | None:
        """Where every plain duplicate of an address goes, if that is one topic with room."""
        template = self._partition.route.dead_letter
        target = self._target(template, place) if template.is_fixed_by_address else None
        return target if target is not None and self._has_room(target) else None

    def _target(self, template: Template, place: Place) -> Target | None:
        """What a template names that depends on the address alone; None if that is not allowed."""
        if template.constant in self._fixed:
            return self._fixed[template.constant]
        target = None
        with suppress(RejectedError):
            target = self._placing.named(self._partition, template, None, (), place.name)
        if template.constant is not None:
            self._fixed[template.constant] = target
        return target

    def _has_room(self, target: Target) -> bool:
        """Whether every record of the slice fits, unless key or headers are enormous.

        Then the broker refuses it, and the loop finds it out.
        """
        return 2 * self._value_bytes_max + _ROOM_BYTES <= target.record_bytes_max
