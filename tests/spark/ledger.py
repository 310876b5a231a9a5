"""A ledger: what a service with a ring makes of records, by the slowest obvious rules, as lists.

A test writes it to topics, or to frames, after it has spoilt it; what it has spoilt, it knows.
"""

import random
from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import NamedTuple

from ringfence_client.headers import DeadLetter

Headers = list[tuple[str, bytes | None]]
START_MS = 1_700_000_000_000


class Row(NamedTuple):
    """One record as it is written; its offset is its place in its list."""

    time_ms: int
    key: bytes
    value: bytes
    headers: Headers


class Entry(NamedTuple):
    """A record of an output or of the dead letters, and the offset of its input."""

    input_offset: int
    row: Row
    fault: str = ""
    """Of what it will be found guilty."""


class Lane(NamedTuple):
    """One partition: what came in, what went out, what did not."""

    inputs: list[Row]
    outputs: list[Entry]
    letters: list[Entry]
    gaps: list[int]
    """Of every copy: how many ids were accepted since the last time that its own was."""
    needed: list[int]
    """Of every copy: how many ids had come since its own did first, itself included."""


class Ledger:
    """A topic with its output and its dead letters."""

    def __init__(self, topic: str, *, records: int, ring: int, partitions: int, seed: int) -> None:
        self.topic = topic
        self.ring = ring
        self._random = random.Random(seed)
        per_lane = records // partitions
        self.lanes = [self._lane(number, per_lane) for number in range(partitions)]

    @property
    def output(self) -> str:
        return f"{self.topic}.unique"

    @property
    def dead_letter(self) -> str:
        return f"{self.topic}.dlq"

    def _lane(self, partition: int, records: int) -> Lane:
        lane = Lane([], [], [], [], [])
        accepted: list[tuple[str, int]] = []
        """Ids with their offsets, in the order of acceptance."""
        first_seen: dict[str, int] = {}
        times: dict[str, int] = {}
        for offset in range(records):
            name = self._name(partition, offset, [name for name, _ in accepted])
            # Half of the copies keep the time of the record that they copy, and look quite alike.
            keeps = name in times and self._random.random() < 0.5
            time_ms = times[name] if keeps else START_MS + 1000 * offset
            times.setdefault(name, time_ms)
            row = Row(time_ms, name.encode(), b"v" * 20, [("_DUPL_ID", name.encode())])
            lane.inputs.append(row)
            held = dict(accepted[-self.ring :])
            if name in first_seen:
                lane.needed.append(len(first_seen) - first_seen[name])
                last = max(n for n, (each, _) in enumerate(accepted) if each == name)
                lane.gaps.append(len(accepted) - last)
            first_seen.setdefault(name, len(first_seen))
            if name in held:
                original = f"{self.topic}-{partition}@{held[name]}"
                letter = self.letter(partition, offset, row, name, original)
                lane.letters.append(Entry(offset, letter))
            else:
                accepted.append((name, offset))
                lane.outputs.append(Entry(offset, row))
        return lane

    def _name(self, partition: int, offset: int, accepted: list[str]) -> str:
        if accepted and self._random.random() < 0.3:
            back = min(int(self._random.expovariate(2 / self.ring)) + 1, len(accepted))
            return accepted[-back]
        return f"{partition}-{offset}"

    def letter(self, partition: int, offset: int, row: Row, name: str, original: str) -> Row:
        """The dead letter of a duplicate, a quarter of a second after it would have come."""
        ours: list[tuple[str, object]] = [
            (DeadLetter.REASON, "duplicate"),
            (DeadLetter.CAUSE, "its id was accepted already"),
            (DeadLetter.TOPIC, self.topic),
            (DeadLetter.PARTITION, partition),
            (DeadLetter.OFFSET, offset),
            (DeadLetter.TIMESTAMP, row.time_ms),
            (DeadLetter.ADDRESS, self.topic),
            (DeadLetter.STRATEGY, "ring"),
            (DeadLetter.ID, name),
            (DeadLetter.ORIGINAL, original),
        ]
        told = [(str(key), str(value).encode()) for key, value in ours]
        return Row(START_MS + 1000 * offset + 250, row.key, row.value, [*row.headers, *told])

    def spoil(self, each: int) -> dict[str, set[str]]:
        """Plant so many faults of every kind; tells their kinds and the places to be named."""
        expected: defaultdict[str, set[str]] = defaultdict(set)
        for number, lane in enumerate(self.lanes):
            share = each // len(self.lanes)
            victims = iter(self.victims(lane))
            for _ in range(share):
                _delete(lane, next(victims))
                _double(lane, next(victims))
                _reorder(lane, next(victims))
            copies = iter(self._copies(lane))
            for _ in range(share):
                expected["let-through"].add(
                    f"{self.topic}-{number}@{_let_through(lane, next(copies))}"
                )
                expected["no-fate"].add(f"{self.topic}-{number}@{_skip(lane, next(copies))}")
            out = {entry.input_offset for entry in (*lane.outputs, *lane.letters)}
            lost = set(range(len(lane.inputs))) - out
            expected["no-fate"] |= {f"{self.topic}-{number}@{offset}" for offset in lost}
            for offset, entry in enumerate(lane.outputs):
                if entry.fault:
                    expected[entry.fault].add(f"{self.output}-{number}@{offset}")
        return dict(expected)

    def victims(self, lane: Lane) -> list[int]:
        """Offsets of inputs that went out, with room between them, and without a copy."""
        sent = Counter(row.key for row in lane.inputs)
        alone = [entry.input_offset for entry in lane.outputs if sent[entry.row.key] == 1]
        spaced = alone[10:-10:5]
        self._random.shuffle(spaced)
        return spaced

    def _copies(self, lane: Lane) -> list[int]:
        """Offsets of duplicates that came soon, of different ids that went out once."""
        went_out = Counter(entry.row.key for entry in lane.outputs)
        accepted = {entry.row.key: place for place, entry in enumerate(lane.outputs)}
        found: dict[bytes, int] = {}
        out = 0
        for entry in lane.letters:
            while out < len(lane.outputs) and lane.outputs[out].input_offset < entry.input_offset:
                out += 1
            is_soon = out - accepted.get(entry.row.key, -self.ring) < self.ring // 2
            if is_soon and went_out[entry.row.key] == 1:
                found.setdefault(entry.row.key, entry.input_offset)
        offsets = list(found.values())
        self._random.shuffle(offsets)
        return offsets


def _at(entries: Iterable[Entry], input_offset: int) -> int:
    return next(n for n, each in enumerate(entries) if each.input_offset == input_offset)


def _delete(lane: Lane, victim: int) -> None:
    del lane.outputs[_at(lane.outputs, victim)]


def _double(lane: Lane, victim: int) -> None:
    at = _at(lane.outputs, victim)
    lane.outputs.insert(at + 2, lane.outputs[at]._replace(fault="doubled"))


def _reorder(lane: Lane, victim: int) -> None:
    at = _at(lane.outputs, victim)
    late = lane.outputs.pop(at)
    lane.outputs.insert(at + 1, late._replace(fault="out-of-order"))


def _let_through(lane: Lane, copy: int) -> int:
    letter = lane.letters.pop(_at(lane.letters, copy))
    behind = (n for n, each in enumerate(lane.outputs) if each.input_offset > copy)
    lane.outputs.insert(
        next(behind, len(lane.outputs)), Entry(letter.input_offset, lane.inputs[copy])
    )
    return copy


def _skip(lane: Lane, copy: int) -> int:
    del lane.letters[_at(lane.letters, copy)]
    return copy
