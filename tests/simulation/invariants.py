"""Invariants: what must hold of a run, read from the topics and the disks alone."""

import hashlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from ringfence_client.headers import DeadLetter, Reason
from ringfence_service.config.tasks import Hop, consumer_group
from ringfence_service.kafka.topics import BY_ADDRESS, by_address, changelog
from ringfence_state.keys import SEGMENTS, address_of, prefix
from ringfence_state.model import Claim, PartitionId
from ringfence_state.offset_metadata import decode as decode_metadata
from ringfence_state.segment import FORGOTTEN, STORED_ID_BYTES_MAX, decode
from tests.fakes.log import FakeCluster
from tests.fakes.partition import Entry, Headers, Partition, Record, committed_records
from tests.simulation.disk import Disk
from tests.simulation.model import Expected, Model, Place
from tests.simulation.registry import CAUSES, REGISTERED_LATE
from tests.simulation.scenario import GROUP, LATE, TOMBSTONES_KEPT_MS, Sent

if TYPE_CHECKING:
    from tests.simulation.world import World


class Broken(Exception):  # noqa: N818 - it is not an error of the simulation
    """An invariant does not hold."""

    def __init__(self, invariant: str, what: str) -> None:
        super().__init__(f"{invariant}: {what}")
        self.invariant = invariant


def check_disk(log: FakeCluster, disk: Disk) -> None:
    """I6, I7: a store is the fold of the committed changelog up to its position, never ahead."""
    for source, position, held in disk.stores():
        if position is None:
            if held:
                raise Broken("I6", f"the store of {source} holds keys and has no position")
            continue
        if log.now_ms - position.level_at_ms > TOMBSTONES_KEPT_MS // 2:
            continue  # tombstones may be missing: it has to be wiped before it is used
        partition = _changelog_of(log, source)
        if partition is None or position.changelog_next > partition.end:
            raise Broken("I7", f"the store of {source} is ahead of the changelog")
        if not _is_prefix(held, partition, position.changelog_next):
            raise Broken("I6", f"the store of {source} is not the changelog up to its position")


def _changelog_of(log: FakeCluster, source: PartitionId) -> Partition | None:
    topic = BY_ADDRESS if source.topic == by_address(GROUP) else source.topic
    return log.log(changelog(GROUP, topic), source.partition)


def _is_prefix(held: dict[bytes, bytes], partition: Partition, end: int) -> bool:
    """Compare with the changelog below `end`.

    Half-way through a restore a key may be missing or out of date: compaction took what came
    again later, and the rest of the restore will bring it.
    """
    wanted = folded(partition.archive[:end])
    if held == wanted:
        return True
    later = {record.key for _, record in committed_records(partition.archive[end:])}
    compacted = len(partition.entries) < len(partition.archive)
    different = {key for key, _ in held.items() ^ wanted.items()}
    return compacted and different <= later


def folded(entries: Iterable[Entry]) -> dict[bytes, bytes]:
    """Return what the committed records among them leave."""
    found: dict[bytes, bytes] = {}
    for _, record in committed_records(entries):
        assert record.key is not None
        if record.value is None:
            found.pop(record.key, None)
        else:
            found[record.key] = record.value
    return found


def check(world: "World") -> None:
    """I1 to I5, I8, I9 and I11, of a run that has come to its end."""
    outputs, letters = _traces(world)
    model = _modelled(world, letters)
    waiting = {p for group in model.waiting.values() for p in group.places.values()}
    for place, sent in world.sent.items():
        expected = model.expected.get(place)
        if place in waiting:
            expected = Expected(dropped=True)  # it is in the state, and nowhere else
        if _has_hops(world) and sent.address is None:
            expected = Expected(Reason.NO_ADDRESS)  # it gets no further than the first hop
        if expected is None:
            raise Broken("I1", f"{place} was never committed")
        _check_fate(place, sent, expected, outputs[place], letters[place])
    _check_order(world, model)
    _check_rings(world, model)
    _check_closed(world.log)


def _modelled(world: "World", letters: Mapping[Place, list[Record]]) -> Model:
    model = Model(world.case, world.sent, _carried(world))
    model.has_found_no_schema = lambda place: (
        place != world.last
        and any(
            dict(letter.headers or [])[DeadLetter.REASON] == Reason.MISSING_ID.encode()
            for letter in letters.get(place, ())
        )
    )
    reached: dict[PartitionId, int] = defaultdict(int)
    applied: dict[PartitionId, int] = defaultdict(int)
    last: dict[PartitionId, int] = defaultdict(lambda: -1)
    carried_by = _revisions_of_carrying(world)
    for source, committed in world.log.group(consumer_group(GROUP, world.case.hops[-1])).history:
        start = reached[source]
        if committed.offset < start:
            raise Broken("I1", f"the offset of {source} went back to {committed.offset}")
        metadata = decode_metadata(committed.metadata)
        assert metadata is not None
        life = int(committed.by.partition("/")[2])
        setting, revision = world.setting, metadata.revision
        model.use(source, setting.strategies_at(revision))
        if committed.note:
            model.sizes = setting.sizes_at(life, revision)
            model.change(source, world.changes[committed.note])
        elif committed.offset == start or metadata.applied != applied[source]:
            # Nothing was read: it settles what it holds, perhaps a piece of it.
            before, after = (setting.sizes_at(life, at) for at in (applied[source], revision))
            is_whole = metadata.applied != applied[source]
            entries = range(last[source] + 1, metadata.last_offset + 1)
            written = None if is_whole else _caches_in(world, source, entries)
            model.resize(source, before, after, written)
        applied[source], last[source] = metadata.applied, metadata.last_offset
        model.sizes = setting.sizes_at(life, revision)
        model.is_routed = _routing(world, revision, carried_by)
        model.batch(source, start, committed.offset, world.epochs_at(revision))
        reached[source] = committed.offset
    return model


def _caches_in(world: "World", source: PartitionId, offsets: range) -> set[str]:
    """Return the names of the caches that committed records of a changelog belong to."""
    partition = _changelog_of(world.log, source)
    assert partition is not None
    entries = partition.archive[offsets.start : offsets.stop]
    return {address_of(record.key or b"") for _, record in committed_records(entries)}


def _revisions_of_carrying(world: "World") -> dict[Place, int]:
    """Return the revision under which each record was passed on; no revision where none was."""
    found: dict[Place, int] = {}
    reached: dict[PartitionId, int] = defaultdict(int)
    if _has_hops(world):
        for source, committed in world.log.group(consumer_group(GROUP, Hop.INPUTS)).history:
            metadata = decode_metadata(committed.metadata)
            assert metadata is not None
            for offset in range(reached[source], committed.offset):
                found[source.topic, source.partition, offset] = metadata.revision
            reached[source] = committed.offset
    return found


def _routing(
    world: "World", revision: int, carried_by: Mapping[Place, int]
) -> Callable[[Place], bool]:
    """Whether an input has a route at a revision, or had one when a record was passed on.

    A record was passed on because its input had a route: the instance that decides it has to know
    of that route, whatever it has read itself.
    """
    topics_at = world.setting.topics_at

    def is_routed(place: Place) -> bool:
        if place[0] != LATE:
            return True
        return LATE in topics_at(max(revision, carried_by.get(place, 0)))

    return is_routed


def _carried(world: "World") -> dict[Place, Place]:
    """Return where each record that was passed on came from; it was once, and unchanged."""
    places = world.places
    found: dict[Place, Place] = {}
    for partition in world.log.logs[by_address(GROUP)].partitions if _has_hops(world) else ():
        for offset, record in committed_records(partition.archive):
            place = places[record.value]
            if place in found.values():
                raise Broken("I2", f"{place} was passed on twice")
            found[partition.topic, partition.number, offset] = place
    if world.case.scope == "id":
        _check_spread(world, found)
    return found


def _check_spread(world: "World", carried: Mapping[Place, Place]) -> None:
    """I2: all records that can repeat each other are decided on one partition."""
    seen: dict[object, int] = {}
    for (_, number, _), place in carried.items():
        sent, names = world.sent[place], list[object]()
        if sent.schema in CAUSES or sent.schema == REGISTERED_LATE:
            continue  # its id cannot be read, or could not when it was passed on
        if sent.valid and sent.member is not None:
            names.append(("group", sent.address, sent.member[0]))
        elif sent.valid and sent.identifier is not None and not _counts(world):
            names.append(("id", sent.address, sent.identifier))
        if sent.valid and _is_numbered(world, sent.said):
            names = [("publisher", sent.address, sent.said.publisher)]
        for name in names:
            if seen.setdefault(name, number) != number:
                raise Broken("I2", f"{name} is decided on two partitions")


def _is_numbered(world: "World", said: Claim) -> bool:
    ordered = said.stream, said.previous
    is_whole = world.case.strategy != "ordered" or None not in ordered
    return _counts(world) and said.publisher is not None and bool(said.number) and is_whole


def _counts(world: "World") -> bool:
    return world.case.strategy not in {"ring", "window"}


def _has_hops(world: "World") -> bool:
    return len(world.case.hops) > 1


def _traces(world: "World") -> tuple[dict[Place, list[Record]], dict[Place, list[Record]]]:
    """Return every record that came out, by the input record that it came from."""
    places = world.places
    outputs: dict[Place, list[Record]] = defaultdict(list)
    letters: dict[Place, list[Record]] = defaultdict(list)
    for name in world.case.inputs:
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
        _check_unchanged(place, sent, expected, outputs[0])
        return
    if not letters:
        raise Broken("I5" if outputs else "I1", f"{place} is {expected.reason}, no dead letter")
    told = dict(letters[0].headers or [])
    if told[DeadLetter.REASON] != expected.reason.encode():
        raise Broken("I4", f"{place} is {expected.reason}, reported as {told[DeadLetter.REASON]!r}")
    if expected.cause.encode() not in (told.get(DeadLetter.CAUSE) or b""):
        raise Broken("I4", f"{place} {expected.cause}, reported as {told[DeadLetter.CAUSE]!r}")
    original = (told.get(DeadLetter.ORIGINAL) or b"").decode() or None
    if original != expected.original:
        raise Broken("I4", f"{place} repeats {expected.original}, and {original} is reported")


def _check_unchanged(place: Place, sent: Sent, expected: Expected, output: Record) -> None:
    headers: Headers = [*(sent.record.headers or []), *expected.added]
    if output != sent.record._replace(headers=headers):
        raise Broken("I9", f"{place} was changed on its way: {output}")


def _check_order(world: "World", model: Model) -> None:
    """I3: what came from one partition stands in its order, groups where they took effect.

    With two hops, what came from one partition to one address; with scope `id`, and by one of the
    partitions that decide it.
    """
    places = world.places
    for name in world.case.inputs:
        for partition in world.log.logs[f"{name}.unique"].partitions:
            last: dict[tuple[PartitionId, str | None, PartitionId | None], tuple[int, int]] = {}
            for record in world.log.records(f"{name}.unique", partition.number):
                topic, number, offset = place = places[record.value]
                address = world.sent[place].address if _has_hops(world) else None
                decider = model.deciders[place] if world.case.scope == "id" else None
                lane = (PartitionId(topic, number), address, decider)
                if model.effects[place] <= last.get(lane, (-1, 0)):
                    raise Broken("I3", f"{topic}-{number}@{offset} came out too late")
                last[lane] = model.effects[place]


def _check_rings(world: "World", model: Model) -> None:
    """I8: the changelog holds the very ids that the model holds."""
    for (source, address), held in model.rings.items():
        partition = _changelog_of(world.log, source)
        assert partition is not None
        # As it was written, and as compaction has left it.
        for entries in (folded(partition.archive), folded(partition.entries)):
            runs = [decode(entries[key]) for key in sorted(entries) if _of(key, address)]
            floor = max((run.floor for run in runs), default=0)
            rows = [(run.first + row, i) for run in runs for row, i in enumerate(run.ids)]
            ids = [identifier for number, identifier in rows if number >= floor]
            wanted = [_kept(identifier) for identifier in held.ring]
            if ids != wanted:
                raise Broken("I8", f"{address} on {source} holds {ids}, not {wanted}")


def _kept(identifier: bytes) -> bytes:
    """Return an id as it is remembered: long ones by their digest."""
    if len(identifier) <= STORED_ID_BYTES_MAX or identifier == FORGOTTEN:
        return identifier
    return identifier[:33] + hashlib.sha256(identifier).digest()


def _of(key: bytes, address: str) -> bool:
    return key.startswith(prefix(SEGMENTS, address)) and address_of(key) == address


def _check_closed(log: FakeCluster) -> None:
    """I11: no transaction is open when its timeout has passed."""
    for topic in log.logs.values():
        for partition in topic.partitions:
            if partition.last_stable != partition.end:
                raise Broken("I11", f"{partition.topic}-{partition.number} is held back")
