"""A schema registry in memory behind a real HTTP server, with the faults that a test asks for."""

import base64
import json
import ssl
import threading
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

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
        self.silent = threading.Event()
        """While it is set, requests are not answered."""
        self._server: ThreadingHTTPServer | None = None
        self._port = 0

    def start(self) -> None:
        """Begin to listen, at the port that it had before if it had one."""
        registry = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                status, body = registry._answered(self.path, self.headers.get("Authorization"))
                payload = body.encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
                self.send_header("Content-Length", str(len(payload)))
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
        if self.broken is not None:
            return self.broken
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
