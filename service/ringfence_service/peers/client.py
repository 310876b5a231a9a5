"""Peer client: sends queries to the other instances over HTTP, to all of them at once.

An instance that is unreachable or sends an invalid reply is skipped for some seconds, so that it
delays one query and not all. All requests share one connection pool on a thread of its own, since
callers may run on any event loop.
"""

import asyncio
import ssl
import threading
import time
import uuid
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple
from urllib.parse import quote

import httpx2
import structlog

from ringfence_service.http_errors import trouble_of
from ringfence_service.metadata.instances import Registration
from ringfence_service.peers.protocol import (
    ACTOR,
    FORWARDED,
    PATH,
    SIGNATURE,
    CodecError,
    PeerFailure,
    PeerQuery,
    QueryReply,
    StatusRequest,
    decode_reply,
    encode_query,
)
from ringfence_service.peers.signing import PeerKey, RequestOrigin
from ringfence_service.queries.registry import Query

CONNECT_S: Final = 1.0
"""How long connecting may take: a machine that is off delays a query by no more than this."""
LEFT_ALONE_S: Final = 5.0
"""How long an instance that was not reached is skipped: it delays one query in this time.

When it is back, answers are partial for this long at most.
"""
_CONNECTIONS_MAX: Final = 64
"""Connections to all instances together; further requests wait for one within their own time.

No more than `api.connections_per_address_max` of the others (64 by default), which close the rest.
"""
_REPLY_BYTES_MAX: Final = 256 * 1024 * 1024
"""More than the reply for a million addresses. A registered URL may name any server."""
_OK: Final = 200
_REFUSED: Final = 403
_NO_TIME: Final = PeerFailure("no-time", "there was no time left")
_NO_URL: Final = PeerFailure("no-url", "it has registered no URL; set its api.advertised_url")
_NOT_ADMITTED: Final = PeerFailure(
    "refused",
    "it refuses our signature; check that all instances have the same secret in "
    "api.peer_token_file, and that their clocks agree",
)
_NOT_SIGNED: Final = PeerFailure(
    "not-signed", "the server at its URL does not have the secret of api.peer_token_file"
)
_OTHER: Final = PeerFailure(
    "other-instance", "another instance answers at its URL; set its api.advertised_url"
)
_NOT_UNDERSTOOD: Final = PeerFailure(
    "not-understood", "its reply is invalid; check that all instances have the same version"
)
_TOO_LONG: Final = PeerFailure(
    "not-understood",
    f"its reply is longer than {_REPLY_BYTES_MAX // 2**20} MiB; check its api.advertised_url",
)

_log = structlog.stdlib.get_logger(__name__)


class PeerReply(NamedTuple):
    """The reply of one instance to a query, or why there is none."""

    peer: Registration
    reply: QueryReply | None
    trouble: PeerFailure | None


class UnreachablePeer(NamedTuple):
    """An instance that every query since `since_s` has failed to reach."""

    peer: Registration
    trouble: PeerFailure
    since_s: float
    until_s: float
    """The time of the last failure."""


class ForeignReplyError(Exception):
    """The server at the URL of an instance does not reply as that instance would."""

    def __init__(self, trouble: PeerFailure) -> None:
        super().__init__(trouble.sentence)
        self.trouble = trouble


class PeerClient:
    """Sends queries to the other instances. Safe on any thread and any event loop."""

    def __init__(
        self,
        own: str,
        known: Callable[[], Iterable[Registration]],
        key: PeerKey | None,
        tls: Callable[[], ssl.SSLContext] = ssl.create_default_context,
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """`own` is the name of this instance; with a `key`, queries and replies are signed.

        `tls` is called once, before the first request.
        """
        self._own = own
        self._known = known
        self._key = key
        self._tls = tls
        self._now_s = monotonic_s
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._client: httpx2.AsyncClient | None = None
        self._lost: dict[str, UnreachablePeer] = {}

    @property
    def others(self) -> tuple[Registration, ...]:
        """All registered instances except this one."""
        return tuple(peer for peer in self._known() if peer.name != self._own)

    async def ask(self, query: Query | StatusRequest, timeout_s: float) -> tuple[PeerReply, ...]:
        """Send a query to all others; an error of one of them is part of its reply."""
        others = self.others
        if not others or timeout_s <= 0:
            return tuple(PeerReply(peer, None, _NO_TIME) for peer in others)
        work = asyncio.run_coroutine_threadsafe(
            self._all(others, query, timeout_s), self._running_loop()
        )
        return await asyncio.wrap_future(work)

    def lost_for(self, seconds: float) -> tuple[Registration, ...]:
        """Return the instances that all queries over this time have failed to reach."""
        lost = tuple(self._lost.values())
        return tuple(each.peer for each in lost if each.until_s - each.since_s > seconds)

    def forget(self, name: str) -> None:
        """Forget the failures of an instance."""
        self._lost.pop(name, None)

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                threading.Thread(
                    target=self._loop.run_forever, name="ringfence-peers", daemon=True
                ).start()
            return self._loop

    # On the thread of the connection pool.

    async def _all(
        self, others: tuple[Registration, ...], query: Query | StatusRequest, timeout_s: float
    ) -> tuple[PeerReply, ...]:
        replies = await asyncio.gather(*(self._one(peer, query, timeout_s) for peer in others))
        for name in self._lost.keys() - {peer.name for peer in others}:
            self.forget(name)
        return tuple(replies)

    async def _one(
        self, peer: Registration, query: Query | StatusRequest, timeout_s: float
    ) -> PeerReply:
        lost = self._lost.get(peer.name)
        if lost is not None and lost.peer == peer and self._now_s() < lost.until_s + LEFT_ALONE_S:
            return PeerReply(peer, None, lost.trouble)
        if not peer.url:
            return PeerReply(peer, None, _NO_URL)
        try:
            async with asyncio.timeout(timeout_s):
                reply = await self._post(peer, query, timeout_s)
        except TimeoutError:
            sentence = f"it did not reply within {timeout_s:.1f} s"
            return self._not_reached(peer, PeerFailure("timeout", sentence))
        except ForeignReplyError as error:
            return self._not_reached(peer, error.trouble)
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            code, reason = trouble_of(error)
            return self._not_reached(peer, PeerFailure(code, f"it cannot be reached: {reason}"))
        if self._lost.pop(peer.name, None) is not None:
            _log.info("peer_reached_again", peer=peer.name, url=peer.url)
        return PeerReply(peer, reply, None)

    async def _post(
        self, peer: Registration, query: Query | StatusRequest, timeout_s: float
    ) -> QueryReply:
        request_origin = self._request_origin()
        body = encode_query(PeerQuery(peer.name, query, round(timeout_s * 1000)))
        signed = None if self._key is None else self._key.signed(PATH, request_origin, body)
        headers = {
            FORWARDED: request_origin.instance,
            ACTOR: request_origin.actor,
            "X-Request-Id": request_origin.request_id,
            "Content-Type": "application/json",
            **({} if signed is None else {"Authorization": signed.header}),
        }
        url = peer.url.rstrip("/") + PATH
        content = bytearray()
        async with self._pool().stream("POST", url, content=body, headers=headers) as response:
            async for chunk in response.aiter_bytes():
                content += chunk
                if len(content) > _REPLY_BYTES_MAX:
                    raise ForeignReplyError(_TOO_LONG)
        if response.status_code == _REFUSED:
            raise ForeignReplyError(_NOT_ADMITTED)
        if response.status_code != _OK:
            sentence = f"its URL answers with status {response.status_code}"
            raise ForeignReplyError(PeerFailure("status", sentence))
        if self._key is not None and signed is not None:
            signature = response.headers.get(SIGNATURE, "")
            if not self._key.is_of_reply(signature, signed.nonce, bytes(content)):
                raise ForeignReplyError(_NOT_SIGNED)
        try:
            reply = decode_reply(bytes(content))
        except CodecError as error:
            raise ForeignReplyError(_NOT_UNDERSTOOD) from error
        if reply.instance != peer.name:
            raise ForeignReplyError(_OTHER)
        return reply

    def _request_origin(self) -> RequestOrigin:
        """Return the origin of a query; log lines of all instances share its request id."""
        bound = structlog.contextvars.get_contextvars()
        request_id = str(bound.get("request_id") or uuid.uuid4().hex)
        return RequestOrigin(self._own, quote(str(bound.get("actor", "")), safe="@"), request_id)

    def _pool(self) -> httpx2.AsyncClient:
        if self._client is None:
            self._client = httpx2.AsyncClient(
                verify=self._tls(),
                # `_one` limits the total time of a query.
                timeout=httpx2.Timeout(None, connect=CONNECT_S),
                limits=httpx2.Limits(max_connections=_CONNECTIONS_MAX),
                trust_env=False,  # no proxy between instances
            )
        return self._client

    def _not_reached(self, peer: Registration, trouble: PeerFailure) -> PeerReply:
        now_s, before = self._now_s(), self._lost.get(peer.name)
        is_new = before is None or before.peer != peer
        since_s = now_s if before is None or is_new else before.since_s
        if is_new:
            _log.warning(
                "peer_not_reached",
                peer=peer.name,
                url=peer.url,
                code=trouble.code,
                cause=trouble.sentence,
            )
        self._lost[peer.name] = UnreachablePeer(peer, trouble, since_s, now_s)
        return PeerReply(peer, None, trouble)
