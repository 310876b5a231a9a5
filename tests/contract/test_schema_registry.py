"""What the service relies on in a schema registry, asked of a real one and of the fake."""

import asyncio
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import trustme
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf.message_factory import GetMessageClass

from ringfence_service.config.model import SchemaRegistrySettings
from ringfence_service.schemas import registry as module
from ringfence_service.schemas.documents import Documents, connect, documents, use
from ringfence_service.schemas.errors import (
    RegistryUnavailableError,
    SchemaUnusableError,
    UndecodableError,
)
from ringfence_service.schemas.protobuf import ProtobufDecoder
from ringfence_service.schemas.registry import ConfluentRegistry, RegisteredSchema, check
from tests.broker.apicurio import Apicurio
from tests.fakes.schema_registry import FakeRegistry, payload
from tests.support.helpers import some

Registry = FakeRegistry | Apicurio

REAL = pytest.mark.broker, pytest.mark.xdist_group("registry")  # it takes seconds to start

LINE = '{"type": "record", "name": "Line", "namespace": "s", "fields": [{"name": "sku", "type": "string"}]}'  # noqa: E501
ORDER = '{"type": "record", "name": "Order", "namespace": "s", "fields": [{"name": "line", "type": "s.Line"}]}'  # noqa: E501
COMMON = 'syntax = "proto3"; package c; message Id { string text = 1; }'
MIDDLE = 'syntax = "proto3"; package m; import "common.proto"; message Mid { c.Id id = 1; }'
JSON_SCHEMA = '{"type": "object", "properties": {"id": {"type": "number"}}}'
PROTOS = """
syntax = "proto3";
package p;
message First { string id = 1; }
message Order { map<string, string> tags = 1; message Line { string sku = 1; } }
"""
WITH_TITLE = """
{"$schema": "http://json-schema.org/draft-07/schema#", "title": "Line", "type": "object",
 "properties": {"sku": {"type": "string"}}}
"""
OUTER = """
syntax = "proto3";
package o;
import "middle.proto";
import "google/protobuf/timestamp.proto";
message Order { m.Mid mid = 1; google.protobuf.Timestamp at = 2; }
"""


@pytest.fixture(scope="module")
def apicurio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Apicurio]:
    with Apicurio(tmp_path_factory.mktemp("apicurio")) as registry:
        yield registry


@pytest.fixture(params=["fake", pytest.param("real", marks=REAL)])
def registry(request: pytest.FixtureRequest) -> Iterator[Registry]:
    if request.param == "real":
        yield request.getfixturevalue("apicurio")
        return
    fake = FakeRegistry("/apis/ccompat/v7")
    fake.start()
    yield fake
    fake.stop()


class Client(NamedTuple):
    """A client that is opened for each call: an event loop ends with it."""

    settings: SchemaRegistrySettings

    def schema(self, number: int) -> RegisteredSchema | None:
        async def ask() -> RegisteredSchema | None:
            registry = ConfluentRegistry(self.settings)
            try:
                return await registry.schema(number)
            finally:
                await registry.close()

        return asyncio.run(ask())

    def probe(self, number: int) -> None:
        async def ask() -> None:
            registry = ConfluentRegistry(self.settings)
            try:
                await registry.probe(number)
            finally:
                await registry.close()

        asyncio.run(ask())


def client(registry: Registry, timeout_ms: int = 5_000) -> Client:
    return Client(SchemaRegistrySettings(registry.url, timeout_ms=timeout_ms))


@contextmanager
def reading(registry: Registry) -> Iterator[Documents]:
    connect(SchemaRegistrySettings(registry.url, timeout_ms=5_000))
    try:
        yield documents()
    finally:
        use(None)


def text(registry: Registry, number: int, body: bytes, *tokens: str) -> object:
    with reading(registry) as read:
        return read.document(payload(number, body)).member(tokens)


def test_a_schema_of_avro_is_found_by_its_id(registry: Registry) -> None:
    number = registry.register("avro-value", "AVRO", LINE)
    assert text(registry, number, b"\x02x", "sku") == "x"
    assert some(client(registry).schema(number)).kind == "AVRO"


def test_a_schema_of_avro_may_name_types_of_another_one(registry: Registry) -> None:
    registry.register("line-value", "AVRO", LINE)
    number = registry.register("order-value", "AVRO", ORDER, [("s.Line", "line-value")])
    assert text(registry, number, b"\x02x", "line", "sku") == "x"


def test_a_file_of_protobuf_may_import_others_and_they_more(registry: Registry) -> None:
    registry.register("common", "PROTOBUF", COMMON)
    registry.register("middle", "PROTOBUF", MIDDLE, [("common.proto", "common")])
    number = registry.register("outer-value", "PROTOBUF", OUTER, [("middle.proto", "middle")])
    body = b"\0\x0a\x05\x0a\x03\x0a\x01x\x12\x02\x08\x07"
    assert text(registry, number, body, "mid", "id", "text") == "x"
    assert text(registry, number, body, "at", "seconds") == "7"


def test_a_json_schema_says_that_a_payload_is_json(registry: Registry) -> None:
    number = registry.register("json-value", "JSON", JSON_SCHEMA)
    assert text(registry, number, b'{"id": 1.0}', "id") == "1.0"


@pytest.mark.parametrize("number", [1_000_000, 2**31 - 1])
def test_an_id_that_it_does_not_have_is_none(registry: Registry, number: int) -> None:
    assert client(registry).schema(number) is None
    with pytest.raises(UndecodableError, match=f"has schema {number}, which the registry does not"):
        text(registry, number, b"")


def test_a_sign_of_life_is_given(registry: Registry) -> None:
    check(client(registry).settings)
    client(registry).probe(2**31 - 1)


def test_another_address_of_it_is_not_an_answer(registry: Registry) -> None:
    settings = SchemaRegistrySettings(registry.url + "/nowhere")
    with pytest.raises(RegistryUnavailableError, match="answered 404"):
        Client(settings).schema(1)
    with pytest.raises(RegistryUnavailableError, match="answered 404"):
        check(settings)


# What only the fake can be made to do.


@pytest.fixture
def fake() -> Iterator[FakeRegistry]:
    fake = FakeRegistry()
    fake.start()
    fake.register("avro-value", "AVRO", LINE)
    yield fake
    fake.silent.clear()
    fake.stop()


@pytest.mark.parametrize("status", [400, 401, 403, 429, 500, 502, 503])
def test_an_error_is_no_answer_and_is_asked_for_once(fake: FakeRegistry, status: int) -> None:
    fake.broken = status, '{"error_code": 50001, "message": "not now"}'
    with pytest.raises(RegistryUnavailableError, match=f"which answered {status}: not now"):
        client(fake).schema(1)
    assert len(fake.requests) == 1


@pytest.mark.parametrize(
    "body",
    [
        *("", "<html>", "[]", "{}", "null", '{"schema": 7, "references": 1}'),
        *(
            '{"schema": {}}',
            '{"schema": "x", "references": [7]}',
            '{"schema": "x", "references": 7}',
        ),
    ],
)
def test_an_answer_without_a_schema_is_none(fake: FakeRegistry, body: str) -> None:
    fake.broken = 200, body
    with pytest.raises(RegistryUnavailableError):
        client(fake).schema(1)


def test_who_refuses_connections_is_named(fake: FakeRegistry) -> None:
    fake.stop()
    with pytest.raises(RegistryUnavailableError, match=f"{fake.url}, which does not answer"):
        client(fake).schema(1)
    fake.start()
    assert client(fake).schema(1) is not None


def test_who_is_silent_is_waited_for_no_longer_than_the_limit(fake: FakeRegistry) -> None:
    fake.silent.set()
    with pytest.raises(RegistryUnavailableError, match="which does not answer within 200 ms"):
        client(fake, timeout_ms=200).schema(1)


def test_who_sends_a_byte_now_and_then_is_waited_for_no_longer_than_the_limit(
    fake: FakeRegistry,
) -> None:
    fake.endless["/schemas/ids/1"], fake.every_s = b" ", 0.05
    with pytest.raises(RegistryUnavailableError, match="which does not answer within 300 ms"):
        client(fake, timeout_ms=300).schema(1)


def test_references_have_one_limit_of_time_together(
    fake: FakeRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LOOKUP_S", 0.3)
    fake.register("order-value", "AVRO", ORDER, [("s.Line", "avro-value")])
    fake.endless["/subjects/avro-value/versions/1"], fake.every_s = b" ", 0.05
    with pytest.raises(RegistryUnavailableError, match=r"does not answer within 0\.3 s"):
        client(fake).schema(2)


def test_no_more_is_read_of_an_answer_than_its_limit(
    fake: FakeRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "ANSWER_BYTES_MAX", 100_000)
    fake.endless["/schemas/ids/1"] = b" " * 1_000
    with pytest.raises(RegistryUnavailableError, match="answers with more than 100000 bytes"):
        client(fake).schema(1)


def test_a_schema_has_a_limit_with_those_that_it_refers_to(
    fake: FakeRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake.register("order-value", "AVRO", ORDER, [("s.Line", "avro-value")])
    monkeypatch.setattr(module, "SCHEMA_CHARS_MAX", len(ORDER) + len(LINE) - 1)
    assert client(fake).schema(1) is not None
    with pytest.raises(SchemaUnusableError, match="characters with what it refers to"):
        client(fake).schema(2)


def test_a_redirect_is_not_followed(fake: FakeRegistry) -> None:
    fake.register("avro-value", "AVRO", LINE)
    fake.odd["/schemas/ids/2"] = 302, ""
    with pytest.raises(RegistryUnavailableError, match="which answered 302"):
        client(fake).schema(2)
    assert fake.requests == ["/schemas/ids/2"]


def test_an_answer_that_is_nested_deeply_is_none(fake: FakeRegistry) -> None:
    fake.odd["/schemas/ids/1"] = 200, "[" * 100_000
    with pytest.raises(RegistryUnavailableError, match="200 without an object of JSON"):
        client(fake).schema(1)


def test_a_compressed_answer_is_not_unpacked(fake: FakeRegistry) -> None:
    fake.encoding = "gzip"
    assert client(fake).schema(1) is not None, "it is what it is, whatever its header says"


def test_a_schema_that_refers_to_nothing_is_unusable(fake: FakeRegistry) -> None:
    fake.register("order-value", "AVRO", ORDER, [("s.Line", "avro-value")])
    fake.subjects["avro-value"].clear()
    with pytest.raises(SchemaUnusableError, match="version 1 of avro-value, which the registry"):
        client(fake).schema(2)


def test_schemas_that_refer_to_each_other_end(fake: FakeRegistry) -> None:
    fake.schemas[0]["references"] = [{"name": "a", "subject": "avro-value", "version": 1}]
    assert [name for name, _ in some(client(fake).schema(1)).references] == ["a"]


def test_a_user_and_a_password_are_sent() -> None:
    fake = FakeRegistry(credentials="me:sec:ret")
    fake.start()
    fake.register("avro-value", "AVRO", LINE)
    settings = SchemaRegistrySettings(fake.url, "me", "sec:ret")
    assert Client(settings).schema(1) is not None
    with pytest.raises(RegistryUnavailableError, match="answered 401: Unauthorized"):
        Client(SchemaRegistrySettings(fake.url, "me", "other")).schema(1)
    assert "ret" not in repr(settings)
    fake.stop()


def test_a_certificate_is_checked_by_the_authorities_that_are_named(tmp_path: Path) -> None:
    authority, context = trustme.CA(), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    named, other = tmp_path / "ca.pem", tmp_path / "other.pem"
    authority.cert_pem.write_to_path(named)
    trustme.CA().cert_pem.write_to_path(other)
    fake = FakeRegistry(tls=context)
    fake.start()
    fake.register("avro-value", "AVRO", LINE)
    assert Client(SchemaRegistrySettings(fake.url, tls_ca_file=str(named))).schema(1) is not None
    for wrong in (str(other), ""):
        with pytest.raises(RegistryUnavailableError, match="certificate verify failed"):
            Client(SchemaRegistrySettings(fake.url, tls_ca_file=wrong)).schema(1)
    fake.stop()


@pytest.mark.broker
@pytest.mark.xdist_group("registry")
def test_real_schemas_survive_a_kill(apicurio: Apicurio) -> None:
    number = apicurio.register("kept-value", "AVRO", LINE)
    apicurio.stop()
    with pytest.raises(RegistryUnavailableError):
        client(apicurio).schema(number)
    apicurio.start()
    assert client(apicurio).schema(number) is not None


@pytest.mark.broker
@pytest.mark.xdist_group("registry")
def test_what_the_serializers_of_confluent_write_is_read(apicurio: Apicurio) -> None:
    nested: Any = GetMessageClass(ProtobufDecoder(PROTOS, {})._root((1, 0)).message)
    with SchemaRegistryClient({"url": apicurio.url}) as registering:
        serializers = {
            "avro": AvroSerializer(registering, LINE),
            "protobuf": ProtobufSerializer(nested, registering, {"use.deprecated.format": False}),
            "json": JSONSerializer(WITH_TITLE, registering),
        }
        values: dict[str, Any] = {
            "avro": {"sku": "s-1"},
            "protobuf": nested(sku="s-1"),
            "json": {"sku": "s-1"},
        }
        for name, serializer in serializers.items():
            there = SerializationContext(f"orders-{name}", MessageField.VALUE)
            sent = serializer(values[name], there)
            with reading(apicurio) as read:
                assert read.document(sent).member(("sku",)) == "s-1", name
