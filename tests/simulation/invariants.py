"""Invariants: what must hold of a run, read from the topics and the disks alone."""

import hashlib
from collections import defaultdict
from typing import TYPE_CHECKING

from ringfence.headers import DUPLICATE_ID, DeadLetter
from service.takeover import is_too_old
from service.topics import changelog
from state.edit import Source
from state.run import address_of, decode, prefix
from state.strategies.ring import ID_BYTES_MAX
from tests.fakes.log import FakeCluster
from tests.fakes.partition import Fate, Headers, Partition, Record
from tests.simulation.disk import Disk
from tests.simulation.model import Expected, Model, Place
from tests.simulation.scenario import GROUP, Sent

if TYPE_CHECKING:
    from tests.simulation.world import World


class Broken(Exception):  # noqa: N818 - it is not an error of the simulation
    """An invariant does not hold."""

    def __init__(self, invariant: str, what: str) -> None:
        super().__init__(f"{invariant}: {what}")
        self.invariant = invariant


def check_disk(log: FakeCluster, disk: Disk) -> None:
    """I6, I7: a store is the fold of the committed changelog up to its position, never ahead."""
    for source, store in disk.stores():
        position = store.position()
        held = dict(store.scan(b""))
        if position is None:
            if held:
                raise Broken("I6", f"the store of {source} holds keys and has no position")
            continue
        if is_too_old(position, log.now_ms):
            continue  # it will be wiped
        partition = log.log(changelog(GROUP, source.topic), source.partition)
        if partition is None or position.changelog_next > partition.end:
            raise Broken("I7", f"the store of {source} is ahead of the changelog")
        if not _is_prefix(held, partition, position.changelog_next):
            raise Broken("I6", f"the store of {source} is not the changelog up to its position")


def _is_prefix(held: dict[bytes, bytes], partition: Partition, end: int) -> bool:
    """Compare with the changelog below `end`.

    Half-way through a restore a key may be missing or out of date: compaction took what came
    again later, and the rest of the restore will bring it.
    """
    wanted = folded(partition, end)
    if held == wanted:
        return True
    later = {
        entry.record.key
        for entry in partition.archive[end:]
        if entry.record and entry.transaction and entry.transaction.fate is Fate.COMMITTED
    }
    compacted = len(partition.entries) < len(partition.archive)
    different = {key for key, _ in held.items() ^ wanted.items()}
    return compacted and different <= later


def folded(partition: Partition, end: int) -> dict[bytes, bytes]:
    """Return what the committed records below `end` leave, compaction left out."""
    found: dict[bytes, bytes] = {}
    for entry in partition.archive[:end]:
        transaction = entry.transaction
        if entry.record is None or transaction is None or transaction.fate is not Fate.COMMITTED:
            continue
        assert entry.record.key is not None
        if entry.record.value is None:
            found.pop(entry.record.key, None)
        else:
            found[entry.record.key] = entry.record.value
    return found


def check(world: "World") -> None:
    """I1 to I5, I8, I9 and I11, of a run that has come to its end."""
    model = _modelled(world)
    outputs, letters = _traces(world)
    for place, sent in world.sent.items():
        expected = model.expected.get(place)
        if expected is None:
            raise Broken("I1", f"{place} was never committed")
        _check_fate(world, place, sent, expected, outputs[place], letters[place])
    _check_order(world)
    _check_rings(world, model)
    _check_closed(world.log)


def _modelled(world: "World") -> Model:
    model = Model(world.case, world.sent)
    reached: dict[Source, int] = defaultdict(int)
    for source, committed in world.log.group(GROUP).history:
        start = reached[source]
        if committed.offset < start:
            raise Broken("I1", f"the offset of {source} went back to {committed.offset}")
        model.batch(source, start, committed.offset, int(committed.by.partition("/")[2]))
        reached[source] = committed.offset
    return model


def _traces(world: "World") -> tuple[dict[Place, list[Record]], dict[Place, list[Record]]]:
    """Return every record that came out, by the input record that it came from."""
    places = {sent.record.value: place for place, sent in world.sent.items()}
    outputs: dict[Place, list[Record]] = defaultdict(list)
    letters: dict[Place, list[Record]] = defaultdict(list)
    for name in world.case.topics:
        for record in _visible(world.log, f"{name}.unique"):
            outputs[places[record.value]].append(record)
        for record in _visible(world.log, f"{name}.dlq"):
            letters[places[record.value]].append(record)
    for record in _visible(world.log, world.fallback):
        letters[places[record.value]].append(record)
    return outputs, letters


def _visible(log: FakeCluster, topic: str) -> list[Record]:
    if topic not in log.logs:
        return []
    return [r for p in log.logs[topic].partitions for r in log.records(topic, p.number)]


def _check_fate(
    world: "World",
    place: Place,
    sent: Sent,
    expected: Expected,
    outputs: list[Record],
    letters: list[Record],
) -> None:
    if len(outputs) + len(letters) > 1:
        raise Broken("I2", f"{place} came out {len(outputs)} + {len(letters)} times")
    if expected.dropped:
        if outputs or letters:
            raise Broken("I5", f"{place} is a duplicate to drop, and came out")
        return
    if expected.reason is None:
        if not outputs:
            raise Broken("I4" if letters else "I1", f"{place} is new, and was not put out")
        _check_unchanged(world, place, sent, outputs[0])
        return
    if not letters:
        raise Broken("I5" if outputs else "I1", f"{place} is {expected.reason}, no dead letter")
    told = dict(letters[0].headers or [])
    if told[DeadLetter.REASON] != expected.reason.encode():
        raise Broken("I4", f"{place} is {expected.reason}, and {told[DeadLetter.REASON]!r} is told")
    original = (told.get(DeadLetter.ORIGINAL) or b"").decode() or None
    if original != expected.original:
        raise Broken("I4", f"{place} repeats {expected.original}, and {original} is told")


def _check_unchanged(world: "World", place: Place, sent: Sent, output: Record) -> None:
    headers: Headers = list(sent.record.headers or [])
    if sent.identifier is None and world.case.missing_id == "stamp":
        headers.append((DUPLICATE_ID, "fake-cluster/{}/{}/{}".format(*place).encode()))
    if output != sent.record._replace(headers=headers):
        raise Broken("I9", f"{place} was changed on its way: {output}")


def _check_order(world: "World") -> None:
    """I3: what came from one partition stands in its order, wherever it stands."""
    places = {sent.record.value: place for place, sent in world.sent.items()}
    for name in world.case.topics:
        for partition in world.log.logs[f"{name}.unique"].partitions:
            last: dict[Source, int] = {}
            for record in world.log.records(f"{name}.unique", partition.number):
                topic, number, offset = places[record.value]
                if offset <= last.get(Source(topic, number), -1):
                    raise Broken("I3", f"{topic}-{number}@{offset} came out too late")
                last[Source(topic, number)] = offset


def _check_rings(world: "World", model: Model) -> None:
    """I8: the changelog holds the very ids that the model holds."""
    for (source, address), held in model.rings.items():
        partition = world.log.log(changelog(GROUP, source.topic), source.partition)
        assert partition is not None
        for entries in (folded(partition, partition.end), _compacted(partition)):
            runs = [decode(entries[key]) for key in sorted(entries) if _of(key, address)]
            floor = max((run.floor for run in runs), default=0)
            rows = [(run.first + row, i) for run in runs for row, i in enumerate(run.ids)]
            ids = [identifier for number, identifier in rows if number >= floor]
            wanted = [_kept(i) for i in held.order[len(held.order) - len(held.ring) :]]
            if ids != wanted:
                raise Broken("I8", f"{address} on {source} holds {ids}, not {wanted}")


def _kept(identifier: bytes) -> bytes:
    """Return an id as it is remembered: long ones by their digest."""
    if len(identifier) <= ID_BYTES_MAX:
        return identifier
    return identifier[:33] + hashlib.sha256(identifier).digest()


def _compacted(partition: Partition) -> dict[bytes, bytes]:
    """Return what a reader of the changelog as it lies there would end with."""
    found: dict[bytes, bytes] = {}
    for entry in partition.records():
        assert entry.record is not None
        assert entry.record.key is not None
        if entry.record.value is None:
            found.pop(entry.record.key, None)
        else:
            found[entry.record.key] = entry.record.value
    return found


def _of(key: bytes, address: str) -> bool:
    return key.startswith(prefix(address)) and address_of(key) == address


def _check_closed(log: FakeCluster) -> None:
    """I11: no transaction is open when its timeout has passed."""
    for topic in log.logs.values():
        for partition in topic.partitions:
            if partition.last_stable != partition.end:
                raise Broken("I11", f"{partition.topic}-{partition.number} is held back")
