"""Payloads by their schema id: known for ever, lacking for a while, and awaited."""

import struct
import subprocess
import sys
import threading

import pytest

from ringfence_service.config.model import SchemaRegistrySettings
from ringfence_service.config.validation import registry_problems
from ringfence_service.schemas import decoders
from ringfence_service.schemas import documents as module
from ringfence_service.schemas.documents import Documents, begin_transaction, connect, use
from ringfence_service.schemas.errors import RegistryUnavailableError, UndecodableError
from ringfence_service.schemas.limits import SCHEMA_CHARS_MAX
from ringfence_service.schemas.lookups import GRACE_S, Lookups
from ringfence_service.schemas.registry import RegisteredSchema
from tests.fakes.schema_registry import FakeSchemas, SteppedLookups, payload
from tests.support.helpers import rows, some

STRING = RegisteredSchema("AVRO", '"string"')


class World:
    """Documents on a clock that stands, and the registry behind them."""

    def __init__(self, *, waits: bool = True, **schemas: RegisteredSchema) -> None:
        self.now_s = 0.0
        self.registry, self.results = FakeSchemas(**schemas), list[str]()
        self.lookups = SteppedLookups(self.registry, lambda: self.now_s, self.results.append)
        self.documents = Documents(self.lookups, lambda: self.now_s, waits=waits)

    def text(self, sent: bytes) -> object:
        return self.documents.document(sent).member(())

    def begin(self, after_s: float) -> None:
        self.now_s += after_s
        self.documents.begin(self.now_s)


def test_a_schema_is_asked_for_once() -> None:
    world = World(_7=STRING)
    assert world.text(payload(7, b"\x02a")) == "a"
    assert world.text(payload(7, b"\x02b")) == "b"
    assert (world.registry.asked, world.results) == ([7], ["found"])


def test_one_payload_is_decoded_once_for_all_fields() -> None:
    documents, sent = World(_7=STRING).documents, payload(7, b"\x02a")
    assert documents.document(sent) is documents.document(sent)
    assert documents.document(bytes(bytearray(sent))) is not documents.document(sent)


def test_json_needs_no_more_of_its_schema_than_its_type() -> None:
    documents = World(_1=RegisteredSchema("JSON", "not looked at")).documents
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
    world = World(_7=STRING, _9=broken, _10=foreign)
    for _ in range(2):
        with pytest.raises(UndecodableError, match=cause):
            world.documents.document(sent)


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
    monkeypatch.setattr(decoders, "AvroDecoder", lambda *_: decoder)
    with pytest.raises(UndecodableError) as raised:
        World(_7=STRING).text(payload(7, b"secret"))
    kind = type(error).__name__
    assert str(raised.value) == f"cannot be read by its schema 7: its decoder failed ({kind})"


@pytest.mark.parametrize("of_member", [False, True])
@pytest.mark.parametrize("error", [MemoryError(), AssertionError(), ImportError(), OSError()])
def test_what_the_machine_or_the_program_lacks_is_no_fault_of_the_payload(
    error: Exception, monkeypatch: pytest.MonkeyPatch, *, of_member: bool
) -> None:
    decoder = Failing(error, of_member=of_member)
    monkeypatch.setattr(decoders, "AvroDecoder", lambda *_: decoder)
    with pytest.raises(type(error)):
        World(_7=STRING).text(payload(7, b""))


@pytest.mark.parametrize("error", FAILURES, ids=lambda each: type(each).__name__)
def test_whatever_making_a_decoder_raises_makes_the_schema_unusable_once(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(decoders, "AvroDecoder", fail)
    world = World(_7=STRING)
    for _ in range(2):
        with pytest.raises(UndecodableError, match="7, which cannot be used: its decoder failed"):
            world.text(payload(7, b""))
    assert (world.registry.asked, world.results) == ([7], ["unusable"])


def test_a_schema_is_limited_with_all_that_it_refers_to() -> None:
    half = " " * (SCHEMA_CHARS_MAX // 2)
    most = RegisteredSchema("AVRO", '"string"', (("a", f'"int"{half}'),))
    more = RegisteredSchema("AVRO", '"string"', (("a", f'"int"{half}'), ("b", f'"int"{half}')))
    world = World(_1=most, _2=more)
    assert world.text(payload(1, b"\x02a")) == "a"
    cause = "it has 1048594 characters with what it refers to, and 1048576 are the most"
    with pytest.raises(UndecodableError, match=f"has schema 2, which cannot be used: {cause}"):
        world.text(payload(2, b"\x02a"))


def test_the_characters_of_schemas_are_bounded_too(monkeypatch: pytest.MonkeyPatch) -> None:
    large = RegisteredSchema("AVRO", '"string"', (("a", '"int"' + " " * 40),))
    monkeypatch.setattr(module, "SCHEMAS_CHARS_MAX", 100)
    world = World(_1=large, _2=STRING, _3=STRING, _4=large)
    for number in (1, 2, 3, 1, 4, 3, 2, 4, 1):
        world.begin(0.1)
        assert world.text(payload(number, b"\x02a")) == "a"
    assert world.registry.asked == [1, 2, 3, 4, 1]


def test_an_unusable_schema_is_asked_for_once() -> None:
    world = World()
    world.registry.unusable[3] = "it refers to nothing"
    for _ in range(2):
        with pytest.raises(UndecodableError, match="has schema 3, which cannot be used: it refers"):
            world.text(payload(3, b""))
    assert (world.registry.asked, world.results) == ([3], ["unusable"])


def test_an_unknown_id_stays_unknown_for_some_seconds_and_is_asked_for_again() -> None:
    world = World()
    for after_s in (0.0, 1.0, module.UNKNOWN_S - 1):
        world.begin(after_s)
        with pytest.raises(UndecodableError, match="does not know"):
            world.text(payload(7, b"\x02a"))
    world.registry.schemas[7] = STRING
    assert world.registry.asked == [7]
    world.begin(0.1)
    assert world.text(payload(7, b"\x02a")) == "a"


def test_a_refused_id_is_refused_for_some_minutes_and_is_asked_for_again() -> None:
    world = World(waits=False)
    world.registry.refused[7] = "answered 403: no"
    for after_s in (0.0, GRACE_S):
        world.begin(after_s)
        with pytest.raises(RegistryUnavailableError):
            world.text(payload(7, b"\x02a"))
        world.lookups.step()
    for after_s in (0.0, module.REFUSED_S):
        world.begin(after_s)
        refuses = "has schema 7, which the registry refuses: it answered 403: no"
        with pytest.raises(UndecodableError, match=refuses):
            world.text(payload(7, b"\x02a"))
    world.registry.refused.clear()
    world.registry.schemas[7] = STRING
    world.begin(0.1)
    with pytest.raises(RegistryUnavailableError):
        world.text(payload(7, b"\x02a"))
    world.lookups.step()
    assert world.text(payload(7, b"\x02a")) == "a"


def test_what_is_kept_is_bounded_between_transactions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SCHEMAS_MAX", 2)
    monkeypatch.setattr(module, "LACKING_MAX", 2)
    world = World(_1=STRING, _2=STRING, _3=STRING)
    for number in (1, 2, 3, 1):
        assert world.text(payload(number, b"\x02a")) == "a"
    for number in (11, 12, 13, 11):
        with pytest.raises(UndecodableError):
            world.text(payload(number, b""))
    assert world.registry.asked == [1, 2, 3, 11, 12, 13]
    world.begin(0.1)
    for number in (3, 2, 1):
        assert world.text(payload(number, b"\x02a")) == "a"
    for number in (13, 12, 11):
        with pytest.raises(UndecodableError):
            world.text(payload(number, b""))
    assert world.registry.asked == [1, 2, 3, 11, 12, 13, 1, 11]


def test_a_registry_without_an_answer_is_no_fault_of_the_payload() -> None:
    world = World(_7=STRING)
    world.registry.away = "does not answer (Refused)"
    with pytest.raises(RegistryUnavailableError, match="the schema registry at http://r") as error:
        world.text(payload(7, b"\x02a"))
    assert str(error.value).endswith("which does not answer (Refused)")
    assert error.value.awaits() == str(error.value)
    world.registry.away = ""
    world.now_s += 5
    assert error.value.awaits() is None
    assert world.text(payload(7, b"\x02a")) == "a"
    assert world.results == ["failed", "found"]


def columns(*numbers: int) -> list[list[bytes | None]]:
    return [[payload(number, b"\x02a") for number in numbers]]


def test_the_schemas_of_records_to_come_are_asked_for_together() -> None:
    world = World(waits=False, _7=STRING, _8=STRING)
    unread = some(world.documents.unread(columns(7, 8, 9, 7), "orders"))
    assert (unread.row, unread.sentence) == (
        0,
        "the schema registry at http://registry, which has not returned schema 7 yet",
    )
    assert unread.awaits() is None
    assert world.registry.asked == [7, 8, 9]
    assert world.documents.unread(columns(7, 8, 9, 7), "orders") is None


def test_what_has_no_schema_id_is_not_waited_for() -> None:
    world = World(waits=False, _7=STRING)
    told = [[None, b"", b"\0\0\0", b'{"id": 1}', payload(0, b""), payload(2**31, b"")]]
    assert world.documents.unread(told, "orders") is None
    assert world.documents.unread([[payload(7, b"")]], "orders") is not None


def test_the_first_row_of_all_columns_is_the_one_that_waits() -> None:
    world = World(waits=False, _1=STRING)
    world.documents.unread(columns(1), "orders")
    world.lookups.step()
    keys, values = columns(1, 1, 8), columns(1, 9, 1)
    assert some(world.documents.unread([*keys, *values], "orders")).row == 1


def test_a_partition_waits_a_moment_for_records_to_come_and_no_longer() -> None:
    world = World(waits=False, _1=STRING)
    world.registry.refused[2] = "answered 403: no"
    unread = some(world.documents.unread(columns(1, 2), "orders"))
    assert "has not returned schema 2: it answered 403: no" in some(unread.awaits())
    world.now_s += module.AHEAD_S
    assert unread.awaits() is None
    again = some(world.documents.unread(columns(1, 2), "orders"))
    assert again.row == 1
    world.now_s += 5
    assert again.awaits() is not None


def test_a_partition_looks_so_far_ahead_and_no_further(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "AHEAD_MAX", 3)
    world = World(waits=False)
    world.documents.unread(columns(*range(1, 10)), "orders")
    world.lookups.step()
    assert world.registry.asked == [1, 2, 3]


def test_an_id_that_a_route_may_not_want_yet_is_wanted_a_moment_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("ringfence_service.schemas.lookups.WANTED_MAX", 1)
    world = World(waits=False, _1=STRING, _2=STRING)
    world.lookups.is_held = True
    world.documents.unread(columns(1), "orders")
    unread = some(world.documents.unread(columns(2), "orders"))
    assert unread.awaits() is not None
    world.now_s += module.AHEAD_S
    assert unread.awaits() is None


def test_without_a_loop_a_payload_waits_for_its_schema() -> None:
    registry = FakeSchemas(_7=STRING)
    lookups = Lookups(registry.url, lambda: registry)
    documents = Documents(lookups, waits=True)
    found = list[object]()
    threads = [
        threading.Thread(
            target=lambda: found.append(documents.document(payload(7, b"\x02a")).member(()))
        )
        for _ in range(4)
    ]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    documents.close()
    assert (found, registry.asked) == (["a"] * 4, [7])


def test_who_has_no_such_field_imports_nothing_for_it() -> None:
    names = "httpx2", "google.protobuf", "proto_schema_parser", "certifi"
    code = (
        "import sys, ringfence_service.supervisor.worker_process;"
        "import ringfence_service.schemas.documents as d;"
        "import ringfence_service.config.model as s;"
        "d.connect(s.SchemaRegistrySettings('http://registry:8081'));"
        f"sys.exit(any(name.startswith({names!r}) for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_without_the_extra_a_registry_is_refused_with_what_to_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert list(registry_problems(SchemaRegistrySettings("http://r"))) == []
    monkeypatch.setattr("ringfence_service.config.validation.find_spec", lambda _name: None)
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
