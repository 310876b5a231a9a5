"""Scenario: everything that a seed chooses before a run begins, as one frozen value.

Small on purpose: few partitions, addresses and ids meet each other often. The value of a record
names it, so that whatever comes out can be traced without trusting a header.
"""

import random
from dataclasses import dataclass, field, replace
from pathlib import Path

from ringfence_client.headers import (
    DUPLICATE_ID,
    EPOCH,
    EXPIRES_AT,
    GROUP_POSITION,
    GROUP_SIZE,
    NUMBER,
    PREVIOUS,
    PUBLISHER,
    STREAM,
)
from ringfence_client.headers import (
    GROUP as GROUP_NAME,
)
from ringfence_service.config.addresses import AddressBook, OnDuplicate
from ringfence_service.config.kafka_properties import KafkaSettings
from ringfence_service.config.model import (
    ApiSettings,
    Config,
    LostOffset,
    MissingId,
    ResetOffset,
    RouteSettings,
    SchemaRegistrySettings,
    Scope,
    ServiceSettings,
    Standby,
)
from ringfence_service.config.tasks import Hop, hops_of
from ringfence_state.model import NO_CLAIM, Claim, PartitionId
from tests.fakes.partition import Headers, Record
from tests.fakes.schema_registry import FakeSchemas
from tests.simulation.knobs import Knobs
from tests.simulation.registry import SCHEMAS, order
from tests.simulation.rules import RULES, SETTINGS

GROUP = "sim"
BY_ADDRESS_PARTITIONS = 2
ADDRESS_HEADER = "a"
OUTPUT_BYTES_MAX = (1_000, 1_000_000)
"""What the outputs' settings tell: with the larger one, plain records go by a lane, which sizes no
record. The broker takes less, as when it counts differently."""
OUTPUT_LIMIT_BYTES = 850
BATCH_BYTES_MAX = 64 * 1024 * 1024
SIZES = (0, 600, 950)
SIZES_OF_RINGS = (0, 1, 2, 3, 5, 20)
DEFAULT_SIZE = 3
TOMBSTONES_KEPT_MS = 7 * 24 * 60 * 60 * 1000
"""For how long compaction keeps them once it has passed them."""
LATE = "late"
"""An input whose route comes and goes over REST."""
ADDED = "added"
"""An input whose route only a newer file has."""
AWAITED = "awaited"
"""An input whose route awaits something of its own, while those of the others are clean."""
AWAITS: tuple[tuple[str, ...], ...] = (
    ("schemas",),
    ("unique",),
    ("dlq",),
    ("unique", "dlq"),
    ("schemas", "unique", "dlq"),
)
"""What it may await: schemas, and targets by the ends of their names."""
PUBLISHED = (PUBLISHER, NUMBER, STREAM, PREVIOUS)
STAMPED = (b"id0", b"id1", b"id2", b"id3", b"id4", b"id5")
HEADERS_MAX = 65_535
"""With more of them, a record cannot wait for its group."""
FOREIGN: tuple[Headers, ...] = (
    [("", b"")],
    [("\u00e9\u4e2d", b"\xff\xfe")],
    [("n" * 260, None), ("n" * 260, b"\0")],
    [("h", b"%d" % number) for number in range(40)],
)
_PAST, _FUTURE = b"1", b"9999999999999"


@dataclass(frozen=True, slots=True)
class Sent:
    """A record on its way into an input, and what it claims."""

    source: PartitionId
    record: Record
    address: str | None
    identifier: bytes | None
    valid: bool = True
    expired: bool = False
    member: tuple[bytes, int, int] | None = None
    """Group, size, position."""
    epoch: int = 0
    said: Claim = NO_CLAIM
    """What its publisher tells of itself; read by some strategies."""
    refused: bool = False
    """Whether the broker refuses it on an output, for a reason that no setting shows."""
    schema: int = 0
    """The schema that its payload names and its id is read by, if so."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """What is sent, how it is configured, how many instances there are, what goes wrong."""

    seed: int
    topics: tuple[str, ...]
    partitions: int
    output_partitions: int
    sent: tuple[Sent, ...]
    capacities: tuple[dict[str, int], ...]
    """By life: each one has its own configuration."""
    missing_id: MissingId
    on_duplicate: OnDuplicate
    batch_records_max: int
    instances: int
    crashes: frozenset[int]
    freezes: frozenset[int]
    trouble: float
    """How likely each step fails for a while."""
    late_markers: bool
    output_bytes_max: int
    batch_bytes_max: int
    knobs: Knobs
    ghosts: float = 0.0
    """How likely a copy of a request outlives its connection."""
    load_ms_per_byte: float = 0.0
    """What reading a store costs; a transaction is ten seconds old at most."""
    slowness: float = 0.0
    """How likely a step of a transaction takes seconds."""
    short_ends: bool = False
    """Whether ends of logs are reported too low now and then."""
    administers: bool = False
    """Whether an administrator imports, forgets and clears meanwhile."""
    switches: bool = False
    """Whether the administrator has an address go over to another strategy, and back."""
    twins: bool = False
    """Whether another process bears the name of an instance for a while."""
    rolls: bool = False
    """Whether a newer file, with a route more, reaches one instance after the other."""
    old_backups: bool = False
    """Whether instances come back after days with a disk that was older even then."""
    late_settings: bool = False
    """Whether what is set reaches one instance late."""
    names_records: bool = True
    """Whether the broker names the bad records of a batch."""
    on_lost_offset: LostOffset = "fail"
    on_reset_offset: ResetOffset = "fail"
    late_output: bool = False
    strategy: str = "ring"
    sessions: bool = False
    """Whether publishers open sessions meanwhile."""
    scope: Scope = "partition"
    audited: bool = False
    """Whether a second duplicate of an id is not dead-lettered."""
    addresses: tuple[str, ...] = field(default=())
    is_set: bool = False
    """Whether an administrator changes settings meanwhile."""
    awaits: tuple[str, ...] = ()
    """What the route of one more input awaits."""
    sets_clocks: bool = False
    """Whether the clocks of instances are set an hour ahead and back."""
    standby: Standby = "off"

    def config(self, instance: str, life: int, *, is_newer: bool = False) -> Config:
        """Return the configuration of one process of an instance, by the newer file or not."""
        book: dict[str, dict[str, object]] = {
            name: {"id_cache_size": size} for name, size in self.capacity_of(life).items()
        }
        common = {
            "on_duplicate": self.on_duplicate,
            "strategy": self.strategy,
            "dead_letter_audit": self.audited,
        }
        book["#"] = {**common, **SETTINGS, "id_cache_size": DEFAULT_SIZE}
        route = RouteSettings(
            name="route",
            inputs=self.topics,
            scope=self.scope,
            address=f"{{header:{ADDRESS_HEADER}}}",
            missing_id=self.missing_id,
        )
        routes = [route]
        if self.awaits:
            routes.append(self._awaiting(route))
        if is_newer:
            routes.append(replace(route, name=ADDED, inputs=(ADDED,)))
        service = ServiceSettings(
            group_id=GROUP,
            instance=instance,
            batch_records_max=self.batch_records_max,
            batch_bytes_max=self.batch_bytes_max,
            state_dir=Path("unused"),
            on_missing_offset="earliest",
            on_lost_offset=self.on_lost_offset,
            on_reset_offset=self.on_reset_offset,
            by_address_partitions=BY_ADDRESS_PARTITIONS,
            standby=self.standby,
        )
        addresses = AddressBook.of(book)
        uncompressed = {"compression.type": "none"}  # the oracle compares such sizes
        kafka = KafkaSettings({}, {}, uncompressed, {})
        schemas = SchemaRegistrySettings(url=FakeSchemas.url)
        return Config(
            kafka, service, ApiSettings(), tuple(routes), addresses, schema_registry=schemas
        )

    def _awaiting(self, route: RouteSettings) -> RouteSettings:
        awaiting = replace(route, name=AWAITED, inputs=(AWAITED,))
        if "schemas" not in self.awaits:
            return awaiting
        return replace(awaiting, id="{schema:/id}", missing_id="dead_letter")

    @property
    def inputs(self) -> tuple[str, ...]:
        """Return the topics that are read, if only for a while."""
        late = (LATE,) * self.is_set
        return (*self.topics, *late, *(ADDED,) * self.rolls, *(AWAITED,) * bool(self.awaits))

    @property
    def is_administered(self) -> bool:
        """Whether changes of ids are asked for, which rings take."""
        return self.administers and self.strategy == "ring"

    @property
    def late_route(self) -> dict[str, object]:
        """Return the keys of the route that comes and goes."""
        return {
            "inputs": [LATE],
            "scope": self.scope,
            "address": f"{{header:{ADDRESS_HEADER}}}",
            "missing_id": self.missing_id,
        }

    @property
    def hops(self) -> tuple[Hop, ...]:
        """Return the hops of which every instance has a process."""
        return hops_of([self.scope])

    @property
    def shares(self) -> int:
        """Return how many partitions decide an address together."""
        return BY_ADDRESS_PARTITIONS if self.scope == "id" else 1

    def capacity_of(self, life: int) -> dict[str, int]:
        """Return the ring sizes of a life."""
        return self.capacities[life % len(self.capacities)]


def scenario(seed: int) -> Scenario:
    """Return what this seed stands for."""
    case, chance = _refused(unstamped(seed)), random.Random(seed + 11)
    if case.strategy == "ring" and chance.random() >= 0.7:
        case = replace(case, sent=tuple(map(_stamped, case.sent)))
    if case.instances > 1 and random.Random(seed + 18).random() < 0.5:
        case = replace(case, standby="all")
    return _awaiting(case)


def unstamped(seed: int) -> Scenario:
    """Return the same where no id looks as if it was stamped, so that settings say what is kept."""
    chance = random.Random(seed)
    topics = ("in",) if chance.random() < 0.8 else ("in", "other")
    partitions = chance.randint(1, 3)
    addresses = ("x", "y.z", "y")[: chance.randint(1, 3)]
    capacities = [{name: chance.choice(SIZES_OF_RINGS) for name in addresses} for _ in range(3)]
    resizes = chance.random() < 0.4
    steps = 900
    sizes = random.Random(seed + 7)
    case = Scenario(
        seed=seed,
        topics=topics,
        partitions=partitions,
        output_partitions=partitions if chance.random() < 0.7 else chance.randint(1, 3),
        sent=tuple(_sent(chance, topics, partitions, addresses)),
        capacities=tuple(capacities) if resizes else (capacities[0],),
        missing_id=chance.choice(("pass", "pass", "stamp", "dead_letter")),
        on_duplicate=chance.choice(("dead_letter", "dead_letter", "drop", "mark")),
        batch_records_max=chance.choice((1, 3, 10, 100)),
        instances=chance.choice((1, 1, 2)),
        crashes=frozenset(chance.sample(range(steps), chance.randint(1, 3))),
        freezes=frozenset(chance.sample(range(steps), chance.choice((0, 0, 1, 2)))),
        trouble=chance.choice((0.0, 0.0, 0.01, 0.05)),
        late_markers=chance.random() < 0.5,
        load_ms_per_byte=sizes.choice((0.0, 0.0, 5.0, 30.0)),
        slowness=sizes.choice((0.0, 0.0, 0.01)),
        short_ends=sizes.random() < 0.3,
        administers=sizes.random() < 0.3,
        late_output=chance.random() < 0.1,
        strategy=chance.choice((*6 * ("ring",), *RULES)),
        audited=chance.random() < 0.2,
        sessions=chance.random() < 0.3,
        addresses=addresses,
        scope=chance.choice(("address", "partition")),
        sets_clocks=chance.random() < 0.3,
        output_bytes_max=sizes.choice(OUTPUT_BYTES_MAX),
        batch_bytes_max=sizes.choice((BATCH_BYTES_MAX, BATCH_BYTES_MAX, 400, 2_000)),
        knobs=Knobs.of(seed),
        ghosts=sizes.choice((0.0, 0.0, 0.02, 0.1)),
    )
    case = replace(case, sent=_odd_headers(case), twins=sizes.random() < 0.15)
    if case.load_ms_per_byte and sizes.random() < 0.5:
        case = _slow_alone(case)
    if case.scope == "address" and random.Random(seed + 17).random() < 0.4:
        case = replace(case, scope="id")
    days = random.Random(seed + 12)
    if days.random() < 0.2:
        # Of small runs, so that some are deleted as a whole.
        knobs = replace(case.knobs, run_ids_max=days.choice((1, 2)))
        case = replace(case, old_backups=True, knobs=knobs)
    if random.Random(seed + 4).random() < 0.4:
        case = _moved(replace(case, is_set=True), LATE)
        switches = case.strategy == "ring" and sizes.random() < 0.5
        if switches:
            knobs = replace(
                case.knobs,
                whole_ids_max=0,
                small_ids_max=0,
                cache_bytes=sizes.choice((0, 400)),
                piece_caches_max=None,  # a document is settled at once
            )
            case = replace(case, switches=True, audited=False, administers=False, knobs=knobs)
            case = replace(case, sent=tuple(map(_of_few_ids, case.sent)))
        return case
    rolls = case.instances > 1 and sizes.random() < 0.5
    return _moved(replace(case, rolls=True), ADDED) if rolls else case


def _refused(case: Scenario) -> Scenario:
    """The same, and some of what is sent is refused, a few records or nearly all."""
    chance = random.Random(case.seed + 14)
    if chance.random() < 0.7:
        return case
    share = chance.choice((0.05, 0.3, 0.95))
    sent = tuple(
        replace(each, refused=_is_small(each) and chance.random() < share) for each in case.sent
    )
    return replace(case, sent=sent, names_records=chance.random() < 0.8)


def _awaiting(case: Scenario) -> Scenario:
    """The same, and some of what is sent goes to a route that awaits something of its own."""
    chance = random.Random(case.seed + 15)
    if chance.random() < 0.7:
        return case
    awaits, share = chance.choice(AWAITS), chance.choice((0.1, 0.3, 0.6))
    if case.strategy not in {"ring", "window"}:
        awaits = awaits[awaits[0] == "schemas" :] or ("unique",)  # others read no ids

    def moved(number: int, sent: Sent) -> Sent:
        is_plain = sent.member is None and sent.valid and not sent.expired and sent.address
        is_known = sent.identifier is not None and len(sent.identifier) < 64
        if not (is_plain and is_known and _is_small(sent)) or chance.random() >= share:
            return sent
        source = PartitionId(AWAITED, sent.source.partition)
        schema = chance.choice(SCHEMAS) if "schemas" in awaits else 0
        return _by_schema(replace(sent, source=source), schema, number)

    sent = tuple(moved(number, each) for number, each in enumerate(case.sent))
    return replace(case, awaits=awaits, sent=sent)


def _by_schema(sent: Sent, schema: int, number: int) -> Sent:
    """The same with its id in its payload, if there is a schema for that."""
    if not schema:
        return sent
    headers = [each for each in sent.record.headers or [] if each[0] != DUPLICATE_ID]
    value = order(schema, sent.identifier or b"", b"%d" % number)
    return replace(sent, schema=schema, record=sent.record._replace(value=value, headers=headers))


def _is_small(sent: Sent) -> bool:
    """Whether nothing else is to blame: it is not too large, and not of a group that may be."""
    return sent.member is None and len(sent.record.value or b"") < OUTPUT_LIMIT_BYTES


def _odd_headers(case: Scenario) -> tuple[Sent, ...]:
    """What is sent, here and there with headers that are foreign, and once with very many."""
    chance = random.Random(case.seed + 10)
    sent = list(case.sent)
    for number, each in enumerate(sent):
        if chance.random() < 0.05 and len(each.record.value or b"") < 100:
            headers = [*chance.choice(FOREIGN), *(each.record.headers or [])]
            sent[number] = replace(each, record=each.record._replace(headers=headers))
    if chance.random() < 0.02:
        number = chance.randrange(len(sent))
        each = sent[number]
        if each.member is not None:
            headers = [*(each.record.headers or []), *[("", None)] * HEADERS_MAX]
            sent[number] = replace(each, record=each.record._replace(headers=headers))
    return tuple(sent)


def _slow_alone(case: Scenario) -> Scenario:
    """The same with large rings and long transactions, which nothing but loading makes old."""
    return replace(
        case,
        capacities=(dict.fromkeys(case.addresses, max(SIZES_OF_RINGS)),),
        knobs=replace(case.knobs, at_once=1 + case.seed % 3),
        batch_records_max=100,
        batch_bytes_max=BATCH_BYTES_MAX,
        load_ms_per_byte=100.0,
        slowness=0.0,
        trouble=0.0,
        freezes=frozenset(),
        twins=False,
        ghosts=0.0,  # a late request may begin a transaction that nobody ends
    )


def _of_few_ids(sent: Sent) -> Sent:
    """The same with one of three ids, so that it is often a duplicate."""
    if sent.identifier is None or not sent.valid:
        return sent
    return _with_id(sent, b"id%d" % (sent.identifier[-1] % 3))


def _stamped(sent: Sent) -> Sent:
    """The same with an id that looks as if it was stamped on the way, if it is one of a few."""
    if sent.member is not None or not sent.valid or sent.identifier not in STAMPED:
        return sent
    return _with_id(sent, b"elsewhere/in/0/" + sent.identifier[2:])


def _with_id(sent: Sent, identifier: bytes) -> Sent:
    headers = [
        (name, identifier if name == DUPLICATE_ID else value)
        for name, value in sent.record.headers or []
    ]
    return replace(sent, identifier=identifier, record=sent.record._replace(headers=headers))


def _moved(case: Scenario, topic: str) -> Scenario:
    """The same, and some of what is sent goes to another input."""
    chance = random.Random(case.seed + 5)

    def moved(sent: Sent) -> Sent:
        if sent.member is not None or chance.random() < 0.7:
            return sent
        return replace(sent, source=PartitionId(topic, sent.source.partition))

    return replace(case, sent=tuple(map(moved, case.sent)))


def _sent(
    chance: random.Random, topics: tuple[str, ...], partitions: int, addresses: tuple[str, ...]
) -> list[Sent]:
    ids = [b"id%d" % number for number in range(chance.randint(2, 20))]
    odd = chance.choice((0.0, 0.15))
    grouped = chance.choice((0.0, 0.0, 0.3, 0.8))
    return [
        _record(
            chance,
            number,
            PartitionId(chance.choice(topics), chance.randrange(partitions)),
            odd,
            chance.choice(addresses),
            chance.choice(ids),
            _member(chance) if chance.random() < grouped else None,
        )
        for number in range(chance.randint(20, 70))
    ]


def _member(chance: random.Random) -> tuple[bytes, int, int]:
    """Few groups, so that they are often complete, sent again, or of another size."""
    name = chance.choice((b"s", b"t", b"t", b"u"))
    size = {b"s": 1, b"t": 2, b"u": 3}[name] + (chance.random() < 0.1)
    return name, size, chance.randint(1, size)


def _record(
    chance: random.Random,
    number: int,
    source: PartitionId,
    odd: float,
    address: str,
    identifier: bytes,
    member: tuple[bytes, int, int] | None,
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
    said = _said(chance)
    if kind != "bare":
        told = (said.publisher, said.number, said.stream, said.previous)
        headers += [
            (name, str(value).encode())
            for name, value in zip(PUBLISHED, told, strict=True)
            if value is not None
        ]
    epoch = 0 if kind == "bare" else chance.choice((0, 0, 1, 2, 3))
    if epoch:
        headers.append((EPOCH, b"%d" % epoch))
    if member is not None:
        group, group_size, position = member
        headers += [
            (GROUP_NAME, group),
            (GROUP_SIZE, b"%d" % group_size),
            (GROUP_POSITION, b"%d" % position),
        ]
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
        member=member,
        epoch=epoch,
        said=NO_CLAIM if kind == "bare" else said,
    )


def _said(chance: random.Random) -> Claim:
    """Numbers that often go on where some publisher stopped, and often not."""
    number = chance.randint(0, 12)
    return Claim(
        publisher=chance.choice(("P", "Q", "R", None)),
        number=number,
        stream=chance.choice((1, 1, 1, 2)),
        previous=chance.choice((0, max(0, number - 1))),
    )
