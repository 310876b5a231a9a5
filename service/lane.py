"""Lane: how plain records of one address are decided, without a look at what is always the same.

A record is plain when an id is all that it claims. Invariant: a lane is a short cut and nothing
else; without any, every record has the same fate.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from ringfence.headers import ID_BYTES_MAX, Reason
from service.inlet import Inlet
from service.place import Place, Places
from service.plan import Example, Tally
from service.rejection import RejectedError
from service.route import Headers, Template
from service.target import Placing, Target
from state.rejection import repetition_of
from state.strategies.ring import RingDraft

# For the key, the headers and the envelope of any plain record: an id has 64 KiB at most.
_ROOM_BYTES: Final = 2 * ID_BYTES_MAX
# Where a dropped duplicate's original is has to be looked up for the sake of metrics alone.
_LOOKS_MAX: Final = 16


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
    draft: RingDraft
    dead_letter: Target | None
    """None where it depends on more than the address."""
    repeats: int = 0
    """Duplicates that it has answered; counted at the end of the slice."""
    dropped: tuple[int, int, int, bytes, Headers] | None = None
    """The first that left no trace: its number, its offset, its time, its id, its headers."""


class Lanes:
    """The lanes of one inlet in one transaction, opened when an address is met first."""

    def __init__(self, inlet: Inlet, places: Places, placing: Placing) -> None:
        self._inlet = inlet
        self._places = places
        self._placing = placing
        self._value_bytes_max = 0
        route = inlet.route
        self.field = route.address.field
        """The one field that decides the address, if it is one."""
        self.by_value: dict[bytes | None, Lane | None] = {}
        """By the value of that field; None where the address is the same for all."""
        self._has_any = (
            not placing.refused
            and inlet.fault is None
            and route.output.is_fixed_by_address
            # Several fields: no single value stands for the address.
            and (route.address.constant is not None or self.field is not None)
        )
        self._closed: list[Lane] = []
        self._fixed: dict[str, Target | None] = {}
        """Targets that are the same for all addresses."""

    def make_room(self, value_bytes_max: int) -> None:
        """Records so large come next: a lane that was opened for smaller ones is opened anew."""
        if value_bytes_max > self._value_bytes_max:
            self._value_bytes_max = 2 * value_bytes_max
            self._closed += [lane for lane in self.by_value.values() if lane is not None]
            self.by_value.clear()

    def count(self, tally: Tally) -> None:
        """Tell of the duplicates that lanes have answered."""
        looks = _LOOKS_MAX
        for lane in (*self._closed, *self.by_value.values()):
            if lane is not None and lane.repeats:
                tally.duplicates[lane.label] += lane.repeats
                if not lane.drops:
                    tally.dead_letters[lane.label[0], Reason.DUPLICATE] += lane.repeats
                elif looks > 0:
                    looks -= 1
                    self._look(lane, tally)

    def _look(self, lane: Lane, tally: Tally) -> None:
        """One of the duplicates that a lane has dropped stands for the rest."""
        assert lane.dropped is not None  # it has dropped some
        number, offset, time_ms, identifier, headers = lane.dropped
        origin = lane.draft.origin(number)
        tally.distances_ms.append(time_ms - origin.time_ms)
        if tally.example is None:
            place, original = self._inlet.source, repetition_of(origin).original
            tally.example = Example(*lane.label, place, offset, identifier, original, headers)

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
        placing, route = self._placing, self._inlet.route
        place = self._places.at(self._inlet.address(key, headers))
        if not isinstance(place.draft, RingDraft) or not place.settings.capacity:
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
            draft=place.draft,
            dead_letter=self._dead_letter(place),
        )

    def _dead_letter(self, place: Place) -> Target | None:
        """Where every plain duplicate of an address goes, if that is one topic with room."""
        if place.settings.on_duplicate == "mark" or place.settings.dead_letter_audit:
            return None
        template = self._inlet.route.dead_letter
        target = self._target(template, place) if template.is_fixed_by_address else None
        return target if target is not None and self._has_room(target) else None

    def _target(self, template: Template, place: Place) -> Target | None:
        """What a template names that depends on the address alone; None if that is not allowed."""
        if template.constant in self._fixed:
            return self._fixed[template.constant]
        target = None
        with suppress(RejectedError):
            target = self._placing.named(self._inlet, template, None, (), place.name)
        if template.constant is not None:
            self._fixed[template.constant] = target
        return target

    def _has_room(self, target: Target) -> bool:
        """Whether every record of the slice fits, unless key or headers are enormous.

        Then the broker refuses it, and the loop finds it out.
        """
        return 2 * self._value_bytes_max + _ROOM_BYTES <= target.record_bytes_max
