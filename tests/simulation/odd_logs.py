"""Odd logs: a seeded run in which a log loses records, or is deleted and created again.

Nothing else goes wrong, so that every partition has a committed offset and a state when it happens.
The oracle is dumb: where nobody has set what is to become of it, the service ends with exit code 5;
where somebody has, it goes on, and every record that is there is decided.
"""

import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Final

from ringfence_service.config.model import LostOffset, ResetOffset
from ringfence_service.config.tasks import Hop, consumer_group
from ringfence_service.errors import ExitCode, ExitError
from ringfence_service.kafka.topics import BY_ADDRESS, by_address, changelog
from ringfence_state.model import PartitionId
from ringfence_state.offset_metadata import decode
from tests.fakes.partition import Partition
from tests.simulation.instance import Instance
from tests.simulation.invariants import Broken, folded
from tests.simulation.redriving import redriving
from tests.simulation.scenario import GROUP, Sent
from tests.simulation.world import World

ROUNDS_MAX: Final = 900
"""Of a fifth of a second: an input is looked at twice a minute."""
AGAIN: Final = ("input created again", "input created again in use", "changelog created again")
FEWER: Final = ("input truncated", "input cut", "changelog truncated", "changelog cut")
KINDS: Final = (*AGAIN, *FEWER, "offsets deleted")
POLICIES: Final[tuple[LostOffset, ...]] = ("fail", "earliest", "latest")
RESETS: Final[tuple[ResetOffset, ...]] = ("fail", "keep_state", "clear_state")


class OddLogsWorld(World):
    """A run with one kind of damage to a log, and the check of its outcome."""

    def __init__(self, seed: int) -> None:
        self._odd = chance = random.Random(seed + 9)
        self.kind = chance.choice(KINDS)
        case = replace(
            redriving(seed),
            on_lost_offset=chance.choice(POLICIES),
            on_reset_offset=chance.choice(RESETS),
            ghosts=0.0,
            trouble=0.0,
            short_ends=False,
        )
        super().__init__(case)
        self._end: ExitError | None = None
        self._may_end = False
        self.met[self.kind] += 1

    def run(self) -> None:
        """Decide some records, let it happen, send the rest, and see what becomes of them."""
        self._be_calm()
        rest = self._decide_half()
        is_running = self.kind == AGAIN[1]
        if not is_running:
            for instance in self.instances:
                self._stop(instance)
        hit = self._happen()
        self._unsent = rest
        self._publish(len(rest))
        new = [sent.record.value or b"" for sent in rest if not self._is_skipped(sent, hit)]
        self._may_end = self._must_end(hit)
        if self._may_end:
            self._see_the_end()
            self._reset()
        for instance in self.instances:
            instance.wanted = True
        self._settle()
        self._check(new)

    def _is_skipped(self, sent: Sent, hit: list[Partition]) -> bool:
        """Whether a policy has the end of its partition looked for after it was sent."""
        places = {(log.topic, log.number) for log in hit}
        return self.case.on_lost_offset == "latest" and sent.source in places

    # What happens.

    def _happen(self) -> list[Partition]:
        """Do it to a topic; returns its partitions where something is lost or new."""
        logs = list(self._logs())
        if self.kind in AGAIN:
            topic = self.log.logs[logs[0].topic]
            self.log.create_topic(
                logs[0].topic,
                len(topic.partitions),
                record_bytes_max=topic.record_bytes_max,
                cleanup_policy=topic.cleanup_policy,
                retention=topic.retention,
            )
            return logs
        if self.kind == "offsets deleted":
            self._delete_offsets()
            return logs
        logs = [log for log in logs if log.end]
        if not logs:
            return []
        log = self._odd.choice(logs)
        if self.kind.endswith("truncated"):
            log.truncate(self._odd.randrange(log.end))
        else:
            self._publish_to(log)
            log.delete_before(log.end)
        return [log]

    def _publish_to(self, log: Partition) -> None:
        """One more record, which retention takes before anybody has read it."""
        if self.kind == "input cut":
            log.append(self.case.sent[0].record._replace(value=b"never read"))

    def _logs(self) -> Iterator[Partition]:
        topics: list[str] = list(self.case.topics)
        if self.kind.startswith("changelog"):
            decides = [BY_ADDRESS] if self._has_hops else topics
            topics = [changelog(GROUP, name) for name in decides]
        for name in topics if self.kind == "offsets deleted" else topics[:1]:
            yield from self.log.logs[name].partitions

    @property
    def _has_hops(self) -> bool:
        return len(self.case.hops) > 1

    # What must hold.

    def _must_end(self, hit: list[Partition]) -> bool:
        """Whether the service has to say that it cannot go on by itself."""
        told = [(log, offset, decode(text)) for log in hit for offset, text in self._committed(log)]
        if self.kind == "offsets deleted":
            return self.case.on_reset_offset == "fail" and self._remembers()
        if self.kind in AGAIN:
            return any(metadata for _, _, metadata in told)
        if self.kind == "changelog truncated":
            return any(metadata and log.end <= metadata.last_offset for log, _, metadata in told)
        if self.kind == "changelog cut":
            return any(meta and log.start > meta.changelog_start for log, _, meta in told)
        is_lost = any(not log.start <= offset <= log.end for log, offset, _ in told)
        return is_lost and self.case.on_lost_offset == "fail"

    def _committed(self, log: Partition) -> Iterator[tuple[int, str]]:
        """What the group has committed for an input, or for what a changelog belongs to."""
        topic, hop = log.topic, Hop.INPUTS
        if self.kind.startswith("changelog"):
            hop = self.case.hops[-1]
            topic = by_address(GROUP) if self._has_hops else self.case.topics[0]
        group = self.log.group(consumer_group(GROUP, hop))
        found = group.committed.get(PartitionId(topic, log.number))
        if found is not None:
            yield found.offset, found.metadata

    def _remembers(self) -> bool:
        names = [BY_ADDRESS] if self._has_hops else self.case.topics
        logs = [log for name in names for log in self.log.logs[changelog(GROUP, name)].partitions]
        return any(folded(log.archive) for log in logs)

    def _see_the_end(self) -> None:
        for instance in self.instances:
            instance.wanted = True
        for _ in range(ROUNDS_MAX):
            for instance in self.instances:
                self._act(instance)
            if self._end is not None:
                return
            self.log.wait(0.2)
        raise Broken("I16", f"{self.kind}: nobody has noticed")

    def _have(self, instance: Instance, act: Callable[[], None], note: str = "") -> None:
        """As ever, but the service may end where it cannot know what to do."""
        del note
        self._acting.append(instance)
        try:
            act()
        except ExitError as end:
            if end.exit_code is not ExitCode.CONTRADICTION or not self._may_end:
                raise Broken("I13", f"{self.kind}: the service gave up: {end}") from end
            self._end = end
        finally:
            self._acting.pop()

    def _reset(self) -> None:
        """Do what the sentence says: the offsets go, and what is remembered stays."""
        self._may_end = False
        for instance in self.instances:
            self._stop(instance)
            instance.scenario = replace(instance.scenario, on_reset_offset="keep_state")
        self._delete_offsets()

    def _delete_offsets(self) -> None:
        for hop in self.case.hops:
            self.log.group(consumer_group(GROUP, hop)).committed.clear()

    def _check(self, new: list[bytes]) -> None:
        outputs = self._count(f"{name}.unique" for name in self.case.topics)
        letters = self._count([*(f"{name}.dlq" for name in self.case.topics), self.fallback])
        for value in new:
            if not outputs[value] + letters[value]:
                raise Broken("I1", f"{self.kind}: {value!r} came out nowhere")
        if self.kind.startswith("changelog") or self.case.on_reset_offset == "clear_state":
            return
        known = Counter[tuple[str | None, bytes, PartitionId | None]]()
        for sent in self.case.sent:
            if sent.identifier is not None:
                decider = None if self._has_hops else sent.source
                times = outputs[sent.record.value or b""]
                known[sent.address, sent.identifier, decider] += times
        for name, times in known.items():
            if times > 1:
                raise Broken("I2", f"{self.kind}: {name} was accepted {times} times")

    def _count(self, topics: Iterable[str]) -> Counter[bytes]:
        logs = [
            log
            for name in topics
            if name in self.log.logs
            for log in self.log.logs[name].partitions
        ]
        records = (record for log in logs for record in self.log.records(log.topic, log.number))
        return Counter(record.value or b"" for record in records)


def simulate_odd_logs(seed: int) -> Counter[str]:
    """Run one seed and return what it met; raises Broken when something does not hold."""
    return OddLogsWorld(seed).simulated()
