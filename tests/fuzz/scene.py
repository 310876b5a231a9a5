"""Scene: a random configuration, and a service on a fake cluster that runs under it.

Everything comes of the seed. The broker refuses some records that the settings of its topics let
through, and sometimes a transaction for no reason of its records.
"""

import random
from collections.abc import Iterator, Mapping
from typing import Final

from ringfence_client.headers import DeadLetter, Reason
from ringfence_service.config.addresses import AddressBook
from ringfence_service.config.model import RouteSettings
from ringfence_service.config.tasks import Task, hops_of
from ringfence_service.dedup.record import source_of, strip_origins
from ringfence_service.kafka.topics import ENVELOPE_BYTES, by_address
from ringfence_service.processor.loop import Loop
from ringfence_state.model import PartitionId
from ringfence_state.pending_group import parked_in
from tests.fakes.clients import FakeClients
from tests.fakes.partition import Record
from tests.fuzz.records import ADDRESS, REPLIES, TARGETS, TO, number_of, record_of, told
from tests.simulation.disk import Disk
from tests.support.living import GROUP, Living, refused, turn_until_running

INPUT: Final = "orders"
LETTERS: Final = ("orders.dlq", *(f"{target}.dlq" for target in TARGETS))
OUTPUTS: Final = ("orders.unique", *TARGETS)
FALLBACK: Final = f"{GROUP}.dead-letters"
ADDRESSES: Final = ("{topic}", "{key}", f"{{header:{ADDRESS}}}", "x.{key}.{topic}")
IDS: Final = ("", "", "{key}", f"{{header:{ADDRESS}}}-{{key}}", "{sha256:value}")
_INPUT_BYTES: Final = (3_000, 300_000, 1_000_000)
_TURNS_MAX: Final = 20_000


def route_of(chance: random.Random) -> RouteSettings:
    """Any route from the one input."""
    steered, is_json = chance.random() < 0.3, chance.random() < 0.3
    return RouteSettings(
        name="orders",
        inputs=(INPUT,),
        scope=chance.choice(("partition", "address", "id")),
        address=chance.choice(("{json:/to/addr~1/0}", "a.{json:/id}") if is_json else ADDRESSES),
        id=chance.choice(("{json:/id}", "{key-json:}{json:/id}") if is_json else IDS),
        output=f"{{header:{TO}}}" if steered else "orders.unique",
        dead_letter=f"{{header:{TO}}}.dlq" if chance.random() < 0.2 else "orders.dlq",
        allowed_outputs=(*TARGETS, *LETTERS[1:], "absent"),
        reply_topics=(*REPLIES, "absent") if chance.random() < 0.6 else (),
        missing_id=chance.choice(("pass", "stamp", "dead_letter")),
    )


def address_of(chance: random.Random) -> Mapping[str, object]:
    """Any settings; limits that records reach."""
    few = chance.choice((1, 2, 3, 10))
    return {
        "strategy": chance.choice(
            ("ring", "ring", "ring", "window", "audit", "sequence", "ordered", "off")
        ),
        "id_cache_size": chance.choice((0, 1, 3, 20_000)),
        "persist_id_cache": chance.random() < 0.8,
        "on_duplicate": chance.choice(("dead_letter", "drop", "mark")),
        "window_ms": chance.choice((1, 1_000, 1_800_000)),
        "window_size": chance.choice((0, 1, 3, 10_000)),
        "refresh_on_hit": chance.random() < 0.5,
        "audit_depth": chance.choice((1, 2, 64, 1_000_000)),
        "audit_producers": few,
        "audit_jump_max": chance.choice((1, 1_000_000, 2**63 - 1)),
        "below_window": chance.choice(("duplicate", "accept")),
        "publishers_max": few,
        "group_records_max": chance.choice((1, 2, 4, 100_000)),
        "group_bytes_max": chance.choice((1_024, 100_000, 16 * 1024 * 1024)),
        "group_timeout_ms": chance.choice((1_000, 60_000)),
        "groups_open_max": few,
        "dead_letter_audit": chance.random() < 0.2,
        "process_expired": chance.random() < 0.8,
        "addresses_max": chance.choice((1, 2, 100_000)),
    }


class Scene:
    """A service on a fake cluster under a random configuration."""

    def __init__(self, seed: int) -> None:
        self._chance = chance = random.Random(seed)
        self._route = route_of(chance)
        patterns = chance.choice((("#",), ("#", "a"), ("c.*", "b", INPUT)))
        addresses = {pattern: address_of(chance) for pattern in patterns}
        self._partitions = chance.choice((1, 2))
        self._living = living = Living(
            self._route,
            addresses,
            partitions=self._partitions,
            by_address_partitions=2,
            batch_records_max=chance.choice((1, 5, 1_000)),
            batch_bytes_max=chance.choice((1024 * 1024, 64 * 1024 * 1024)),
        )
        living.faults.steps_max = 10**9
        self.settings = AddressBook.of(addresses)
        self._bytes_max = chance.choice(_INPUT_BYTES)
        self._make_topics()
        self.sent: dict[PartitionId, list[Record]] = {
            PartitionId(INPUT, number): [] for number in range(self._partitions)
        }
        self._loops = self._begun()
        self._abort_some()

    def run(self, count: int, first: int) -> None:
        """Send so many records, numbered from `first` on, and wait until each has its fate.

        Half-way and at the end the service is started on an empty disk: what it remembers has to
        be in the changelog.
        """
        chance, cluster = self._chance, self._living.cluster
        for number in range(first, first + count):
            if number == first + count // 2:
                self._restart()
            record = record_of(chance, number, self._bytes_max, is_json="json:" in self._route.id)
            source = PartitionId(INPUT, chance.randrange(self._partitions))
            cluster.write(*source, record)
            self.sent[source].append(record)
            if chance.randrange(30) == 0:
                self._turn()
            if chance.randrange(100) == 0:
                cluster.wait(chance.choice((0.01, 2, 100)))
        for _ in range(_TURNS_MAX):
            self._turn()
            if self._is_done():
                break
        else:
            raise AssertionError("it does not come to an end")
        self._living.faults.at.clear()
        cluster.wait(1)
        self._turn()  # publishes what was counted
        self._restart()

    @property
    def replies(self) -> bool:
        """Whether the route replies to records that ask for it."""
        return bool(self._route.reply_topics)

    def replies_on(self, topic: str) -> Iterator[Record]:
        """What was replied on a topic."""
        return self._records((topic,))

    def outputs(self) -> Iterator[Record]:
        """What was accepted."""
        yield from self._records(OUTPUTS)

    def letters(self) -> Iterator[Record]:
        """What was not."""
        yield from self._records((*LETTERS, FALLBACK))

    def letters_of_fallback(self) -> Iterator[Record]:
        """Those that their own topic did not take, and others."""
        return self._records((FALLBACK,))

    def waiting(self) -> Iterator[tuple[PartitionId, int]]:
        """The records that wait for their group, by their place in the input."""
        for loop in self._loops:
            for source, partition in loop.assignment.running.items():
                if partition.store is None or partition.changelog is None:
                    continue
                for _, pending_record in parked_in(partition.kept_store):
                    if source.topic == INPUT:
                        yield source, pending_record.own_offset
                    else:
                        (input_partition,), (offset,), _ = strip_origins([pending_record.headers])
                        place = source_of(input_partition)
                        assert place is not None
                        yield place, offset

    def dropped(self) -> int:
        """How many duplicates went nowhere, by what the service counts."""
        letters = [told(record.headers)["reason"] for record in self.letters()]
        kept = sum(letters.count(reason) for reason in (Reason.DUPLICATE, *_IN_GROUP))
        return self._living.board.read().counts.duplicates - kept

    def number_of(self, source: PartitionId, offset: int) -> int:
        """Which record stands at a place of the input."""
        record = self.sent[source][offset]
        return number_of(record.value, record.timestamp_ms)

    def _make_topics(self) -> None:
        chance, cluster, partitions = self._chance, self._living.cluster, self._partitions
        size = self._bytes_max
        cluster.create_topic(INPUT, partitions, record_bytes_max=size)
        for name in (*OUTPUTS, *LETTERS):
            said = chance.choice((size + ENVELOPE_BYTES, size, 2_000))
            takes = chance.choice((said, said, 1_500))
            wide = chance.choice((partitions, partitions, 1, 3))
            cluster.create_topic(name, wide, record_bytes_max=said, limit_bytes=takes)

        for name, said, takes in (("replies", 1 << 20, 1 << 20), ("narrow-replies", 1_000, 200)):
            cluster.create_topic(name, 2, record_bytes_max=said, limit_bytes=takes)

    def _restart(self) -> None:
        for loop in self._loops:
            loop.close()
        self._loops = self._begun()

    def _begun(self) -> list[Loop]:
        living, loops = self._living, []
        for hop in hops_of([self._route.scope]):
            clients = FakeClients(living.cluster, GROUP, "0", part=Task(0, hop))
            stores = Disk(living.cluster.step)
            loop = Loop(
                living.config, clients, stores, living.clock, living.watch, living.retry_policy
            )
            turn_until_running(loop)
            loops.append(loop)
        return loops

    def _abort_some(self) -> None:
        chance = random.Random(self._chance.random())

        def now_and_then() -> Iterator[Exception | None]:
            while True:
                yield refused() if chance.randrange(50) == 0 else None

        for step in ("flush", "commit_transaction"):
            self._living.faults.at[step] = now_and_then()

    def _turn(self) -> None:
        for loop in self._loops:
            loop.turn()

    def _is_done(self) -> bool:
        groups = {INPUT: GROUP, by_address(GROUP): by_address(GROUP)}
        for topic, group in groups.items():
            known = self._living.cluster.logs.get(topic)
            committed = self._living.cluster.group(group).committed
            for number, log in enumerate(() if known is None else known.partitions):
                last = next((e.offset for e in reversed(log.entries) if e.record), -1)
                found = committed.get(PartitionId(topic, number))
                if last >= 0 and (found is None or found.offset <= last):
                    return False
        return True

    def _records(self, topics: tuple[str, ...]) -> Iterator[Record]:
        logs = self._living.cluster.logs
        for topic in topics:
            for partition in range(len(logs[topic].partitions)):
                yield from self._living.cluster.records(topic, partition)


_IN_GROUP: Final = (Reason.DUPLICATE_IN_GROUP,)


def place_of(letter: Record) -> tuple[PartitionId, int]:
    """Where a dead letter says that it comes from."""
    ours = dict(letter.headers or [])
    topic, partition, offset = (
        (ours[name.value] or b"").decode()
        for name in (DeadLetter.TOPIC, DeadLetter.PARTITION, DeadLetter.OFFSET)
    )
    return PartitionId(topic, int(partition)), int(offset)
