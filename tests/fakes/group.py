"""The fake's group coordinator: a classic group, cooperative assignment, static members.

A generation begins when every member is alive and has served its last assignment; a partition
that must move is first taken from its owner and given away one generation later.
Invariant: no partition is held by two members that the group still knows.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from confluent_kafka import KafkaError

from ringfence_state.model import PartitionId
from tests.fakes.errors import abortable


class GroupMetadata(NamedTuple):
    """Who commits, as the consumer knew it at one moment."""

    group: str
    generation: int = -1
    member: str = ""
    instance: str | None = None


class Move(NamedTuple):
    """What one generation changes for one member."""

    revoked: list[PartitionId]
    added: list[PartitionId]


class Committed(NamedTuple):
    """A committed offset. `by` tells whose transaction it was, `note` what it was for."""

    offset: int
    metadata: str
    by: str = ""
    note: str = ""


@dataclass(eq=False, slots=True)
class Member:
    """One consumer as the coordinator sees it; `held` is what it has not yet given back."""

    id: str
    instance: str | None
    topics: frozenset[str]
    session_ms: int
    deadline_ms: int
    generation: int = -1
    alive: bool = True
    fenced: bool = False
    held: set[PartitionId] = field(default_factory=set)
    moves: list[Move] = field(default_factory=list)


@dataclass(eq=False, slots=True)
class Group:
    """One consumer group with its committed offsets."""

    name: str
    generation: int = 0
    members: dict[str, Member] = field(default_factory=dict)
    committed: dict[PartitionId, Committed] = field(default_factory=dict)
    history: list[tuple[PartitionId, Committed]] = field(default_factory=list)
    """Every commit, in order."""
    unstable: Counter[PartitionId] = field(default_factory=Counter)
    rebalancing: bool = False
    joined: int = 0

    def join(
        self, instance: str | None, topics: frozenset[str], session_ms: int, now_ms: int
    ) -> Member:
        """Take a member in; one with a known instance id replaces and fences the old one."""
        self.joined += 1
        name = f"{instance or 'consumer'}-{self.joined:036}"
        member = Member(name, instance, topics, session_ms, now_ms + session_ms)
        old = next((m for m in self.members.values() if instance and m.instance == instance), None)
        if old is None:
            self.rebalancing = True
        else:
            del self.members[old.id]
            old.fenced = True
            leaving = {source for move in old.moves for source in move.revoked}
            self.rebalancing = self.rebalancing or bool(leaving)
            member.held = old.held - leaving
            member.generation = self.generation
            member.moves = [Move([], sorted(member.held))]
        self.members[name] = member
        return member

    def resubscribe(self, member: Member, topics: frozenset[str]) -> None:
        """Note that a member now reads other topics: it keeps what it holds until revoked."""
        if member.topics != topics:
            member.topics, self.rebalancing = topics, True

    def store(self, source: PartitionId, committed: Committed) -> None:
        """Keep a committed offset."""
        self.committed[source] = committed
        self.history.append((source, committed))

    def leave(self, member: Member) -> None:
        """Forget a member; what it held is free."""
        if self.members.pop(member.id, None):
            self.rebalancing = True

    def served(self, member: Member, move: Move) -> None:
        """Note that `member` has given back what a generation took from it."""
        member.held.difference_update(move.revoked)
        if move.revoked:
            self.rebalancing = True

    def progress(
        self,
        now_ms: int,
        partitions_of: Callable[[Iterable[str]], Iterable[PartitionId]],
        hurries: Callable[[], bool] = lambda: False,
    ) -> None:
        """Expire the dead, and begin a generation when all who live are ready for it.

        `hurries` tells whether it begins although some have not served the last one yet.
        """
        gone = []
        for member in self.members.values():
            if member.alive:
                member.deadline_ms = now_ms + member.session_ms
            elif now_ms > member.deadline_ms:
                gone.append(member)
        for member in gone:
            self.leave(member)
        if not self.rebalancing or not all(m.alive for m in self.members.values()):
            return
        if not any(m.moves for m in self.members.values()) or hurries():
            topics = {topic for member in self.members.values() for topic in member.topics}
            self._begin_generation(sorted(partitions_of(topics)))

    def check(self, who: GroupMetadata) -> None:
        """Refuse offsets as the broker does: by generation, never by ownership."""
        if who.generation < 0 and not self.members:
            return
        if who.generation < 0 and not who.member and who.instance is None:
            return  # A transactional commit without any identity is let through.
        instance = next((m for m in self.members.values() if m.instance == who.instance), None)
        if who.instance is not None and (instance is None or instance.id != who.member):
            code = KafkaError.UNKNOWN_MEMBER_ID if instance is None else _FENCED_INSTANCE
            raise abortable(code, "Broker: static consumer fenced or unknown")
        if who.member not in self.members:
            raise abortable(KafkaError.UNKNOWN_MEMBER_ID, "Broker: Unknown member")
        if who.generation != self.generation:
            raise abortable(KafkaError.ILLEGAL_GENERATION, "Broker: generation id is not valid")

    def _begin_generation(self, partitions: list[PartitionId]) -> None:
        self.generation += 1
        self.rebalancing = False
        target = _assign(list(self.members.values()), partitions)
        taken = {p for m in self.members.values() for p in m.held}
        for member in self.members.values():
            wanted = target[member.id]
            leaving = {source for move in member.moves for source in move.revoked}
            revoked = sorted(member.held - wanted - leaving)
            added = sorted(wanted - member.held - taken)
            member.held.update(added)
            member.generation = self.generation
            member.moves.append(Move(revoked, added))


_FENCED_INSTANCE = KafkaError.FENCED_INSTANCE_ID


def _assign(members: list[Member], partitions: list[PartitionId]) -> dict[str, set[PartitionId]]:
    """Sticky: everyone keeps what it holds up to its share; the rest goes to the least laden."""
    members = sorted(members, key=lambda m: (m.instance or "", m.id))
    target: dict[str, set[PartitionId]] = {m.id: set() for m in members}
    if not members:
        return target
    share = -(-len(partitions) // len(members))
    for member in members:
        known = [p for p in sorted(member.held) if p in partitions and p[0] in member.topics]
        target[member.id].update(known[:share])
    given = {p for places in target.values() for p in places}
    for place in partitions:
        if place not in given:
            takers = [m for m in members if place[0] in m.topics]
            if takers:
                least = min(takers, key=lambda m: len(target[m.id]))
                target[least.id].add(place)
    return target
