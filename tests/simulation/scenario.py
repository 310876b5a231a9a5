"""Scenario: everything that a seed chooses before a run begins, as one frozen value.

Small on purpose: few partitions, addresses and ids meet each other often. The value of a record
names it, so that whatever comes out can be traced without trusting a header.
"""

import random
from dataclasses import dataclass, field
from pathlib import Path

from ringfence.headers import DUPLICATE_ID, EXPIRES_AT
from service.addresses import AddressBook, OnDuplicate
from service.config import ApiSettings, Config, KafkaSettings, RouteSettings, ServiceSettings
from service.sections import MissingId
from state.edit import Source
from tests.fakes.partition import Headers, Record

GROUP = "sim"
ADDRESS_HEADER = "a"
OUTPUT_BYTES_MAX = 1_000
"""What the outputs' settings tell; the broker takes less, as when it counts differently."""
OUTPUT_LIMIT_BYTES = 700
SIZES = (0, 600, 950)
_PAST, _FUTURE = b"1", b"9999999999999"


@dataclass(frozen=True, slots=True)
class Sent:
    """A record on its way into an input, and what it claims."""

    source: Source
    record: Record
    address: str | None
    identifier: bytes | None
    valid: bool = True
    expired: bool = False


@dataclass(frozen=True, slots=True)
class Scenario:
    """What is sent, how it is configured, how many instances there are, what goes wrong."""

    seed: int
    topics: tuple[str, ...]
    partitions: int
    output_partitions: int
    sent: tuple[Sent, ...]
    capacities: tuple[dict[str, int], ...]
    """By life: each one is configured anew."""
    missing_id: MissingId
    on_duplicate: OnDuplicate
    batch_records_max: int
    instances: int
    crashes: frozenset[int]
    freezes: frozenset[int]
    trouble: float
    """How likely each step fails for a while."""
    late_markers: bool
    late_output: bool = False
    addresses: tuple[str, ...] = field(default=())

    def config(self, instance: str, life: int) -> Config:
        """Return the configuration of one life of an instance."""
        book: dict[str, dict[str, object]] = {
            name: {"id_cache_size": size} for name, size in self.capacity_of(life).items()
        }
        book["#"] = {"on_duplicate": self.on_duplicate, "id_cache_size": 3}
        route = RouteSettings(
            name="route",
            inputs=self.topics,
            address=f"{{header:{ADDRESS_HEADER}}}",
            missing_id=self.missing_id,
        )
        service = ServiceSettings(
            group_id=GROUP,
            instance=instance,
            batch_records_max=self.batch_records_max,
            state_dir=Path("unused"),
            on_missing_offset="earliest",
        )
        addresses = AddressBook.of(book)
        return Config(KafkaSettings({}, {}, {}, {}), service, ApiSettings(), (route,), addresses)

    def capacity_of(self, life: int) -> dict[str, int]:
        """Return the ring sizes of a life."""
        return self.capacities[life % len(self.capacities)]


def scenario(seed: int) -> Scenario:
    """Return what this seed stands for."""
    chance = random.Random(seed)
    topics = ("in",) if chance.random() < 0.8 else ("in", "other")
    partitions = chance.randint(1, 3)
    addresses = ("x", "y.z", "y")[: chance.randint(1, 3)]
    sizes = (0, 1, 2, 3, 5, 20)
    capacities = [{name: chance.choice(sizes) for name in addresses} for _ in range(3)]
    resizes = chance.random() < 0.4
    steps = 900
    return Scenario(
        seed=seed,
        topics=topics,
        partitions=partitions,
        output_partitions=partitions if chance.random() < 0.7 else chance.randint(1, 3),
        sent=tuple(_sent(chance, topics, partitions, addresses)),
        capacities=tuple(capacities) if resizes else (capacities[0],),
        missing_id=chance.choice(("pass", "pass", "stamp", "dead_letter")),
        on_duplicate=chance.choice(("dead_letter", "dead_letter", "drop")),
        batch_records_max=chance.choice((1, 3, 10, 100)),
        instances=chance.choice((1, 1, 2)),
        crashes=frozenset(chance.sample(range(steps), chance.randint(1, 3))),
        freezes=frozenset(chance.sample(range(steps), chance.choice((0, 0, 1, 2)))),
        trouble=chance.choice((0.0, 0.0, 0.01, 0.05)),
        late_markers=chance.random() < 0.5,
        late_output=chance.random() < 0.1,
        addresses=addresses,
    )


def _sent(
    chance: random.Random, topics: tuple[str, ...], partitions: int, addresses: tuple[str, ...]
) -> list[Sent]:
    ids = [b"id%d" % number for number in range(chance.randint(2, 20))]
    odd = chance.choice((0.0, 0.15))
    return [
        _record(
            chance,
            number,
            Source(chance.choice(topics), chance.randrange(partitions)),
            odd,
            chance.choice(addresses),
            chance.choice(ids),
        )
        for number in range(chance.randint(20, 70))
    ]


def _record(
    chance: random.Random, number: int, source: Source, odd: float, address: str, identifier: bytes
) -> Sent:
    headers: Headers = [("other", None), ("other", b"%d" % number)]
    kind = chance.choice(("bare", "nowhere", "torn", "expired", "large", "long", "never"))
    if chance.random() >= odd:
        kind = "plain"
    if kind != "nowhere":
        headers.insert(0, (ADDRESS_HEADER, address.encode()))
    if kind == "long":
        identifier *= 20
    if kind != "bare":
        headers.insert(chance.randrange(len(headers) + 1), (DUPLICATE_ID, identifier))
    if kind == "torn":
        headers.append(("_AMQ_DUPL_ID", identifier + b"!"))
    if kind in {"expired", "never"}:
        headers.append((EXPIRES_AT, _PAST if kind == "expired" else _FUTURE))
    size = chance.choice(SIZES) if kind == "large" else 0
    value = (b"%d" % number).ljust(size, b".")
    key = chance.choice((None, b"", b"k%d" % (number % 3)))
    return Sent(
        source=source,
        record=Record(key, value, headers, 1_600_000_000_000 + number),
        address=None if kind == "nowhere" else address,
        identifier=None if kind == "bare" else identifier,
        valid=kind != "torn",
        expired=kind == "expired",
    )
