"""Payloads by their schema id: known for ever, unknown for a while, and unavailable."""

import struct
import subprocess
import sys

import pytest

from service.config.model import SchemaRegistrySettings
from service.config.validation import registry_problems
from service.schemas import documents as module
from service.schemas.documents import Documents, begin_transaction, connect, use
from service.schemas.errors import (
    RegistryUnavailableError,
    SchemaUnusableError,
    SlowRegistryError,
    UndecodableError,
)
from service.schemas.limits import SCHEMA_CHARS_MAX
from service.schemas.registry import RegisteredSchema
from tests.fakes.schema_registry import payload
from tests.support.helpers import rows

STRING = RegisteredSchema("AVRO", '"string"')


class Registry:
    """Schemas by id; what it was asked for."""

    url = "http://registry"

    def __init__(self, **schemas: RegisteredSchema) -> None:
        self.schemas = {int(name[1:]): schema for name, schema in schemas.items()}
        self.asked: list[int] = []
        self.failure: Exception | None = None

    def schema(self, number: int) -> RegisteredSchema | None:
        self.asked.append(number)
        if self.failure is not None:
            raise self.failure
        return self.schemas.get(number)

    def close(self) -> None:
        pass


def text(documents: Documents, sent: bytes) -> object:
    return documents.document(sent).member(())


def test_a_schema_is_asked_for_once() -> None:
    registry, results = Registry(_7=STRING), list[str]()
    documents = Documents(registry, results.append)
    assert text(documents, payload(7, b"\x02a")) == "a"
    assert text(documents, payload(7, b"\x02b")) == "b"
    assert (registry.asked, results) == ([7], ["found"])


def test_one_payload_is_decoded_once_for_all_fields() -> None:
    documents, sent = Documents(Registry(_7=STRING)), payload(7, b"\x02a")
    assert documents.document(sent) is documents.document(sent)
    assert documents.document(bytes(bytearray(sent))) is not documents.document(sent)


def test_json_needs_no_more_of_its_schema_than_its_type() -> None:
    documents = Documents(Registry(_1=RegisteredSchema("JSON", "not looked at")))
    assert documents.document(payload(1, b'{"id": 1.0}')).member(("id",)) == "1.0"
    with pytest.raises(UndecodableError, match="its schema 1: it is not JSON from character 0 on"):
        documents.document(payload(1, b"x"))


@rows(
    ("sent", "cause"),
    {
        "nothing": (b"", "does not begin with a zero byte and the id of a schema"),
        "JSON": (b'{"id": 1}', "does not begin with a zero byte and the id of a schema"),
        "half an id": (b"\0\0\0\0", "does not begin with a zero byte and the id of a schema"),
        "an id beyond all": (payload(2**31, b""), "has schema 2147483648, which the registry"),
        "no id": (payload(0, b""), "has schema 0, which the registry does not know"),
        "unknown": (payload(8, b""), "has schema 8, which the registry does not know"),
        "cut": (payload(7, b""), "cannot be read by its schema 7: it ends too early"),
        "no schema": (payload(9, b""), "has schema 9, which cannot be used: it is not an Avro"),
        "another type": (payload(10, b""), "it is of type XML, which Ringfence does not read"),
    },
)
def test_the_cause_says_what_is_wrong_with_a_payload(sent: bytes, cause: str) -> None:
    broken, foreign = RegisteredSchema("AVRO", "x"), RegisteredSchema("XML", "")
    documents = Documents(Registry(_7=STRING, _9=broken, _10=foreign))
    for _ in range(2):
        with pytest.raises(UndecodableError, match=cause):
            documents.document(sent)


class Failing:
    """A decoder that fails with an error, of a document or of a member."""

    def __init__(self, error: BaseException, *, of_member: bool) -> None:
        self._error, self._of_member = error, of_member

    def document(self, _body: bytes) -> object:
        if not self._of_member:
            raise self._error
        return None

    def member(self, _document: object, _tokens: object) -> object:
        raise self._error


FAILURES = (
    ValueError("Exceeds the limit (4300 digits) for integer string conversion"),
    UnicodeDecodeError("utf-8", b"secret", 0, 1, "x"),
    *(OverflowError(), RecursionError(), KeyError("secret"), TypeError(), struct.error()),
)


@pytest.mark.parametrize("of_member", [False, True])
@pytest.mark.parametrize("error", FAILURES, ids=lambda each: type(each).__name__)
def test_whatever_a_decoder_raises_makes_the_payload_undecodable(
    error: Exception, monkeypatch: pytest.MonkeyPatch, *, of_member: bool
) -> None:
    decoder = Failing(error, of_member=of_member)
    monkeypatch.setattr(module, "AvroDecoder", lambda *_: decoder)
    with pytest.raises(UndecodableError) as raised:
        text(Documents(Registry(_7=STRING)), payload(7, b"secret"))
    kind = type(error).__name__
    assert str(raised.value) == f"cannot be read by its schema 7: its decoder failed ({kind})"


@pytest.mark.parametrize("of_member", [False, True])
@pytest.mark.parametrize("error", [MemoryError(), AssertionError(), ImportError(), OSError()])
def test_what_the_machine_or_the_program_lacks_is_no_fault_of_the_payload(
    error: Exception, monkeypatch: pytest.MonkeyPatch, *, of_member: bool
) -> None:
    decoder = Failing(error, of_member=of_member)
    monkeypatch.setattr(module, "AvroDecoder", lambda *_: decoder)
    with pytest.raises(type(error)):
        text(Documents(Registry(_7=STRING)), payload(7, b""))


@pytest.mark.parametrize("error", FAILURES, ids=lambda each: type(each).__name__)
def test_whatever_making_a_decoder_raises_makes_the_schema_unusable_once(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(module, "AvroDecoder", fail)
    registry, results = Registry(_7=STRING), list[str]()
    documents = Documents(registry, results.append)
    for _ in range(2):
        with pytest.raises(UndecodableError, match="7, which cannot be used: its decoder failed"):
            documents.document(payload(7, b""))
    assert (registry.asked, results) == ([7], ["unusable"])


def test_a_schema_is_limited_with_all_that_it_refers_to() -> None:
    half = " " * (SCHEMA_CHARS_MAX // 2)
    most = RegisteredSchema("AVRO", '"string"', (("a", f'"int"{half}'),))
    more = RegisteredSchema("AVRO", '"string"', (("a", f'"int"{half}'), ("b", f'"int"{half}')))
    documents = Documents(Registry(_1=most, _2=more))
    assert text(documents, payload(1, b"\x02a")) == "a"
    cause = "it has 1048594 characters with what it refers to, and 1048576 are the most"
    with pytest.raises(UndecodableError, match=f"has schema 2, which cannot be used: {cause}"):
        documents.document(payload(2, b"\x02a"))


def test_an_unusable_schema_is_asked_for_once() -> None:
    registry, results = Registry(), list[str]()
    registry.failure = SchemaUnusableError("it refers to nothing")
    documents = Documents(registry, results.append)
    for _ in range(2):
        with pytest.raises(UndecodableError, match="has schema 3, which cannot be used: it refers"):
            documents.document(payload(3, b""))
    assert (registry.asked, results) == ([3], ["unusable"])


def test_an_unknown_id_stays_unknown_for_some_seconds_and_is_asked_for_again() -> None:
    registry = Registry()
    documents = Documents(registry)
    for now_s in (0.0, 1.0, 1.0 + module.UNKNOWN_S):
        documents.begin(now_s)
        with pytest.raises(UndecodableError, match="does not know"):
            documents.document(payload(7, b"\x02a"))
    registry.schemas[7] = STRING
    assert registry.asked == [7]
    documents.begin(1.1 + module.UNKNOWN_S)
    assert text(documents, payload(7, b"\x02a")) == "a"
    documents.begin(100.0)


def test_many_unknown_ids_are_not_kept_beyond_a_transaction(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "UNKNOWN_MAX", 2)
    registry = Registry()
    documents = Documents(registry)
    for number in (1, 2, 3, 1):
        with pytest.raises(UndecodableError):
            documents.document(payload(number, b""))
    assert registry.asked == [1, 2, 3]
    documents.begin(0.0)
    documents.begin(0.1)
    with pytest.raises(UndecodableError):
        documents.document(payload(1, b""))
    assert registry.asked == [1, 2, 3, 1]


def test_schemas_are_bounded_and_the_oldest_is_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SCHEMAS_MAX", 2)
    registry = Registry(_1=STRING, _2=STRING, _3=STRING)
    documents = Documents(registry)
    for number in (1, 2, 3, 3, 2, 1):
        assert text(documents, payload(number, b"\x02a")) == "a"
    assert registry.asked == [1, 2, 3, 1]


def test_the_characters_of_schemas_are_bounded_too(monkeypatch: pytest.MonkeyPatch) -> None:
    large = RegisteredSchema("AVRO", '"string"', (("a", '"int"' + " " * 40),))
    monkeypatch.setattr(module, "SCHEMAS_CHARS_MAX", 100)
    registry = Registry(_1=large, _2=STRING, _3=STRING, _4=large)
    documents = Documents(registry)
    for number in (1, 2, 3, 1, 4, 3, 2, 4, 1):
        assert text(documents, payload(number, b"\x02a")) == "a"
    assert registry.asked == [1, 2, 3, 4, 1]


def test_look_ups_that_take_long_end_a_transaction_and_the_next_one_goes_on() -> None:
    registry, now_s = Registry(_1=STRING, _2=STRING, _3=STRING), iter(range(0, 100, 3))
    documents = Documents(registry, monotonic_s=lambda: float(next(now_s)))
    documents.begin(0.0)
    for number in (1, 2, 1):
        assert text(documents, payload(number, b"\x02a")) == "a"
    with pytest.raises(SlowRegistryError, match="at http://registry, which took 6 s for the"):
        documents.document(payload(3, b"\x02a"))
    assert text(documents, payload(2, b"\x02a")) == "a"
    documents.begin(0.0)
    assert text(documents, payload(3, b"\x02a")) == "a"
    assert registry.asked == [1, 2, 3]


def test_outside_of_transactions_look_ups_may_take_long() -> None:
    registry, now_s = Registry(), iter(range(0, 100, 9))
    documents = Documents(registry, monotonic_s=lambda: float(next(now_s)))
    for number in (1, 2, 3):
        with pytest.raises(UndecodableError):
            documents.document(payload(number, b""))
    assert registry.asked == [1, 2, 3]


def test_a_registry_without_an_answer_is_no_fault_of_the_payload() -> None:
    registry, results = Registry(_7=STRING), list[str]()
    registry.failure = RegistryUnavailableError("http://r", "does not answer (Refused)")
    documents = Documents(registry, results.append)
    with pytest.raises(RegistryUnavailableError, match="the schema registry at http://r, which"):
        documents.document(payload(7, b"\x02a"))
    registry.failure = None
    assert text(documents, payload(7, b"\x02a")) == "a"
    assert results == ["failed", "found"]


def test_who_has_no_such_field_imports_nothing_for_it() -> None:
    names = "authlib", "google.protobuf", "proto_schema_parser", "confluent_kafka.schema_registry"
    code = (
        "import sys, service.supervisor.worker_process, service.schemas.documents as d;"
        "import service.config.model as s;"
        "d.connect(s.SchemaRegistrySettings('http://registry:8081'));"
        f"sys.exit(any(name.startswith({names!r}) for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_without_the_extra_a_registry_is_refused_with_what_to_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert list(registry_problems(SchemaRegistrySettings("http://r"))) == []
    monkeypatch.setattr("service.config.validation.find_spec", lambda _name: None)
    (problem,) = registry_problems(SchemaRegistrySettings("http://r"))
    assert 'pip install "ringfence-server[schema-registry]"' in problem.fix
    assert "pip install --require-hashes -r requirements/schema-registry.txt" in problem.fix
    assert list(registry_problems(SchemaRegistrySettings())) == []


def test_without_a_registry_no_payload_is_read() -> None:
    use(None)
    connect(SchemaRegistrySettings())
    begin_transaction(0.0)
    with pytest.raises(AssertionError, match="without one"):
        module.documents()
