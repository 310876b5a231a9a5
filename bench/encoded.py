"""Encoded payloads: the messages as Avro and Protobuf, and a registry of their schemas."""

import json
import threading
from collections.abc import Iterable, Mapping
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final, Literal

Encoding = Literal["json", "avro", "protobuf"]

AVRO: Final = json.dumps(
    {
        "type": "record",
        "name": "Message",
        "fields": [
            {"name": "id", "type": "string"},
            {"name": "rest", "type": {"type": "map", "values": "string"}},
        ],
    }
)
PROTOBUF: Final = """
syntax = "proto3";
message Message { string id = 1; map<string, string> rest = 2; }
"""
_SCHEMAS: Final[Mapping[str, Mapping[str, str]]] = {
    "/schemas/ids/1": {"schema": AVRO},
    "/schemas/ids/2": {"schema": PROTOBUF, "schemaType": "PROTOBUF"},
}


def encoded(encoding: Encoding, identifier: bytes, rest: bytes) -> bytes:
    """Return a value of an id and `rest`, which `packed` made of the other members."""
    if encoding == "avro":
        return _head(1) + _avro(identifier) + rest
    if encoding == "protobuf":
        return _head(2) + b"\0" + _field(1, identifier) + rest
    return b'{"id":"%b",%b' % (identifier, rest)


def with_schema(number: int, value: bytes) -> bytes:
    """Return an encoded value that names this schema instead of its own."""
    head = _head(number)
    return head + value[len(head) :]


def packed(encoding: Encoding, document: bytes) -> bytes:
    """Return the members of a JSON object, all of them text, as they follow the id."""
    if encoding == "json":
        return document[1:]
    members: list[tuple[bytes, bytes]] = [
        (name.encode(), text.encode()) for name, text in json.loads(document).items()
    ]
    if encoding == "avro":
        return _varint(2 * len(members)) + b"".join(_avro(each) for each in _flat(members)) + b"\0"
    return b"".join(_field(2, _field(1, name) + _field(2, text)) for name, text in members)


@cache
def registry_url() -> str:
    """Return the URL of a registry with both schemas, which ends with this process."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Registry)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_address[1]}"


class _Registry(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        """Answer with a schema."""
        found = _SCHEMAS.get(self.path)
        body = json.dumps(found or {"error_code": 40403, "message": "unknown"}).encode()
        self.send_response(404 if found is None else 200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Log nothing."""


def _head(schema: int) -> bytes:
    return b"\0" + schema.to_bytes(4)


def _flat(members: Iterable[tuple[bytes, bytes]]) -> Iterable[bytes]:
    return (part for member in members for part in member)


def _avro(text: bytes) -> bytes:
    return _varint(2 * len(text)) + text


def _field(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _varint(number: int) -> bytes:
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*found, number])
