"""Ids by schemas on a real broker and a real registry, which is killed in between: one fate each.

What a real registry cannot be made to do, such as to lie, a fake one does.
`RINGFENCE_SCHEMA_RECORDS` says how many records of each format are sent, `RINGFENCE_SEED` which.
"""

import io
import json
import os
import random
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import fastavro
import pytest
from confluent_kafka import Producer
from google.protobuf.message_factory import GetMessageClass

from ringfence_client.headers import DUPLICATE_ID, DeadLetter
from ringfence_service.schemas.protobuf import ProtobufDecoder
from tests.broker.apicurio import Apicurio
from tests.broker.reading import committed, messages
from tests.broker.service import Service, Stage, configuration
from tests.broker.topics import create_topic
from tests.fakes.schema_registry import FakeRegistry, payload
from tests.support.waiting import eventually
from tools.broker.cluster import Broker

pytestmark = pytest.mark.broker

RECORDS: Final = int(os.environ.get("RINGFENCE_SCHEMA_RECORDS") or 2_000)
SEED: Final = int(os.environ.get("RINGFENCE_SEED") or 1)
PARTITIONS: Final = 3
TENANTS: Final = 5
UNKNOWN: Final = 900_000
"""The first of the schema ids that nobody has registered."""
SEND_S: Final = 300.0

Encode = Callable[[dict[str, Any]], bytes]


class Sent(NamedTuple):
    """A record, and what has to become of it."""

    value: bytes
    identifier: str | None
    """The id of one that can be read; None for those that lack it."""
    reason: str = "missing-id"
    """Why it is dead-lettered without an id."""


class Format(NamedTuple):
    """How values are written, by two versions of a schema; the second is used later."""

    name: str
    field: str
    encoders: tuple[Encode, Encode]
    scope: str = "partition"
    address: str = "{topic}"
    is_framed: bool = True
    """Whether the id of a schema begins each value."""

    def route(self, group: str) -> str:
        return f"""
[[routes]]
inputs = ["{self.topic(group)}"]
scope = "{self.scope}"
address = "{self.address}"
id = "{self.field}"
missing_id = "dead_letter"
"""

    def topic(self, group: str) -> str:
        return f"{group}-{self.name}"


def avro_schema(version: int) -> dict[str, Any]:
    order = {
        "type": "record",
        "name": "Details",
        "fields": [
            {"name": "id", "type": ["null", "string"]},
            {"name": "number", "type": "long"},
            {"name": "price", "type": "double"},
        ],
    }
    added = [{"name": "added", "type": ["null", "int"]}] * (version - 1)
    fields = [
        {"name": "tenant", "type": "string"},
        *added,
        {"name": "order", "type": order},
        {"name": "note", "type": "string"},
    ]
    return {"type": "record", "name": "Order", "namespace": "shop", "fields": fields}


def avro(registry: Apicurio | FakeRegistry, version: int) -> Encode:
    schema = avro_schema(version)
    number = registry.register("avro-value", "AVRO", json.dumps(schema))
    parsed = fastavro.parse_schema(schema)

    def encode(order: dict[str, Any]) -> bytes:
        stream = io.BytesIO()
        fastavro.schemaless_writer(stream, parsed, order)
        return payload(number, stream.getvalue())

    return encode


PROTO: Final = """
syntax = "proto3";
package shop;
message Other {{ string id = 1; }}
message Order {{
  message Details {{ string id = 1; int64 number = 2; double price = 3; }}
  string tenant = 1;
  Details order = 2;
  string note = 3;
  {added}
}}
"""


def protobuf(registry: Apicurio, version: int) -> Encode:
    text = PROTO.format(added="optional int32 added = 4;" * (version - 1))
    number = registry.register("protobuf-value", "PROTOBUF", text)
    make: Any = GetMessageClass(ProtobufDecoder(text, {})._root((1,)).message)

    def encode(order: dict[str, Any]) -> bytes:
        message: Any = make(tenant=order["tenant"], note=order["note"])
        details = order["order"]
        message.order.number, message.order.price = details["number"], details["price"]
        if details["id"] is not None:
            message.order.id = details["id"]
        return payload(number, b"\x02\x02" + message.SerializeToString())

    return encode


def json_schema(registry: Apicurio, version: int) -> Encode:
    properties = {"order": {"type": "object"}, f"added{version}": {"type": "string"}}
    text = json.dumps({"type": "object", "properties": properties})
    number = registry.register(f"json-schema-{version}", "JSON", text)
    return lambda order: payload(number, plain(order))


def plain(order: dict[str, Any]) -> bytes:
    return json.dumps(order).encode()


def formats(registry: Apicurio) -> tuple[Format, ...]:
    field = "{schema:/order/id}"
    address = "{topic}.{schema:/tenant}"
    return (
        Format("avro", field, (avro(registry, 1), avro(registry, 2)), "address", address),
        Format("protobuf", field, (protobuf(registry, 1), protobuf(registry, 2))),
        Format("json-schema", field, (json_schema(registry, 1), json_schema(registry, 2))),
        Format("json", "{json:/order/id}", (plain, plain), is_framed=False),
    )


def workload(of: Format, seed: int) -> Iterator[Sent]:
    """New ids, repeated ones, none, broken payloads and unknown schemas."""
    chance, known = random.Random(f"{seed} {of.name}"), list[str]()
    broken = "no-address" if "schema:" in of.address else "missing-id"
    for number in range(RECORDS):
        kind = chance.random()
        is_new = kind < 0.6 or not known
        identifier = f"id-{number}" if is_new else chance.choice(known)
        tenant = f"t{zlib.crc32(identifier.encode()) % TENANTS}"
        details = {"id": identifier, "number": number, "price": number / 8}
        order: dict[str, Any] = {"tenant": tenant, "added": None, "order": details}
        order["note"] = f"note {number}"
        encode = of.encoders[number >= RECORDS // 2]
        if 0.85 <= kind < 0.9:
            yield Sent(encode({**order, "order": {**details, "id": None}}), None)
        elif 0.9 <= kind < 0.95:
            value = encode(order)
            parts = (value[:-1], b"\1" + value[1:], value[:4])
            yield Sent(chance.choice(parts if of.is_framed else parts[:1]), None, broken)
        elif kind >= 0.95:
            rest = encode(order)[5:]
            unknown = UNKNOWN + chance.randrange(20)
            yield Sent(payload(unknown, rest) if of.is_framed else b"{" + rest, None, broken)
        else:
            known += [identifier] if is_new else []
            yield Sent(encode(order), identifier)


class Scene(Stage):
    """A group whose routes read four formats."""

    def __init__(
        self, client: Mapping[str, str], folder: Path, group: str, registry: Apicurio
    ) -> None:
        super().__init__(client, folder, group)
        self.registry = registry
        self.formats = formats(registry)
        self.work = {of.name: list(workload(of, SEED)) for of in self.formats}
        for of in self.formats:
            for end in ("", ".unique", ".dlq"):
                kept = {"retention.ms": "-1"}
                create_topic(self.client, of.topic(group) + end, PARTITIONS, kept)

    def service(self) -> Service:
        return self.written("service", self._text)

    def _text(self, port: int) -> str:
        return configuration(
            self.client,
            self.group,
            self.folder / "state",
            port,
            service=f"by_address_partitions = {PARTITIONS}",
            rest=f"""
[schema_registry]
url = "{self.registry.url}"
timeout_ms = 500
{"".join(of.route(self.group) for of in self.formats)}
[addresses."#"]
id_cache_size = {2 * RECORDS}
""",
        )

    def send(self, rows: range) -> None:
        room = {"queue.buffering.max.messages": len(self.formats) * len(rows) + 1}
        producer = Producer({**self.client, "enable.idempotence": True, "linger.ms": 5, **room})
        for of in self.formats:
            for number in rows:
                sent = self.work[of.name][number]
                place = zlib.crc32((sent.identifier or str(number)).encode()) % PARTITIONS
                if of.scope == "address":
                    place = number % PARTITIONS
                producer.produce(
                    of.topic(self.group), sent.value, key=b"%d" % number, partition=place
                )
        assert producer.flush(SEND_S) == 0

    def read(self, of: Format) -> int:
        """How many inputs of a format are committed."""
        return sum(committed(self.client, self.group, of.topic(self.group), PARTITIONS).values())

    def wait_read(self, count: int, service: Service) -> None:
        eventually(lambda: all(self.read(of) >= count for of in self.formats), service)

    def fates(self, of: Format) -> dict[int, list[tuple[str, bytes | None]]]:
        """By number all fates of each record: where or why, and its value there."""
        found: dict[int, list[tuple[str, bytes | None]]] = {}
        for end in (".unique", ".dlq"):
            for message in messages(self.client, of.topic(self.group) + end):
                headers = dict(message.headers() or [])
                reason = headers.get(DeadLetter.REASON)
                assert (reason is None) == (end == ".unique")
                fate = "accepted" if reason is None else str(reason, "utf-8")  # type: ignore[arg-type]
                key = message.key()
                assert key is not None
                found.setdefault(int(key), []).append((fate, message.value()))
        return found

    def verify(self, of: Format, service: Service) -> Counter[str]:
        """Every record has one fate, the right one, and is as it was sent."""
        sent, found = self.work[of.name], dict[int, list[tuple[str, bytes | None]]]()

        def are_all_decided() -> bool:
            found.clear()
            found.update(self.fates(of))
            return len(found) >= len(sent)

        eventually(are_all_decided, service)
        assert {number for number, fates in found.items() if len(fates) != 1} == set()
        accepted, tally = Counter[str](), Counter[str]()
        for number, each in enumerate(sent):
            ((fate, value),) = found[number]
            assert value == each.value, (of.name, number)
            tally[fate] += 1
            if each.identifier is None:
                assert fate == each.reason, (of.name, number, value)
            else:
                assert fate in {"accepted", "duplicate"}, (of.name, number, fate)
                accepted[each.identifier] += fate == "accepted"
        assert set(accepted.values()) == {1}, "one message of each id"
        return tally


@pytest.fixture
def scene(broker: Broker, tmp_path: Path, topic_name: Callable[[str], str]) -> Iterator[Scene]:
    folder = tmp_path / "registry"
    folder.mkdir()
    with (
        Apicurio(folder) as registry,
        Scene(broker.client_properties, tmp_path, topic_name("schemas"), registry) as scene,
    ):
        yield scene


@pytest.mark.row(38)
def test_every_record_of_each_format_has_one_fate_while_registry_and_service_are_killed(
    scene: Scene,
) -> None:
    half = RECORDS // 2
    service = scene.service()
    service.start()
    scene.send(range(half))
    scene.wait_read(half, service)
    scene.registry.stop()
    scene.send(range(half, RECORDS))
    service.wait_note("the schema registry at")
    metrics = service.get("/metrics")[1]
    assert "\nringfence_waiting 0.0" in metrics
    assert "\nringfence_blocked_partitions 0.0" not in metrics
    json = next(of for of in scene.formats if not of.is_framed)
    eventually(lambda: scene.read(json) == RECORDS, service)  # it needs no schema
    service.kill()
    service.start()
    service.wait_note("the schema registry at")
    scene.registry.start()
    scene.wait_read(RECORDS, service)
    for of in scene.formats:
        tally = scene.verify(of, service)
        print(f"{of.name:<12}{dict(tally)}")
        assert min(tally["accepted"], tally["duplicate"], tally["missing-id"]) > RECORDS // 50
    service.stop()


Trouble = Callable[[FakeRegistry, str], AbstractContextManager[None]]
"""What is wrong with a registry for a while; it gets the path of an id that is new."""


@contextmanager
def killed(registry: FakeRegistry, _path: str) -> Iterator[None]:
    registry.stop()
    yield
    registry.start()


@contextmanager
def silent(registry: FakeRegistry, _path: str) -> Iterator[None]:
    registry.silent.set()
    yield
    registry.silent.clear()


def sending(piece: bytes, every_s: float) -> Trouble:
    @contextmanager
    def trouble(registry: FakeRegistry, path: str) -> Iterator[None]:
        registry.endless[path], registry.every_s = piece, every_s
        yield
        registry.endless.clear()

    return trouble


def answering(status: int, body: str, *, all_ids: bool) -> Trouble:
    @contextmanager
    def trouble(registry: FakeRegistry, path: str) -> Iterator[None]:
        registry.broken, registry.odd[path] = (status, body) if all_ids else None, (status, body)
        yield
        registry.broken = None
        registry.odd.clear()

    return trouble


TROUBLES: Final[tuple[Trouble, ...]] = (
    killed,
    silent,
    sending(b" ", 0.1),
    sending(b" " * 65_536, 0.0),
    *(
        answering(status, body, all_ids=all_ids)
        for status, body in ((403, "{}"), (503, "away"), (302, ""), (200, "<html>"), (200, "{}"))
        for all_ids in (True, False)
    ),
)


@pytest.mark.row(38)
def test_a_registry_that_is_killed_slow_refusing_or_lying_ends_no_process_and_loses_no_record(
    broker: Broker, tmp_path: Path, topic_name: Callable[[str], str]
) -> None:
    client, group = dict(broker.client_properties), topic_name("troubled")
    first, second = f"{group}-first", f"{group}-second"
    for topic in (first, second):
        for end in ("", ".unique", ".dlq"):
            create_topic(client, topic + end)
    registry, producer = FakeRegistry(), Producer(client)
    registry.start()
    rest = f"""
[schema_registry]
url = "{registry.url}"
timeout_ms = 500
[[routes]]
inputs = ["{first}"]
scope = "partition"
id = "{{schema:/order/id}}"
missing_id = "dead_letter"
[[routes]]
inputs = ["{second}"]
scope = "partition"
"""
    values = list[bytes]()

    def is_read(topic: str) -> bool:
        return committed(client, group, topic, 1) == {0: len(values)}

    with Stage(client, tmp_path, group) as stage:
        service = stage.serving("service", rest=rest)
        service.start()
        service.wait_ready(2)
        workers = service.workers()
        for number, trouble in enumerate(TROUBLES):
            encode = avro(registry, 1)
            details = {"id": f"id-{number}", "number": number, "price": 0.5}
            with trouble(registry, f"/schemas/ids/{len(registry.schemas)}"):
                values.append(encode({"tenant": "t", "order": details, "note": ""}))
                producer.produce(first, values[-1])
                producer.produce(second, b"v", headers={DUPLICATE_ID: b"%d" % number})
                assert producer.flush(SEND_S) == 0
                service.wait_note("the schema registry at")
                eventually(lambda: is_read(second), service)
            eventually(lambda: is_read(first), service)
        assert service.workers() == workers
        service.stop()
    registry.stop()
    assert [each.value() for each in messages(client, f"{first}.unique")] == values
    assert list(messages(client, f"{first}.dlq")) == []
