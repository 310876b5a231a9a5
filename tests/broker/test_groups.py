"""Transaction groups on a real Kafka: whole in the output or whole in the dead letters."""

import random
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

import pytest

from ringfence_client.headers import DUPLICATE_ID, GROUP, GROUP_POSITION, GROUP_SIZE, DeadLetter
from tests.broker.conftest import NewWorld
from tests.broker.victim import Step
from tests.broker.workload import PARTITIONS, Record, Seen
from tools.broker.cluster import Broker

pytestmark = pytest.mark.broker

GROUPS: Final = 300
SIZE_MAX: Final = 50
TOGETHER: Final = 20
"""How many groups are under way at once."""
SENT_MS: Final = 1_700_000_000_000
KILLS: Final = (
    (Step.MID_PRODUCE, 500),
    (Step.AFTER_SEND_OFFSETS, 4),
    (Step.AFTER_COMMIT, 4),
    (Step.AFTER_STORE, 5),
    (Step.AFTER_FLUSH, 4),
)


class Sent(NamedTuple):
    """A group as it is sent: its positions, in the order of their sending."""

    name: str
    partition: int
    size: int
    positions: tuple[int, ...]
    repeats: str | None
    """The group of which it bears an id, so that it must not pass."""


def groups(chance: random.Random) -> list[Sent]:
    """A tenth has an id of an earlier group, another tenth is sent again after half of it."""
    made: list[Sent] = []
    for number in range(GROUPS):
        size, partition = chance.randint(1, SIZE_MAX), chance.randrange(PARTITIONS)
        positions = list(range(1, size + 1))
        chance.shuffle(positions)
        earlier = [g for g in made[: -3 * TOGETHER] if g.partition == partition and not g.repeats]
        repeats = chance.choice(earlier).name if earlier and chance.random() < 0.1 else None
        if repeats is None and chance.random() < 0.12:
            positions = positions[: size // 2] + positions
        made.append(Sent(f"g{number}", partition, size, tuple(positions), repeats))
    return made


def interleaved(sent: Iterable[Sent], chance: random.Random) -> Iterator[tuple[int, Record]]:
    """The records of many groups at once, each group in its own order."""
    waiting, open_ = list(sent), list[tuple[Sent, list[int]]]()
    while waiting or open_:
        while waiting and len(open_) < TOGETHER:
            group = waiting.pop(0)
            open_.append((group, list(group.positions)))
        group, left = chance.choice(open_)
        yield group.partition, record_of(group, left.pop(0))
        open_ = [(each, positions) for each, positions in open_ if positions]


def record_of(group: Sent, position: int) -> Record:
    """Only the first position bears an id, perhaps another group's."""
    told: list[tuple[str, bytes | None]] = [
        ("addr", b"a"),
        (GROUP, group.name.encode()),
        (GROUP_SIZE, b"%d" % group.size),
        (GROUP_POSITION, b"%d" % position),
    ]
    if position == 1:
        told.append((DUPLICATE_ID, (group.repeats or group.name).encode()))
    value = f"{group.name}/{position}".encode()
    return Record(None, value, tuple(told), SENT_MS)


def by_group(seen: Iterable[Seen]) -> dict[str, list[int]]:
    """The positions that stand in a topic, in its order."""
    found: dict[str, list[int]] = defaultdict(list)
    for each in seen:
        name, _, position = (each.record.value or b"").decode().partition("/")
        found[name].append(int(position))
    return found


def all_of(parts: dict[int, list[Seen]]) -> list[Seen]:
    return [each for part in parts.values() for each in part]


@pytest.mark.timeout(900)
def test_every_group_is_whole_wherever_the_service_is_killed(
    broker: Broker, new_world: NewWorld
) -> None:
    chance = random.Random(5)
    sent = groups(chance)
    work = list(interleaved(sent, chance))
    world = new_world(broker.client_properties, work=work, settings="")
    service = world.service()
    for step, count in KILLS:
        world.send(len(work) // len(KILLS) + 1)
        service.die(step, count)
        for seen, positions in by_group(all_of(world.glimpse())).items():
            assert len(positions) == next(group.size for group in sent if group.name == seen)
    service.start()
    world.wait_decided()
    service.stop()
    outputs = by_group(all_of(world.read(world.output)))
    letters = all_of(world.read(world.letters))
    assert len(sent) == GROUPS
    rejected = [each for each in letters if reason(each) == b"duplicate-in-transaction"]
    replaced = [each for each in letters if reason(each) == b"duplicate"]
    assert len(rejected) + len(replaced) == len(letters)
    refused, copies = by_group(rejected), by_group(replaced)
    for group in sent:
        whole = list(range(1, group.size + 1))
        passes = group.repeats is None
        assert outputs.get(group.name, []) == (whole if passes else []), group
        assert refused.get(group.name, []) == ([] if passes else whole), group
        again = group.positions[: len(group.positions) - group.size]
        assert sorted(copies.get(group.name, [])) == sorted(again), group
    assert sum(group.repeats is not None for group in sent) > GROUPS / 20
    assert sum(len(group.positions) > group.size for group in sent) > GROUPS / 20


def reason(each: Seen) -> bytes | None:
    return dict(each.record.headers)[DeadLetter.REASON]
