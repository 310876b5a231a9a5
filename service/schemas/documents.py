"""Documents: decodes payloads by the schemas that they name, and keeps the schemas.

The schema of an id never changes, so a kept one stays valid. An id that the registry does not know
stays unknown at least until the next transaction begins, so all checks of a record agree.
What a schema or a payload may ask for is limited (`limits.py`). Whatever else a decoder raises
concerns that schema or payload alone.
"""

import time
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, Protocol

from service.config.model import SchemaRegistrySettings
from service.schemas.avro import AvroDecoder
from service.schemas.errors import SchemaUnusableError, SlowRegistryError, UndecodableError
from service.schemas.json_text import JsonDecoder
from service.schemas.limits import SCHEMA_CHARS_MAX
from service.schemas.protobuf import ProtobufDecoder
from service.schemas.registry import ConfluentRegistry, RegisteredSchema, SchemaRegistry

SCHEMAS_MAX: Final = 1_000
"""How many schemas are kept. The oldest makes room, and is read again when it is needed."""
SCHEMAS_CHARS_MAX: Final = 33_554_432
"""Characters of all schemas that are kept. A decoder takes some ten bytes of memory for each."""
LOOKUPS_S: Final = 5.0
"""How long the look-ups of one transaction may take. Meanwhile the loop does nothing else."""
UNKNOWN_MAX: Final = 10_000
UNKNOWN_S: Final = 10.0
"""How long an id that the registry did not know counts as unknown."""

_HEADER_BYTES: Final = 5
_ID_MAX: Final = 2**31 - 1
"""Registries number their schemas with positive integers of 32 bits."""
_NOT_OF_THE_DATA: Final = (AssertionError, ImportError, MemoryError, OSError)
"""Errors of the program and the machine. Decoders compare lengths with the data before they
allocate anything, so a lack of memory is the machine's.
"""
_CAUSE_CHARS_MAX: Final = 200


class Decoder(Protocol):
    """Reads payloads of one schema."""

    def document(self, body: bytes) -> object:
        """Return a payload without its header as a document, or raise UndecodableError."""

    def member(self, document: object, tokens: Sequence[str]) -> object:
        """Return what the tokens of a JSON pointer name in a document, or raise UndecodableError.

        That is text (a finite number as text too), a boolean, a dict or list with any content, a
        number that is not finite, or None if there is nothing.
        """


class DecodedPayload(NamedTuple):
    """A decoded payload."""

    number: int
    """The id of its schema."""
    decoder: Decoder
    content: object

    def member(self, tokens: Sequence[str]) -> object:
        """Return what the tokens of a pointer name, as `Decoder.member` does."""
        try:
            return self.decoder.member(self.content, tokens)
        except _NOT_OF_THE_DATA:
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is, it is of this payload
            raise _undecodable(self.number, error) from None


class Documents:
    """Decodes payloads, and keeps the decoders of schemas and the last payload."""

    def __init__(
        self,
        registry: SchemaRegistry,
        on_lookup: Callable[[str], None] = lambda _result: None,
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """`on_lookup` gets the result of each look-up: found, unknown, unusable or failed."""
        self._monotonic_s = monotonic_s
        self._spent_s: float | None = None
        """How long the look-ups of this transaction took; None outside of transactions."""
        self._registry = registry
        self._on_lookup = on_lookup
        self._decoders: dict[int, Decoder | str] = {}
        """By schema id: the decoder, or why no payload of that schema can be read."""
        self._chars: dict[int, int] = {}
        """By the same ids: the characters of what the decoder was made from."""
        self._unknown: dict[int, None] = {}
        self._unknown_since_s: float | None = None
        self._last: tuple[bytes, DecodedPayload] | None = None

    def begin(self, now_s: float) -> None:
        """Begin a transaction: look ids up again that were unknown some time ago."""
        self._spent_s = 0.0
        if not self._unknown:
            self._unknown_since_s = None
        elif self._unknown_since_s is None:
            self._unknown_since_s = now_s
        elif now_s - self._unknown_since_s > UNKNOWN_S or len(self._unknown) > UNKNOWN_MAX:
            self._unknown.clear()
            self._unknown_since_s = None

    def close(self) -> None:
        """Close the registry."""
        self._registry.close()

    def document(self, payload: bytes) -> DecodedPayload:
        """Return a payload as a document.

        UndecodableError if the payload is at fault; RegistryUnavailableError if the registry does
        not answer; SlowRegistryError if the answers of this transaction took too long.
        """
        last = self._last
        if last is not None and last[0] is payload:
            return last[1]
        number = schema_id(payload)
        decoder = self._decoders.get(number)
        if decoder is None:
            decoder = self._looked_up(number)
        if isinstance(decoder, str):
            raise UndecodableError(decoder)
        try:
            content = decoder.document(payload[_HEADER_BYTES:])
        except _NOT_OF_THE_DATA:
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is, it is of this payload
            raise _undecodable(number, error) from None
        found = DecodedPayload(number, decoder, content)
        self._last = (payload, found)
        return found

    def _looked_up(self, number: int) -> Decoder | str:
        unknown = f"has schema {number}, which the registry does not know"
        if number in self._unknown or not 0 < number <= _ID_MAX:
            return unknown
        if self._spent_s is not None and self._spent_s > LOOKUPS_S:
            cause = f"took {self._spent_s:.0f} s for the schemas of one transaction"
            raise SlowRegistryError(self._registry.url, cause)
        began_s = self._monotonic_s()
        try:
            return self._asked(number) or unknown
        finally:
            if self._spent_s is not None:
                self._spent_s += self._monotonic_s() - began_s

    def _asked(self, number: int) -> Decoder | str | None:
        """Ask the registry for a schema, and keep the answer; None if the id is unknown."""
        decoder: Decoder | str
        chars = 0
        try:
            schema = self._registry.schema(number)
            if schema is None:
                self._unknown[number] = None
                self._on_lookup("unknown")
                return None
            decoder = decoder_of(schema)
            chars = chars_of(schema)
        except SchemaUnusableError as error:
            self._on_lookup("unusable")
            decoder = f"has schema {number}, which cannot be used: {error}"
        except BaseException:
            self._on_lookup("failed")
            raise
        else:
            self._on_lookup("found")
        self._decoders[number], self._chars[number] = decoder, chars
        while len(self._decoders) > SCHEMAS_MAX or sum(self._chars.values()) > SCHEMAS_CHARS_MAX:
            oldest = next(iter(self._decoders))
            del self._decoders[oldest], self._chars[oldest]
        return decoder


def schema_id(payload: bytes) -> int:
    """Return the schema id that a payload begins with; UndecodableError if there is none."""
    if len(payload) < _HEADER_BYTES or payload[0] != 0:
        raise UndecodableError("does not begin with a zero byte and the id of a schema")
    return int.from_bytes(payload[1:_HEADER_BYTES])


def _undecodable(number: int, error: Exception) -> UndecodableError:
    """Return why a payload has no members, from what its decoder raised."""
    kind = type(error).__name__
    cause = error if isinstance(error, UndecodableError) else f"its decoder failed ({kind})"
    return UndecodableError(f"cannot be read by its schema {number}: {cause}")


def chars_of(schema: RegisteredSchema) -> int:
    """Return how many characters a schema has, with all schemas that it refers to."""
    return len(schema.text) + sum(len(text) for _, text in schema.references)


def decoder_of(schema: RegisteredSchema) -> Decoder:
    """Return the decoder of a schema; SchemaUnusableError if it cannot be used."""
    if schema.kind == "JSON":
        return JsonDecoder()
    chars = chars_of(schema)
    if chars > SCHEMA_CHARS_MAX:
        raise SchemaUnusableError(
            f"it has {chars} characters with what it refers to, and {SCHEMA_CHARS_MAX} are the most"
        )
    try:
        match schema.kind:
            case "AVRO":
                return AvroDecoder(schema.text, [text for _, text in schema.references])
            case "PROTOBUF":
                return ProtobufDecoder(schema.text, dict(schema.references))
            case kind:
                raise SchemaUnusableError(f"it is of type {kind}, which Ringfence does not read")
    except (SchemaUnusableError, *_NOT_OF_THE_DATA):
        raise
    except Exception as error:  # noqa: BLE001 - whatever it is, it is of this schema
        cause = f"its decoder failed ({type(error).__name__}: {error})"[:_CAUSE_CHARS_MAX]
        raise SchemaUnusableError(cause) from None


_of_process: list[Documents] = []


def connect(
    settings: SchemaRegistrySettings,
    on_request: Callable[[], None] = lambda: None,
    on_lookup: Callable[[str], None] = lambda _result: None,
) -> None:
    """Have this process read schemas from a registry, if one is configured."""
    if settings.url:
        use(Documents(_Lazy(settings, on_request), on_lookup))


def use(documents: Documents | None) -> None:
    """Make all fields of this process use these documents; None if there is no registry."""
    for each in _of_process:
        each.close()
    _of_process[:] = [] if documents is None else [documents]


def documents() -> Documents:
    """Return the documents of this process."""
    assert _of_process, "a field that needs a registry was read without one"
    return _of_process[0]


def begin_transaction(now_s: float) -> None:
    """Tell the documents of this process, if it has any, that a transaction begins."""
    for each in _of_process:
        each.begin(now_s)


class _Lazy:
    """The configured registry, whose client is imported with the first request."""

    def __init__(self, settings: SchemaRegistrySettings, on_request: Callable[[], None]) -> None:
        self.url = settings.url
        self._settings, self._on_request = settings, on_request
        self._made: SchemaRegistry | None = None

    def schema(self, number: int) -> RegisteredSchema | None:
        return self._registry.schema(number)

    def close(self) -> None:
        if self._made is not None:
            self._made.close()

    @property
    def _registry(self) -> SchemaRegistry:
        if self._made is None:
            self._made = ConfluentRegistry(self._settings, self._on_request)
        return self._made
