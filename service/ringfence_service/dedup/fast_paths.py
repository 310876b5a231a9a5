"""Fast paths: what the records of an address share that claim an id and nothing else, or nothing.

An address has a fast path where its output, its dead letters and its checks are the same for all
such records; it is made when the first of them comes, and holds what no record changes. Invariant:
the fast path is an optimisation only; without it every record has the same fate.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from ringfence_client.headers import Headers, Reason
from ringfence_service.dedup.address import AddressContext, AddressContexts
from ringfence_service.dedup.checks import Checks
from ringfence_service.dedup.field import compiled_name
from ringfence_service.dedup.output import OutputResolver, OutputTopic
from ringfence_service.dedup.plan import BatchCounts, Unchecked
from ringfence_service.dedup.record import Record, RejectedError
from ringfence_service.dedup.route import InputPartition, Template
from ringfence_service.native.compiled import CompiledDraft
from ringfence_state.strategies.base import Admit, IdDraft

_LOOKUPS_MAX: Final = 16
"""For how many addresses of a partition the original of a dropped duplicate is looked up.

Only metrics need it, and it may read the store, for which the transaction waits.
"""


@dataclass(slots=True)  # not frozen: one is made for each address of a slice, and read often
class FastPath:
    """What all fast-path records of an address share, and their counts."""

    admit: Admit
    topic: str
    keyed: int
    unkeyed: int
    drops: bool
    label: tuple[str, str]
    context: AddressContext
    draft: IdDraft
    dead_letter: OutputTopic | None
    """The dead-letter topic; None if it depends on more than the address."""
    repeats: int = 0
    """Number of duplicates found; counted when the transaction is sealed."""
    dropped: tuple[int, int] | None = None
    """The first dropped duplicate: ring number and time."""
    lane: Any = None
    """The same for compiled code, where it has the ring."""

    def count_lane(self) -> None:
        """Add what compiled code has found."""
        if self.lane is not None:
            repeats, number, time_ms = self.lane.take()
            if not self.repeats:
                self.dropped = number, time_ms
            self.repeats += repeats


@dataclass(slots=True)
class PassPath:
    """What all records of an address share that claim nothing and pass unchecked; their count."""

    topic: str
    keyed: int
    unkeyed: int
    label: tuple[str, str]
    unchecked: tuple[str, Unchecked]
    cause: str | None
    """Why the first of them has no id; None if the address detects no duplicates."""
    passed: int = 0
    lane: Any = None
    """The same for compiled code, where it has the ring."""

    def admit(self, _identifier: bytes, _packed_position: int, _time_ms: int) -> None:
        """Count one more, as `IdDraft.admit` that never knows an id."""
        self.passed += 1

    def count_lane(self) -> None:
        """Add what compiled code has passed on."""
        if self.lane is not None:
            self.passed += self.lane.passed()


P = TypeVar("P")


class FastPaths:
    """The fast paths of one input partition in one transaction, each opened on first use."""

    def __init__(
        self,
        input_partition: InputPartition,
        contexts: AddressContexts,
        output_resolver: OutputResolver,
        checks: Checks,
    ) -> None:
        self._input_partition = input_partition
        self._checks = checks
        self._contexts = contexts
        self._output_resolver = output_resolver
        route = input_partition.route
        self.field = route.address.field
        """The field that alone decides the address, if there is one."""
        self.by_value: dict[bytes | None, FastPath | None] = {}
        """By the value of that field; by None if the address is constant."""
        self.passing: dict[bytes | None, PassPath | None] = {}
        """The same for records that claim nothing."""
        self.lanes: dict[bytes | None, object] = {}
        """The same for compiled code, where it has the ring."""
        self.field_name = compiled_name(self.field)
        self._has_any = (
            input_partition.fault is None
            and route.output.is_fixed_by_address
            # With several fields no single value identifies the address.
            and (route.address.constant is not None or self.field is not None)
        )
        self._fixed: dict[str, OutputTopic | None] = {}
        """Target topics that are the same for all addresses."""

    def count(self, tally: BatchCounts) -> None:
        """Add the duplicates found on fast paths to the tally, and the records that passed."""
        for passing in filter(None, self.passing.values()):
            passing.count_lane()
            if passing.passed:
                tally.accepted[passing.label] += passing.passed
                tally.unchecked[passing.unchecked] += passing.passed
                if passing.cause is not None:
                    tally.unchecked_causes.setdefault(passing.unchecked, passing.cause)
        lookups = _LOOKUPS_MAX
        for fast_path in filter(None, self.by_value.values()):
            fast_path.count_lane()
            if fast_path.repeats:
                tally.duplicates[fast_path.label] += fast_path.repeats
                if not fast_path.drops:
                    tally.dead_letters[fast_path.label[0], Reason.DUPLICATE] += fast_path.repeats
                elif lookups > 0:
                    lookups -= 1
                    self._sample_dropped(fast_path, tally)

    def _sample_dropped(self, fast_path: FastPath, tally: BatchCounts) -> None:
        """Report the distance of one dropped duplicate as a sample for the rest."""
        assert fast_path.dropped is not None  # it has dropped some
        number, time_ms = fast_path.dropped
        tally.distances_ms.append(time_ms - fast_path.draft.origin(number).time_ms)

    def open(self, value: bytes | None, record: Record, headers: Headers) -> FastPath | None:
        """Open the fast path of this address; None if its records need the full path."""
        return self._open(self.by_value, self._admitting, value, record, headers)

    def open_passing(
        self, value: bytes | None, record: Record, headers: Headers
    ) -> PassPath | None:
        """Open the path of this address for records that claim nothing; None as for `open`."""
        return self._open(self.passing, self._passing, value, record, headers)

    def _open(
        self,
        paths: dict[bytes | None, P | None],
        path_of: Callable[[AddressContext, Record, Headers], P | None],
        value: bytes | None,
        record: Record,
        headers: Headers,
    ) -> P | None:
        if not self._has_any or value in paths:
            return None
        path = None
        with suppress(RejectedError):
            context = self._contexts.at(self._input_partition.address(record, headers))
            path = path_of(context, record, headers)
            paths[value] = path
            self._open_lane(value, context)
        paths[value] = path
        return path

    def _passing(
        self, context: AddressContext, record: Record, headers: Headers
    ) -> PassPath | None:
        """Return a path if every record that claims nothing is forwarded as it is."""
        route = self._input_partition.route
        name, why = route.settings.name, self._checks.why_unchecked(record, headers, context)
        target = None if why is None else self._target(route.output, record, context)
        if why is None or target is None or not self._output_resolver.has_room(target.info):
            return None
        reason, cause = why
        places = target.topic, target.keyed, target.unkeyed
        return PassPath(*places, (name, context.cache), (name, reason), cause)

    def _open_lane(self, value: bytes | None, context: AddressContext) -> None:
        """Have compiled code take the records for which there is a path, if it has the ring."""
        fast_path, passing = self.by_value.get(value), self.passing.get(value)
        path = fast_path or passing
        if path is None or not isinstance(context.draft, CompiledDraft):
            return
        if fast_path is not None:
            fast_path.count_lane()
        if passing is not None:
            passing.count_lane()
        lane = context.draft.lane(
            (path.topic, path.keyed, path.unkeyed),
            None if fast_path is None else self._letter(fast_path),
            drops=fast_path is not None and fast_path.drops,
            admits=fast_path is not None,
            passes=passing is not None,
        )
        self.lanes[value] = lane
        if fast_path is not None:
            fast_path.lane = lane
        if passing is not None:
            passing.lane = lane

    def _letter(self, fast_path: FastPath) -> tuple[object, ...] | None:
        """Return how compiled code writes dead letters; None if it cannot."""
        target = fast_path.dead_letter
        if target is None:
            return None
        form = self._checks.envelope(fast_path.context).repetition_form()
        return target.topic, target.keyed, target.unkeyed, form

    def _admitting(
        self, context: AddressContext, record: Record, _headers: Headers
    ) -> FastPath | None:
        """Return a path if the address remembers ids and has room, also for dead letters."""
        output_resolver, route = self._output_resolver, self._input_partition.route
        draft = context.draft.by_id
        if draft is None:
            return None
        self._contexts.check_room(context)
        target = self._target(route.output, record, context)
        if target is None or not output_resolver.has_room(target.info):
            return None
        # A fast-path record is remembered, or its address is not new.
        self._contexts.admit(context)
        return FastPath(
            draft.admit,
            target.topic,
            target.keyed,
            target.unkeyed,
            drops=context.settings.on_duplicate == "drop",
            label=(route.settings.name, context.cache),
            context=context,
            draft=draft,
            dead_letter=self._dead_letter(record, context),
        )

    def _dead_letter(self, record: Record, context: AddressContext) -> OutputTopic | None:
        """Return the topic of an address's dead letters, if it is one and has room for them."""
        if context.settings.on_duplicate == "mark" or context.settings.dead_letter_audit:
            return None
        template = self._input_partition.route.dead_letter
        target = self._target(template, record, context) if template.is_fixed_by_address else None
        has_room = target is not None and self._output_resolver.has_room(target.info)
        return target if has_room else None

    def _target(
        self, template: Template, record: Record, context: AddressContext
    ) -> OutputTopic | None:
        """Return the target that the address alone decides; None if it is not allowed."""
        if template.constant in self._fixed:
            return self._fixed[template.constant]
        target = None
        with suppress(RejectedError):
            target = self._output_resolver.named(
                self._input_partition, template, record, (), context.name
            )
        if template.constant is not None:
            self._fixed[template.constant] = target
        return target
