"""Decoders: what reads the payloads of one schema, by the type of the schema."""

from collections.abc import Sequence
from typing import Final, Protocol

from ringfence_service.schemas.avro import AvroDecoder
from ringfence_service.schemas.errors import SchemaUnusableError
from ringfence_service.schemas.json_text import JsonDecoder
from ringfence_service.schemas.limits import SCHEMA_CHARS_MAX
from ringfence_service.schemas.protobuf import ProtobufDecoder
from ringfence_service.schemas.registry import RegisteredSchema

NOT_OF_THE_DATA: Final = (AssertionError, ImportError, MemoryError, OSError)
"""Errors of the program and the machine. Decoders compare lengths with the data before they
allocate anything, so a lack of memory is the machine's.
"""
_CAUSE_CHARS_MAX: Final = 200
"""How much of an error's text is kept: it may quote a schema of a million characters."""


class Decoder(Protocol):
    """Reads payloads of one schema."""

    def document(self, body: bytes) -> object:
        """Return a payload without its header as a document, or raise UndecodableError."""

    def member(self, document: object, tokens: Sequence[str]) -> object:
        """Return what the tokens of a JSON pointer name in a document, or raise UndecodableError.

        That is text (a finite number as text too), a boolean, a dict or list with any content, a
        number that is not finite, or None if there is nothing.
        """


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
    except (SchemaUnusableError, *NOT_OF_THE_DATA):
        raise
    except Exception as error:  # noqa: BLE001 - whatever it is, it is of this schema
        cause = f"its decoder failed ({type(error).__name__}: {error})"[:_CAUSE_CHARS_MAX]
        raise SchemaUnusableError(cause) from None
