"""What the tests of a fleet share: a crew that answers from a table, and instances over HTTP."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from ringfence_service.config.addresses import AddressBook
from ringfence_service.config.kafka_properties import KafkaSettings
from ringfence_service.config.model import ApiSettings, Config, ServiceSettings
from ringfence_service.metadata.instances import Registration
from ringfence_service.peers.client import PeerClient
from ringfence_service.peers.protocol import StatusReply, decode_query
from ringfence_service.peers.router import PeerRouter
from ringfence_service.peers.server import PeerServer
from ringfence_service.peers.signing import PeerKey
from ringfence_service.queries.inbox import QueryService
from ringfence_service.queries.registry import Answer, Query
from ringfence_service.queries.status import ServiceStatus
from tests.api.fake_service import Clock
from tests.support.statuses import partition_status

PARTITIONS = 4
Says = Callable[[Query], Answer]


def config_of(settings: dict[str, dict[str, object]] | None = None) -> Config:
    return Config(
        KafkaSettings({"bootstrap.servers": "kafka:9092"}, {}, {}, {}),
        ServiceSettings(group_id="g"),
        ApiSettings(),
        (),
        AddressBook.of(settings or {}),
    )


def status_of(instance: str, *owned: int) -> ServiceStatus:
    """One that runs and owns these partitions of four."""
    partitions = tuple(partition_status("orders", number) for number in owned)
    nothing = ServiceStatus.starting(instance, "g", datetime.fromtimestamp(0, UTC))
    return nothing._replace(
        phase="running",
        partitions=partitions,
        partitions_total=PARTITIONS,
        complete=len(owned) == PARTITIONS,
    )


class Crew(QueryService):
    """The processes of one instance: gives scripted answers and keeps what it was asked."""

    def __init__(self, status: ServiceStatus, says: Says) -> None:
        self.status = status
        self._says = says
        self.asked: list[Query] = []

    def _answered(self, query: Query, timeout_s: float) -> Awaitable[Answer]:
        assert timeout_s > 0
        return self._say(query)

    async def _say(self, query: Query) -> Answer:
        self.asked.append(query)
        answer: Any = self._says(query)
        return answer._replace(complete=self.status.complete)  # type: ignore[no-any-return]

    def roll(self) -> StatusReply:
        return StatusReply("0.1.0", 7, self.status)


@contextmanager
def serving(name: str, reply: Callable[[bytes], bytes | int]) -> Iterator[Registration]:
    """Listen for questions to an instance; a number is the status of a reply without a body."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            told = reply(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(told if isinstance(told, int) else 200)
            body = b"" if isinstance(told, int) else told
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        server.block_on_close = False
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield announced(name, server.server_port)
        finally:
            server.shutdown()
            thread.join()


def announced(name: str, port: int) -> Registration:
    return Registration(name, f"http://127.0.0.1:{port}", 0, "0.1.0")


def peer_server(crew: Crew) -> Callable[[bytes], bytes]:
    """Answers as the instance of these processes does."""
    own = PeerServer(crew, crew.roll, lambda _status: None, None)
    return lambda text: asyncio.run(own.reply(decode_query(text), may_change=True))


def peers_of(
    known: list[Registration], clock: Clock | None = None, key: PeerKey | None = None
) -> PeerClient:
    """Those of instance 0."""
    return PeerClient("0", lambda: known, key, monotonic_s=clock or Clock())


def desk_of(
    crew: Crew,
    known: list[Registration],
    clock: Clock | None = None,
    settings: dict[str, dict[str, object]] | None = None,
) -> PeerRouter:
    """The desk of instance 0."""
    own = announced("0", 1)
    return PeerRouter(
        lambda: config_of(settings), crew, crew.roll, peers_of(known, clock), lambda: own
    )


def ask(desk: QueryService, query: Query, timeout_s: float = 10.0) -> Any:
    return asyncio.run(desk.ask(query, timeout_s))
