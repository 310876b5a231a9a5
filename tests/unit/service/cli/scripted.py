"""A server that gives scripted replies and records what it was asked."""

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any, NamedTuple


class Reply(NamedTuple):
    """An answer; without a status the connection breaks."""

    status: int | None = 200
    body: object = None
    headers: Mapping[str, str] = {}


class Request(NamedTuple):
    """What came."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: str


class Scripted:
    """Gives its replies in order, the last one for ever."""

    def __init__(self, url: str, replies: list[Reply]) -> None:
        self.url = url
        self.replies = replies
        self.asked: list[Request] = []

    def reply(self) -> Reply:
        return self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]


@contextmanager
def scripted(*replies: Reply) -> Iterator[Scripted]:
    server = HTTPServer(("127.0.0.1", 0), Handler)
    script = Scripted(f"http://127.0.0.1:{server.server_port}", list(replies))
    server.script = script  # type: ignore[attr-defined]  # the handler finds it here
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield script
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)


class Handler(BaseHTTPRequestHandler):
    def _answer(self) -> None:
        script: Scripted = self.server.script  # type: ignore[attr-defined]
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
        asked = Request(self.command, self.path, dict(self.headers.items()), body)
        script.asked.append(asked)
        reply = script.reply()
        if reply.status is None:
            self.close_connection = True
            return
        content = b"" if reply.body is None else json.dumps(reply.body).encode()
        self.send_response(reply.status)
        for name, value in {"Content-Length": str(len(content)), **reply.headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_POST = do_PUT = do_DELETE = _answer  # noqa: N815 - as the base calls them

    def log_message(self, *_: Any) -> None:
        """Nothing."""
