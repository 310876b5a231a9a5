"""Bombs: records that are small in the log and large once they are read.

Each bomb lies between two clean records in one partition, and another route goes on beside it. The
service stays within the memory of the chart, and in one life; each record has one fate; and what
makes no progress says on /readyz what it waits for.
"""

import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from itertools import chain, repeat
from typing import Final, NamedTuple

import pytest
from confluent_kafka import KafkaError, Message, Producer

from bench.burning import burning
from bench.machine import memory
from ringfence_client.headers import (
    DUPLICATE_ID,
    GROUP,
    GROUP_POSITION,
    GROUP_SIZE,
    DeadLetter,
    Reason,
)
from ringfence_service.schemas.limits import DECIMAL_BYTES_MAX, DEPTH_MAX
from tests.broker.desk import Desk
from tests.broker.reading import committed, messages
from tests.broker.service import Service
from tests.broker.topics import create_topic
from tests.fakes.schema_registry import FakeRegistry, payload
from tests.support.chart import memory_limit
from tests.support.waiting import eventually
from tests.unit.service.schemas.test_budget import AVRO, PROTO, PROTOBUF, array, avro, record

pytestmark = pytest.mark.broker

LARGE: Final = b"." * 900_000
QUEUED_MAX: Final = 500
"""The client's queue holds a gigabyte, and a busy broker is slow."""
BATCH: Final = {
    "batch.size": 200_000_000,
    "message.max.bytes": 200_000_000,
    "batch.num.messages": 1_000_000,
    "queue.buffering.max.messages": 1_000_000,
    "linger.ms": 5_000,
}
"""All that is sent until a flush is one batch."""
MUTE_S: Final = 30.0
"""No transaction takes so long, even beside busy cores: what stands still has a reason to tell."""
COPIES: Final = 10
"""Of each payload: what a worker kept of them would add up."""
SAYS_NOTHING: Final = (200, '{"status":"ok"}')
ACCEPTED: Final = "accepted"

Headers = list[tuple[str, str | bytes | None]]
Sent = tuple[bytes, Headers]


class Bomb(NamedTuple):
    """Records, how they are sent, the route that reads them, and what becomes of each."""

    records: Callable[[FakeRegistry], Iterator[tuple[Sent, str]]]
    codec: str = "zstd"
    batch: Mapping[str, int] = {"linger.ms": 50, "message.max.bytes": 200_000_000}
    route: str = ""
    more: str = ""
    clean: Callable[[bytes], Sent] = lambda name: (b"", [(DUPLICATE_ID, name)])


def each_with_an_id(
    count: int, made: Callable[[], Sent]
) -> Callable[[FakeRegistry], Iterator[tuple[Sent, str]]]:
    """So many of one kind, all different."""

    def records(_: FakeRegistry) -> Iterator[tuple[Sent, str]]:
        for number in range(count):
            value, headers = made()
            yield (value, [(DUPLICATE_ID, b"%d" % number), *headers]), ACCEPTED

    return records


def in_a_value() -> Sent:
    return LARGE, []


def in_a_header() -> Sent:
    return b"", [("large", LARGE)]


def in_many_headers() -> Sent:
    return b"", [("", b"")] * 2_000


def tiny() -> Sent:
    return b"", []


def json_bombs(_: FakeRegistry) -> Iterator[tuple[Sent, str]]:
    """JSON of every depth, and numbers and texts of any length; each id is met once."""
    depths = (1, 100, DEPTH_MAX - 1, 10_000, 1_000_000)
    nested = [
        (opening * depth + b"1" + closing * depth, depth < DEPTH_MAX)
        for depth in depths
        for opening, closing in ((b"[", b"]"), (b'{"a":', b"}"))
    ]
    digits = b"9" * 1_000_000
    flat = [b"1e" + digits, digits, b"-0." + digits, b'"' + b"\\u00e9" * 200_000 + b'"']
    for number, (member, has_id) in enumerate([*nested, *((each, True) for each in flat)]):
        value = b'{"a":' + member + b',"id":"%d"}' % number
        yield (value, []), ACCEPTED if has_id else Reason.MISSING_ID
    for member in flat[1:]:
        yield (b'{"id":' + member + b"}", []), Reason.INVALID_CLAIM
    for member in (b"[" * 1_000_000, b'"' + LARGE):
        yield (b'{"id":' + member, []), Reason.MISSING_ID


def with_schemas(registry: FakeRegistry) -> Iterator[tuple[Sent, str]]:
    """Payloads of few bytes whose schemas make much of them; none has the route's field."""
    clean = registry.register("clean", "AVRO", CLEAN_SCHEMA)
    assert clean == 1
    for schema, body, _ in AVRO.values():
        number = registry.register("bombs", "AVRO", schema.text)
        yield from repeat(((payload(number, body), []), Reason.MISSING_ID), COPIES)
    size = DECIMAL_BYTES_MAX * 2
    decimal = avro(
        record("R", id={"type": "bytes", "logicalType": "decimal", "precision": 9}), b""
    )[0]
    number = registry.register("bombs", "AVRO", decimal.text)
    sized = zigzag(size) + b"\x7f" * size
    yield from repeat(((payload(number, sized), []), Reason.MISSING_ID), COPIES)
    empty = registry.register("bombs", "AVRO", avro(array(record("E")), b"")[0].text)
    yield from repeat(((payload(empty, b"\x80\x80\x80\x80\x10\0"), []), Reason.MISSING_ID), COPIES)
    number = registry.register("bombs", "PROTOBUF", PROTO)
    for body in PROTOBUF.values():
        yield from repeat(((payload(number, body), []), Reason.MISSING_ID), COPIES)
    deep = b"\0" + b"".join(b"\x12" + varint(n) for n in range(10_000, 0, -100))
    yield from repeat(((payload(number, deep), []), Reason.MISSING_ID), COPIES)


def varint(number: int) -> bytes:
    return bytes([number & 0x7F | 0x80, number >> 7]) if number > 0x7F else bytes([number])


def zigzag(number: int) -> bytes:
    return varint(number * 2)


CLEAN_SCHEMA: Final = (
    '{"type": "record", "name": "R", "fields": [{"name": "id", "type": "string"}]}'
)


def framed(name: bytes) -> Sent:
    return payload(1, zigzag(len(name)) + name), []


def in_groups(
    groups: int, size: int, value: bytes
) -> Callable[[FakeRegistry], Iterator[tuple[Sent, str]]]:
    """Groups that never get their last record."""

    def records(_: FakeRegistry) -> Iterator[tuple[Sent, str]]:
        for number in range(groups * size):
            group, position = divmod(number, size)
            headers: Headers = [
                (DUPLICATE_ID, b"%d" % number),
                (GROUP, b"%d" % group),
                (GROUP_SIZE, b"%d" % (size + 1)),
                (GROUP_POSITION, b"%d" % (position + 1)),
            ]
            yield (value, headers), Reason.GROUP_INCOMPLETE

    return records


JSON_ROUTE: Final = 'id = "{json:/id}"\nmissing_id = "dead_letter"'
SCHEMA_ROUTE: Final = 'id = "{schema:/id}"\nmissing_id = "dead_letter"'
IMPATIENT: Final = '[addresses."#"]\ngroup_timeout_ms = 5000'

IN_ONE_BATCH: Final = {"zstd": 150, "lz4": 150, "gzip": 150, "snappy": 20}
"""As many as the broker's limit of 1 MiB lets a batch of snappy hold; of the others 135 MB."""

LARGE_RECORDS: Final = 1_200
"""Together they are larger than the memory of the chart."""
BOMBS: Final = {
    **{
        f"values, {codec}": Bomb(each_with_an_id(LARGE_RECORDS, in_a_value), codec)
        for codec in ("zstd", "lz4")
    },
    "headers": Bomb(each_with_an_id(LARGE_RECORDS, in_a_header)),
    "many headers": Bomb(each_with_an_id(LARGE_RECORDS, in_many_headers)),
    **{
        f"values in one batch, {codec}": Bomb(each_with_an_id(count, in_a_value), codec, BATCH)
        for codec, count in IN_ONE_BATCH.items()
    },
    "tiny records in one batch": Bomb(each_with_an_id(200_000, tiny), batch=BATCH),
    "large groups": Bomb(in_groups(40, 16, LARGE), more=IMPATIENT),
    "many groups": Bomb(in_groups(5_000, 1, b""), more=IMPATIENT),
    "schemas": Bomb(with_schemas, route=SCHEMA_ROUTE, clean=framed),
    "JSON": Bomb(
        json_bombs, route=JSON_ROUTE, clean=lambda name: (b'{"id":"%b"}' % name, [])
    ),
}  # fmt: skip


SHORT: Final = (
    "values, zstd",
    "headers",
    "values in one batch, zstd",
    "tiny records in one batch",
    "schemas",
    "JSON",
)
"""Those that run with all tests. The long tests have all, beside a busy process for each core."""
CASES: Final = (
    *(pytest.param(BOMBS[name], 0, id=name) for name in SHORT),
    *(
        pytest.param(bomb, os.cpu_count() or 1, id=f"{name}, busy cores", marks=pytest.mark.long)
        for name, bomb in BOMBS.items()
    ),
)


@pytest.fixture
def registry() -> Iterator[FakeRegistry]:
    fake = FakeRegistry()
    fake.start()
    yield fake
    fake.stop()


@pytest.fixture
def _busy(busy_cores: int) -> Iterator[None]:
    with ExitStack() as burners:
        for _ in range(busy_cores):
            burners.enter_context(burning(1))
        yield


class Watch:
    """What a service took and said until it has decided all."""

    def __init__(self, desk: Desk, service: Service, beside: str) -> None:
        self._desk, self._service, self._beside = desk, service, beside
        self._ends = desk.end(desk.input), 1
        self._seen = (-1, -1)
        self._since_s = time.monotonic()
        self.peak = 0
        self.workers: set[int] = set()

    def is_done(self) -> bool:
        """Whether all is committed; AssertionError if it ends, or waits without saying so."""
        service = self._service
        assert not service.ended, service.tail()
        self.peak = max(self.peak, memory(service.process.pid).peak)
        self.workers |= {*service.workers()}
        group, client = self._desk.group, self._desk.client
        seen = self._desk.committed(), committed(client, group, self._beside, 1)[0]
        if seen != self._seen or seen == self._ends:
            self._seen, self._since_s = seen, time.monotonic()
        elif time.monotonic() - self._since_s > MUTE_S:
            said = service.get("/readyz")
            assert said != SAYS_NOTHING, f"{seen} of {self._ends}\n{service.tail()}"
        return seen == self._ends


@pytest.mark.usefixtures("_busy")
@pytest.mark.parametrize(("bomb", "busy_cores"), CASES)
def test_a_bomb_takes_what_is_stated_from_the_others_and_has_one_fate(
    desk: Desk, registry: FakeRegistry, bomb: Bomb
) -> None:
    beside = f"{desk.group}-beside"
    desk.create()
    for topic in (beside, f"{beside}.unique", f"{beside}.dlq"):
        create_topic(desk.client, topic, 1)
    wanted: dict[bytes, str] = {}
    producer = Producer({**desk.client, **bomb.batch, "compression.type": bomb.codec})
    refused: list[str] = []

    def on_delivery(error: KafkaError | None, _: Message) -> None:
        refused.extend([str(error)] if error is not None else [])

    def send(name: bytes, sent: Sent, fate: str, topic: str = desk.input) -> None:
        wanted[name] = fate
        producer.produce(topic, key=name, value=sent[0], headers=sent[1], on_delivery=on_delivery)

    bombs = bomb.records(registry)
    first = next(bombs)
    send(b"before", bomb.clean(b"before"), ACCEPTED)
    assert producer.flush(20) == 0
    for number, (sent, fate) in enumerate(chain([first], bombs)):
        send(b"%d" % number, sent, fate)
        producer.poll(0)
        while len(producer) > QUEUED_MAX and bomb.batch is not BATCH:
            producer.poll(0.05)
    eventually(lambda: producer.flush(5) == 0)
    send(b"behind", bomb.clean(b"behind"), ACCEPTED)
    send(b"beside", (b"", [(DUPLICATE_ID, b"beside")]), ACCEPTED, beside)
    eventually(lambda: producer.flush(5) == 0)
    assert not refused
    service = desk.service(
        more=f"""{bomb.route}
[[routes]]
inputs = ["{beside}"]
scope = "partition"
{bomb.more}
[schema_registry]
url = "{registry.url}"
[kafka.producer]
"compression.type" = "zstd"
"""
    )
    watch = Watch(desk, service, beside)
    eventually(watch.is_done, service)
    found: dict[bytes, list[str]] = {}

    def all_are_found() -> bool:
        found.clear()
        watch.is_done()
        for topic in (desk.output, f"{beside}.unique", desk.letters, f"{beside}.dlq"):
            for message in messages(desk.client, topic):
                reason = dict(message.headers() or []).get(DeadLetter.REASON)
                fate = ACCEPTED if reason is None else str(reason, "utf-8")  # type: ignore[arg-type]
                found.setdefault(message.key() or b"", []).append(fate)
        return found.keys() >= wanted.keys()

    eventually(all_are_found, service)
    print(f"peak {watch.peak / 1024**2:.0f} MiB", Counter(wanted.values()))
    odd = {name: fates for name, fates in found.items() if fates != [wanted.get(name)]}
    assert not odd, (len(odd), [*odd.items()][:20])
    assert len(watch.workers) == 1, "a worker was replaced"
    assert watch.peak < memory_limit()
    service.stop()
