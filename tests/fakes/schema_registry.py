"""A schema registry in memory behind a real HTTP server, with the faults that a test asks for."""

import asyncio
import base64
import contextlib
import json
import ssl
import threading
from collections.abc import Callable, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

from ringfence_service.schemas.errors import RegistryUnavailableError, SchemaUnusableError
from ringfence_service.schemas.lookups import Lookups
from ringfence_service.schemas.registry import RegisteredSchema

Reference = tuple[str, str]
"""The name by which a schema refers to another one, and the subject of that."""


class FakeRegistry:
    """Schemas by id and subject; each registration is a version of its own."""

    def __init__(
        self, path: str = "", credentials: str = "", tls: ssl.SSLContext | None = None
    ) -> None:
        """`credentials` is USER:PASSWORD, without which requests are refused."""
        self._tls = tls
        self.path = path
        self._wanted = f"Basic {base64.b64encode(credentials.encode()).decode()}"
        self._is_open = not credentials
        self.schemas: list[dict[str, Any]] = []
        self.subjects: dict[str, list[int]] = {}
        self.requests: list[str] = []
        self.broken: tuple[int, str] | None = None
        """A status and a body with which it answers everything."""
        self.odd: dict[str, tuple[int, str]] = {}
        """By path the same for one request, such as that for an id."""
        self.endless: dict[str, bytes] = {}
        """By path what it sends again and again, until the client has had enough."""
        self.silent = threading.Event()
        """While it is set, requests are not answered."""
        self.encoding = ""
        """What it says of the encoding of its answers, though they have none."""
        self.every_s = 0.0
        """How long it pauses between what it sends endlessly."""
        self.is_stopping = threading.Event()
        self._server: ThreadingHTTPServer | None = None
        self._port = 0

    def start(self) -> None:
        """Begin to listen, at the port that it had before if it had one."""
        registry = self
        self.is_stopping.clear()

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                if self.path in registry.endless:
                    registry.requests.append(self.path)
                    self.wfile.write(b"HTTP/1.0 200 OK\r\n\r\n")
                    with contextlib.suppress(OSError):
                        while not registry.is_stopping.wait(registry.every_s):
                            self.wfile.write(registry.endless[self.path])
                    return
                status, body = registry._answered(self.path, self.headers.get("Authorization"))
                payload = body.encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
                self.send_header("Content-Length", str(len(payload)))
                if registry.encoding:
                    self.send_header("Content-Encoding", registry.encoding)
                self.send_header("Location", "/schemas/ids/1")  # heeded with a status of 3xx
                self.end_headers()
                self.wfile.write(payload)

            def log_message(self, *_: object) -> None:
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *_: object) -> None:
                pass  # a client that no longer waits

        self._server = Server(("127.0.0.1", self._port), Handler)
        self._port = self._server.server_address[1]
        if self._tls is not None:
            self._server.socket = self._tls.wrap_socket(self._server.socket, server_side=True)
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def stop(self) -> None:
        """Refuse connections until it is started again."""
        self.is_stopping.set()
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    @property
    def url(self) -> str:
        scheme = "http" if self._tls is None else "https"
        return f"{scheme}://127.0.0.1:{self._port}{self.path}"

    def register(
        self, subject: str, kind: str, text: str, references: Sequence[Reference] = ()
    ) -> int:
        """Return the id of a schema; references are to the newest versions."""
        named = [
            {"name": name, "subject": of, "version": len(self.subjects[of])}
            for name, of in references
        ]
        self.schemas.append({"schemaType": kind, "schema": text, "references": named})
        self.subjects.setdefault(subject, []).append(len(self.schemas))
        return len(self.schemas)

    def _answered(self, target: str, authorization: str | None) -> tuple[int, str]:
        self.requests.append(target)
        while self.silent.is_set():
            self.silent.wait(0.01)
            threading.Event().wait(0.01)
        if self.broken is not None or target in self.odd:
            return self.odd.get(target) or self.broken or (500, "")
        if not self._is_open and authorization != self._wanted:
            return 401, json.dumps({"error_code": 40101, "message": "Unauthorized"})
        path = urlsplit(target).path
        if not path.startswith(self.path):
            return 404, "<html>not here</html>"
        match [unquote(each) for each in path.removeprefix(self.path).split("/")[1:]]:
            case ["schemas", "types"]:
                return 200, json.dumps(["JSON", "PROTOBUF", "AVRO"])
            case ["schemas", "ids", number]:
                return self._schema(int(number))
            case ["subjects", subject, "versions", version]:
                return self._version(subject, int(version))
        return 404, "<html>not here</html>"

    def _schema(self, number: int) -> tuple[int, str]:
        if not 0 < number <= len(self.schemas):
            return 404, json.dumps({"error_code": 40403, "message": "Schema not found"})
        schema = dict(self.schemas[number - 1])
        if schema["schemaType"] == "AVRO":
            del schema["schemaType"]  # as registries do
        return 200, json.dumps(schema)

    def _version(self, subject: str, version: int) -> tuple[int, str]:
        known = self.subjects.get(subject, [])
        if not 0 < version <= len(known):
            return 404, json.dumps({"error_code": 40402, "message": "Version not found"})
        found = self.schemas[known[version - 1] - 1]
        return 200, json.dumps(
            {**found, "subject": subject, "version": version, "id": known[version - 1]}
        )


def payload(number: int, body: bytes) -> bytes:
    """A body with the header that names its schema."""
    return b"\0" + number.to_bytes(4) + body


class FakeSchemas:
    """A registry without HTTP: schemas by id, and what it is asked for."""

    url = "http://registry"

    def __init__(self, **schemas: RegisteredSchema) -> None:
        """`_7` is the schema of the id 7."""
        self.schemas = {int(name[1:]): schema for name, schema in schemas.items()}
        self.unusable: dict[int, str] = {}
        self.refused: dict[int, str] = {}
        """By id how it answers instead."""
        self.away = ""
        """How it answers everything."""
        self.asked: list[int] = []
        self.probed: list[int] = []

    async def schema(self, number: int) -> RegisteredSchema | None:
        self.asked.append(number)
        return self._answered(number)

    async def probe(self, number: int) -> None:
        self.probed.append(number)
        self._answered(number)

    def _answered(self, number: int) -> RegisteredSchema | None:
        cause = self.away or self.refused.get(number)
        if cause:
            raise RegistryUnavailableError(self.url, cause)
        if number in self.unusable:
            raise SchemaUnusableError(self.unusable[number])
        return self.schemas.get(number)

    async def close(self) -> None:
        """Nothing is open."""


class SteppedLookups(Lookups):
    """Look-ups without a thread: what is due is asked for when somebody asks what is awaited."""

    def __init__(
        self,
        registry: FakeSchemas,
        monotonic_s: Callable[[], float],
        on_lookup: Callable[[str], None] = lambda _result: None,
    ) -> None:
        super().__init__(registry.url, lambda: registry, on_lookup, monotonic_s)
        self._registry = registry
        self.is_held = False
        """Whether no request is made."""

    def want(self, number: int, route: str) -> bool:
        with self._changed:
            return number in self._answers or self._plan.want(number, route)

    def awaited(self, number: int) -> str | None:
        self.step()
        return super().awaited(number)

    def wait(self, number: int, seconds: float) -> None:
        self._hurry(number)
        self.step()
        assert seconds > 0

    def step(self) -> None:
        """Make the requests that are due."""
        while not self.is_held:
            number = self._plan.next(self._monotonic_s())
            if number is None:
                return
            asyncio.run(self._ask(self._registry, number))
