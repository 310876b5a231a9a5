"""Patience: how long records that await nothing wait for a route that awaits something.

A turn of a process in which nothing has failed takes `batch_wait_ms` and what an open transaction
waits for further records, and it decides what the client has delivered, or leaves a partition alone
of which a record awaits something. So a record that can be read is decided after the records before
it, and after one turn for each partition that begins to wait: no turn may do neither. One record
awaits three things at most, one after the other: its schema, its output, its dead-letter topic.
Not counted are turns in which something fails, the group rebalances, or the client returns nothing
of a partition, as it is free to; a failure begins the count again.
"""

from collections import Counter
from typing import TYPE_CHECKING, Final, NamedTuple, cast

from ringfence_service.processor.loop import Loop
from ringfence_service.processor.poll import _OPEN_S
from ringfence_state.model import PartitionId
from tests.fakes.consumer import FakeConsumer
from tests.simulation.instance import Instance
from tests.simulation.invariants import Broken

if TYPE_CHECKING:
    from tests.simulation.world import World

FRUITLESS_MAX: Final = 1
"""Turns without a decision or a new wait: the one in which the process follows new inputs."""
WAITS_MAX: Final = 3
"""How often a partition may begin to wait at one offset."""


class Moment(NamedTuple):
    """What a process has at hand before a turn, and after it."""

    loop: Loop
    disturbed: tuple[object, ...]
    """What changes with a failure."""
    now_ms: int
    settled: bool
    """Whether no partition is being taken over."""
    decided: int
    """The sum of the offsets that were committed."""
    blocked: frozenset[PartitionId]
    clean: dict[PartitionId, int]
    """The offset of the first readable record, by partition of which none awaits anything."""


class Patience:
    """Watches every turn of every process."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self._fruitless = Counter[tuple[int, PartitionId]]()
        """Turns that a partition's first record has waited for, by process."""
        self._waits = Counter[tuple[int, PartitionId, int]]()
        """How often a partition began to wait at an offset, by process."""

    def moment(self, instance: Instance) -> Moment | None:
        """Return what a process has at hand; None if there is none."""
        loop, world = instance.loop, self._world
        if loop is None or world.case.late_output:
            return None
        assignment = loop.assignment
        cast("FakeConsumer", assignment.consumer).withheld.clear()
        return Moment(
            loop,
            (
                world.struck,
                world.freedom.reported,
                world.met["aborted"],
                world.met["refused by the broker"],
                assignment.rebalances,
                loop.active_settings.settings_follower.revision,
            ),
            world.log.now_ms,
            assignment.settled,
            sum(each.next_offset for each in assignment.running.values()),
            frozenset(assignment.fetching.blocks),
            self._clean(loop),
        )

    def _clean(self, loop: Loop) -> dict[PartitionId, int]:
        found = {}
        for source, partition in loop.assignment.running.items():
            if loop.assignment.fetching.is_paused(partition):
                continue
            offsets = self._world.readable(source, partition.next_offset)
            if offsets and not any(self._world.awaits(source, each) for each in offsets):
                found[source] = offsets[0]
        return found

    def judge(self, before: Moment | None, instance: Instance) -> None:
        """I17: see the head of this module."""
        if before is None:
            return
        consumer = cast("FakeConsumer", before.loop.assignment.consumer)
        withheld = frozenset(consumer.withheld)
        after = self.moment(instance)
        life = id(before.loop)
        if after is None or after.loop is not before.loop or after.disturbed != before.disturbed:
            self._fruitless.clear()
            self._waits.clear()
            return
        begun = after.blocked - before.blocked
        for source in begun:
            self._note_wait(life, source, before.loop)
        is_fruitless = after.decided == before.decided and not begun
        for source, offset in before.clean.items():
            is_same = after.clean.get(source) == offset
            if not is_same or not is_fruitless:
                del self._fruitless[life, source]
            elif source not in withheld:
                self._fruitless[life, source] += 1
            self._world.met["clean turns beside a wait"] += bool(before.blocked)
            if self._fruitless[life, source] > FRUITLESS_MAX:
                raise Broken("I17", f"{source}@{offset} awaits nothing, and is not decided")
        took_ms, most_ms = after.now_ms - before.now_ms, self._turn_ms
        takes_over = not (before.settled and after.settled)
        if not (takes_over or self._world.case.load_ms_per_byte) and took_ms > most_ms:
            raise Broken("I17", f"a turn took {took_ms} ms, and {most_ms} ms is the most")

    def _note_wait(self, life: int, source: PartitionId, loop: Loop) -> None:
        sentence = loop.assignment.fetching.blocks[source].sentence
        kind = "schema" if "schema registry" in sentence else "topic"
        self._world.met[f"waits for a {kind}"] += 1
        name = (life, source, loop.assignment.running[source].next_offset)
        self._waits[name] += 1
        if self._waits[name] > WAITS_MAX:
            raise Broken("I17", f"{source} begins to wait again and again")

    @property
    def _turn_ms(self) -> int:
        service = self._world.case.config("", 0).service
        return service.batch_wait_ms + int(_OPEN_S * 1000)
