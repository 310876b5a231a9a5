"""Publisher sessions over HTTP, as the admin API has them, for one publisher at one address."""

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

from ringfence_client.publisher.errors import AwayError, NameInUseError
from ringfence_client.publisher.session import Session
from tests.fakes.judge import Judge


class Request(NamedTuple):
    """What was asked."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: Any


class AdminApi:
    """Answers by a judge, or by what `answers` holds, one by one: status, headers, text."""

    def __init__(self, judge: Judge, address: str = "orders") -> None:
        self.judge = judge
        self.address = address
        self.answers: list[tuple[int, dict[str, str], str]] = []
        self.requests: list[Request] = []
        self.url = ""

    def answer(self, request: Request) -> tuple[int, dict[str, str], str]:
        self.requests.append(request)
        if self.answers:
            return self.answers.pop(0)
        try:
            if request.method == "PUT":
                return 200, {}, self._document(self.judge.session(request.body["user"]))
            if request.path.endswith("/session"):
                return 405, {}, problem("method-not-allowed", "PUT or DELETE")
            return 200, {}, self._document(Session(self.judge.epoch, self.judge.last))
        except AwayError as error:
            return 503, {"Retry-After": "0"}, problem("not-yet", str(error))
        except NameInUseError as error:
            return 409, {}, problem("https://ringfence.example/problems/name-in-use", str(error))

    def _document(self, session: Session) -> str:
        number = session.accepted
        standing = {"topic": "orders", "partition": 0, "stream": None, "bookmark": f"1|{number}|"}
        here = {**standing, "address": self.address, "sequence": number}
        document = {
            "publisher": "p",
            "epoch": session.epoch or None,
            "user": self.judge.user,
            "sequences": [{**standing, "address": "elsewhere", "sequence": 7}, here],
            "complete": True,
        }
        return json.dumps(document)


def problem(kind: str, detail: str) -> str:
    return json.dumps({"type": kind, "title": "No", "detail": detail})


@contextmanager
def served(api: AdminApi) -> Iterator[AdminApi]:
    class Handler(BaseHTTPRequestHandler):
        def _do(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length)) if length else None
            request = Request(self.command, self.path, dict(self.headers), body)
            status, headers, text = api.answer(request)
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(text.encode()))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(text.encode())

        do_GET = do_PUT = _do  # noqa: N815 - the server's names

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        api.url = f"http://127.0.0.1:{server.server_port}"
        try:
            yield api
        finally:
            server.shutdown()
            thread.join(5)
