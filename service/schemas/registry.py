"""Schema registry: reads the schema of an id, and the schemas that it refers to.

Every request has a time limit and is not repeated: the loop decides when to ask again. The client
is that of confluent-kafka, and is imported only if a registry is configured.
"""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol
from urllib.parse import urlsplit

from service.config.model import SchemaRegistrySettings
from service.schemas.errors import RegistryUnavailableError, SchemaUnusableError

if TYPE_CHECKING:
    from confluent_kafka.schema_registry import Schema

_UNKNOWN_CODES: Final = frozenset({40401, 40402, 40403})
"""Error codes of a 404 for an unknown subject, version or schema. Others mean a wrong URL."""
_REFERENCES_MAX: Final = 200
_CAUSE_CHARS_MAX: Final = 200


class RegisteredSchema(NamedTuple):
    """A schema with the texts of all schemas that it refers to."""

    kind: str
    """AVRO, PROTOBUF, JSON, or another type of the registry."""
    text: str
    references: tuple[tuple[str, str], ...] = ()
    """Name and text of each, after those that it refers to."""


class SchemaRegistry(Protocol):
    """Where schemas are registered."""

    @property
    def url(self) -> str:
        """Its URL, for people."""

    def schema(self, number: int) -> RegisteredSchema | None:
        """Return the schema of an id; None if the registry has no such id.

        RegistryUnavailableError if the registry does not answer; SchemaUnusableError if a schema
        that this one refers to is missing.
        """

    def close(self) -> None:
        """Close its connections."""


class ConfluentRegistry:
    """A registry with the API of Confluent Schema Registry."""

    def __init__(
        self, settings: SchemaRegistrySettings, on_request: Callable[[], None] = lambda: None
    ) -> None:
        """`on_request` is called before and after each request."""
        from confluent_kafka.schema_registry import SchemaRegistryClient, SchemaRegistryError

        parts = urlsplit(settings.url)
        self.url = f"{parts.scheme}://{parts.netloc}{parts.path}"
        """Its URL, for people."""
        self._on_request = on_request
        self._refusal = SchemaRegistryError
        properties: dict[str, Any] = {
            "url": settings.url,
            "timeout": settings.timeout_ms / 1000,
            "max.retries": 0,
            "cache.capacity": 1,
        }
        if settings.user:
            properties["basic.auth.user.info"] = f"{settings.user}:{settings.password}"
        if settings.tls_ca_file:
            properties["ssl.ca.location"] = settings.tls_ca_file
        self._client = SchemaRegistryClient(properties)

    def schema(self, number: int) -> RegisteredSchema | None:
        """Return the schema of an id, as the protocol says."""
        found = self._asked(lambda: self._client.get_schema(number))
        if found is None:
            return None
        references: dict[str, str] = {}
        self._collect(found, references)
        return RegisteredSchema(_kind(found), self._text(found), tuple(references.items()))

    def check(self) -> None:
        """Raise RegistryUnavailableError if the registry does not answer."""
        self._asked(self._client.get_schema_types)

    def close(self) -> None:
        """Close its connections."""
        self._client.close()

    def _collect(self, schema: "Schema", found: dict[str, str]) -> None:
        """Add the texts that a schema refers to, each after those that it refers to itself."""
        for each in schema.references or ():
            name, subject, version = str(each.name), str(each.subject), int(each.version or 0)
            if name in found:
                continue
            if len(found) >= _REFERENCES_MAX:
                raise SchemaUnusableError(f"it refers to more than {_REFERENCES_MAX} schemas")
            found[name] = ""  # so that a circle ends
            read = self._asked(partial(self._client.get_version, subject, version))
            if read is None:
                raise SchemaUnusableError(
                    f"it refers to version {version} of {subject}, which the registry lacks"
                )
            self._collect(read.schema, found)
            del found[name]
            found[name] = self._text(read.schema)

    def _text(self, schema: "Schema") -> str:
        if not isinstance(schema.schema_str, str):
            raise RegistryUnavailableError(self.url, "answers without a schema")
        return schema.schema_str

    def _asked(self, ask: Callable[[], Any]) -> Any:
        """Return the answer; None if the registry says that it has none."""
        self._on_request()
        try:
            answer = ask()
        except self._refusal as refused:
            if refused.http_status_code == 404 and refused.error_code in _UNKNOWN_CODES:
                return None
            cause = f"answered {refused.http_status_code}: {refused.error_message}"
        except Exception as error:  # noqa: BLE001 - of the HTTP client, or of an answer without JSON
            text = str(error) or "no answer in time"
            cause = f"does not answer ({type(error).__name__}: {text})"
        else:
            return answer
        finally:
            self._on_request()
        raise RegistryUnavailableError(self.url, cause[:_CAUSE_CHARS_MAX])


def _kind(schema: "Schema") -> str:
    return str(schema.schema_type or "AVRO")
