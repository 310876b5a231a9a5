"""Schema registry: reads the schema of an id, and the schemas that it refers to.

Whatever the registry sends, a request ends within its limits of time and bytes. None is repeated,
and no redirect is followed: who asks decides when to ask again. The HTTP client is imported only if
a registry is configured.
"""

import asyncio
import json
import os
import ssl
from collections.abc import Mapping
from typing import Any, Final, NamedTuple, Protocol
from urllib.parse import quote, urlsplit

from ringfence_service.config.model import SchemaRegistrySettings
from ringfence_service.schemas.errors import RegistryUnavailableError, SchemaUnusableError
from ringfence_service.schemas.limits import SCHEMA_CHARS_MAX

LOOKUP_S: Final = 20.0
"""How long the requests for a schema and for those that it refers to may take together."""
ANSWER_BYTES_MAX: Final = 1024 * 1024
"""Largest response. A registry keeps a schema in a record of Kafka, by default at most as large."""

_UNKNOWN_CODES: Final = frozenset({40401, 40402, 40403})
"""Error codes of a 404 for an unknown subject, version or schema. Others mean a wrong URL."""
_REFERENCES_MAX: Final = 200
"""How many schemas one may refer to, directly or not: each takes a request within `LOOKUP_S`.

They are read recursively, so it also limits the depth.
"""
_CAUSE_CHARS_MAX: Final = 200
"""How much of a cause is kept: it may quote a response of a million bytes."""
_HEADERS: Final = {
    "Accept": "application/vnd.schemaregistry.v1+json, application/json",
    "Accept-Encoding": "identity",  # the limit of bytes is one of memory too
}


class RegisteredSchema(NamedTuple):
    """A schema with the texts of all schemas that it refers to."""

    kind: str
    """AVRO, PROTOBUF, JSON, or another type of the registry."""
    text: str
    references: tuple[tuple[str, str], ...] = ()
    """Name and text of each, after those that it refers to."""


class SchemaRegistry(Protocol):
    """Where schemas are registered; all requests are made on one event loop."""

    @property
    def url(self) -> str:
        """Its URL, for people."""

    async def schema(self, number: int) -> RegisteredSchema | None:
        """Return the schema of an id; None if the registry has no such id.

        RegistryUnavailableError without a usable answer; SchemaUnusableError if a schema that this
        one refers to is missing.
        """

    async def probe(self, number: int) -> None:
        """Raise RegistryUnavailableError if it does not say whether it has an id."""

    async def close(self) -> None:
        """Close its connections."""


class ConfluentRegistry:
    """A registry with the API of Confluent Schema Registry."""

    def __init__(self, settings: SchemaRegistrySettings) -> None:
        import certifi
        import httpx2

        self.url = url_for_people(settings.url)
        """Its URL, for people."""
        self._base = settings.url.rstrip("/")
        self._timeout_s = settings.timeout_ms / 1000
        authorities = settings.tls_ca_file or os.environ.get("SSL_CERT_FILE") or certifi.where()
        self._client = httpx2.AsyncClient(
            auth=(settings.user, settings.password) if settings.user else None,
            headers=_HEADERS,
            verify=ssl.create_default_context(cafile=authorities),
            timeout=None,
            follow_redirects=False,
        )

    async def schema(self, number: int) -> RegisteredSchema | None:
        """Return the schema of an id, as the protocol says."""
        try:
            async with asyncio.timeout(LOOKUP_S):
                found = await self._asked(f"schemas/ids/{number}")
                return None if found is None else await self._whole(found)
        except TimeoutError:
            raise self._unavailable(f"does not answer within {LOOKUP_S:g} s") from None

    async def probe(self, number: int) -> None:
        """Ask for an id, as the protocol says."""
        await self._asked(f"schemas/ids/{number}")

    async def check(self) -> None:
        """Raise RegistryUnavailableError if the registry does not answer."""
        if await self._asked("schemas/types", is_object=False) is None:
            raise self._unavailable("answered 404")

    async def close(self) -> None:
        """Close its connections."""
        await self._client.aclose()

    async def _whole(self, schema: Mapping[str, Any]) -> RegisteredSchema:
        kind, references = str(schema.get("schemaType") or "AVRO"), dict[str, str]()
        if kind != "JSON":  # of which only the type is needed
            await self._collect(schema, references, {"left": SCHEMA_CHARS_MAX})
        return RegisteredSchema(kind, self._text(schema), tuple(references.items()))

    async def _collect(
        self, schema: Mapping[str, Any], found: dict[str, str], room: dict[str, int]
    ) -> None:
        """Add the texts that a schema refers to, each after those that it refers to itself."""
        room["left"] -= len(self._text(schema))
        if room["left"] < 0:
            cause = f"it has more than {SCHEMA_CHARS_MAX} characters with what it refers to"
            raise SchemaUnusableError(cause)
        for name, subject, version in self._references(schema):
            if name in found:
                continue
            if len(found) >= _REFERENCES_MAX:
                raise SchemaUnusableError(f"it refers to more than {_REFERENCES_MAX} schemas")
            found[name] = ""  # so that a circle ends
            read = await self._asked(f"subjects/{quote(subject, safe='')}/versions/{version}")
            if read is None:
                raise SchemaUnusableError(
                    f"it refers to version {version} of {subject}, which the registry lacks"
                )
            await self._collect(read, found, room)
            del found[name]
            found[name] = self._text(read)

    def _text(self, schema: Mapping[str, Any]) -> str:
        text = schema.get("schema")
        if not isinstance(text, str):
            raise self._unavailable("answers without a schema")
        return text

    def _references(self, schema: Mapping[str, Any]) -> list[tuple[str, str, int]]:
        try:
            return [
                (str(each["name"]), str(each["subject"]), int(each["version"]))
                for each in schema.get("references") or ()
            ]
        except (TypeError, KeyError, ValueError):
            raise self._unavailable("answers with references that are none") from None

    async def _asked(self, path: str, *, is_object: bool = True) -> Mapping[str, Any] | None:
        """Return the answer; None if the registry says that it has none."""
        status, body = await self._streamed(path)
        try:
            answer = json.loads(body)
        except (ValueError, RecursionError):
            answer = None
        said = answer if isinstance(answer, dict) else {}
        if status == 404 and said.get("error_code") in _UNKNOWN_CODES:
            return None
        if status != 200:
            raise self._unavailable(f"answered {status}: {said.get('message', 'no reason')}")
        if is_object and not said:
            raise self._unavailable("answered 200 without an object of JSON")
        return said

    async def _streamed(self, path: str) -> tuple[int, bytes]:
        """Return the status and the body of a response."""
        body = bytearray()
        try:
            async with (
                asyncio.timeout(self._timeout_s),
                self._client.stream("GET", f"{self._base}/{path}") as response,
            ):
                async for chunk in response.aiter_raw():
                    body += chunk
                    if len(body) > ANSWER_BYTES_MAX:
                        raise self._unavailable(f"answers with more than {ANSWER_BYTES_MAX} bytes")
        except RegistryUnavailableError:
            raise
        except TimeoutError:
            cause = f"does not answer within {self._timeout_s * 1000:.0f} ms"
            raise self._unavailable(cause) from None
        except Exception as error:  # noqa: BLE001 - of the HTTP client, for any reason
            cause = f"does not answer ({type(error).__name__}: {_reason(error)})"
            raise self._unavailable(cause) from None
        return response.status_code, bytes(body)

    def _unavailable(self, cause: str) -> RegistryUnavailableError:
        return RegistryUnavailableError(self.url, cause[:_CAUSE_CHARS_MAX])


def _reason(error: BaseException) -> str:
    """Return what the operating system says about a connection, else the text of the exception."""
    cause: BaseException | None = error
    while cause is not None:
        number = cause.errno if isinstance(cause, OSError) else None
        if number and number > 0 and not isinstance(cause, ssl.SSLError):
            return os.strerror(number)
        cause = cause.__cause__ or cause.__context__
    return str(error)


def url_for_people(url: str) -> str:
    """Return the URL of a registry without what follows its path."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}{parts.path}"


def check(settings: SchemaRegistrySettings) -> None:
    """Raise RegistryUnavailableError if a registry does not answer; asks once, and waits."""

    async def ask() -> None:
        registry = ConfluentRegistry(settings)
        try:
            await registry.check()
        finally:
            await registry.close()

    asyncio.run(ask())
