"""Peers: the other instances, asked over HTTP, all at once and each once.

One that cannot be reached, or replies what nobody understands, is left alone for some seconds, so
that it slows one question and not each. All requests share one pool on a thread of its own, since
whoever asks may live on any event loop.
"""

import asyncio
import ssl
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

import httpx2
import structlog

from service.fleet.codec import CodecError
from service.fleet.messages import (
    ACTOR,
    FORWARDED,
    PATH,
    Question,
    Reply,
    RollCall,
    question_text,
    reply_of,
)
from service.instances import Announcement
from service.queries.table import Query

CONNECT_S: Final = 1.0
LEFT_ALONE_S: Final = 5.0
_CONNECTIONS_MAX: Final = 64
_OK: Final = 200

_log = structlog.stdlib.get_logger(__name__)


class Heard(NamedTuple):
    """What came of a question to one instance: a reply, or why there is none."""

    peer: Announcement
    reply: Reply | None
    trouble: str | None


class Lost(NamedTuple):
    """An instance that was not reached, not once since."""

    peer: Announcement
    trouble: str
    since_s: float
    until_s: float
    """When it was not reached last."""


class NotUnderstoodError(Exception):
    """Something answers at the URL of an instance, and not as that instance does."""


class Peers:
    """Safe on any thread and any event loop."""

    def __init__(
        self,
        own: str,
        known: Callable[[], Iterable[Announcement]],
        authorization: Callable[[], Mapping[str, str]],
        tls: Callable[[], ssl.SSLContext] = ssl.create_default_context,
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """`own` is the name of this instance, `authorization` what its requests bear.

        `tls` is asked once, before the first request.
        """
        self._own = own
        self._known = known
        self._authorization = authorization
        self._tls = tls
        self._now_s = monotonic_s
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._client: httpx2.AsyncClient | None = None
        self._lost: dict[str, Lost] = {}

    @property
    def others(self) -> tuple[Announcement, ...]:
        """All that are announced but ourselves."""
        return tuple(peer for peer in self._known() if peer.name != self._own)

    async def ask(self, query: Query | RollCall, timeout_s: float) -> tuple[Heard, ...]:
        """Ask all others; never raises for what one of them does."""
        others = self.others
        if not others or timeout_s <= 0:
            return tuple(Heard(peer, None, "there was no time left") for peer in others)
        work = asyncio.run_coroutine_threadsafe(
            self._all(others, query, timeout_s), self._running_loop()
        )
        return await asyncio.wrap_future(work)

    def lost_for(self, seconds: float) -> tuple[Announcement, ...]:
        """Those that were not reached over such a time, however often they were asked."""
        lost = tuple(self._lost.values())
        return tuple(each.peer for each in lost if each.until_s - each.since_s > seconds)

    def forget(self, name: str) -> None:
        """Know nothing of what one did."""
        self._lost.pop(name, None)

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                threading.Thread(
                    target=self._loop.run_forever, name="ringfence-peers", daemon=True
                ).start()
            return self._loop

    # On the thread of the pool.

    async def _all(
        self, others: tuple[Announcement, ...], query: Query | RollCall, timeout_s: float
    ) -> tuple[Heard, ...]:
        heard = await asyncio.gather(*(self._one(peer, query, timeout_s) for peer in others))
        for name in self._lost.keys() - {peer.name for peer in others}:
            self.forget(name)
        return tuple(heard)

    async def _one(self, peer: Announcement, query: Query | RollCall, timeout_s: float) -> Heard:
        lost = self._lost.get(peer.name)
        if lost is not None and lost.peer == peer and self._now_s() < lost.until_s + LEFT_ALONE_S:
            return Heard(peer, None, lost.trouble)
        if not peer.url:
            return Heard(peer, None, "it announces no URL; set its api.advertised_url")
        try:
            async with asyncio.timeout(timeout_s):
                reply = await self._asked(peer, query, timeout_s)
        except TimeoutError:
            return self._not_reached(peer, f"it did not reply within {timeout_s:.1f} s")
        except NotUnderstoodError as error:
            return self._not_reached(peer, str(error))
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            return self._not_reached(peer, f"it cannot be reached: {_cause(error)}")
        if self._lost.pop(peer.name, None) is not None:
            _log.info("peer_reached_again", peer=peer.name, url=peer.url)
        return Heard(peer, reply, None)

    async def _asked(self, peer: Announcement, query: Query | RollCall, timeout_s: float) -> Reply:
        response = await self._pool().post(
            peer.url.rstrip("/") + PATH,
            content=question_text(Question(peer.name, query, round(timeout_s * 1000))),
            headers={
                FORWARDED: self._own,
                "Content-Type": "application/json",
                **_of_request(),
                **self._authorization(),
            },
        )
        if response.status_code != _OK:
            raise NotUnderstoodError(f"its URL answers with status {response.status_code}")
        try:
            reply = reply_of(response.content)
        except CodecError as error:
            raise NotUnderstoodError(f"its reply is not understood: {error}") from error
        if reply.instance != peer.name:
            sentence = f"instance {reply.instance} answers at its URL; set its api.advertised_url"
            raise NotUnderstoodError(sentence)
        return reply

    def _pool(self) -> httpx2.AsyncClient:
        if self._client is None:
            self._client = httpx2.AsyncClient(
                verify=self._tls(),
                # The deadline of a question bounds the whole of it; see `_one`.
                timeout=httpx2.Timeout(None, connect=CONNECT_S),
                limits=httpx2.Limits(max_connections=_CONNECTIONS_MAX),
                trust_env=False,  # no proxy stands between instances
            )
        return self._client

    def _not_reached(self, peer: Announcement, trouble: str) -> Heard:
        now_s, before = self._now_s(), self._lost.get(peer.name)
        is_new = before is None or before.peer != peer
        since_s = now_s if before is None or is_new else before.since_s
        if is_new:
            _log.warning("peer_not_reached", peer=peer.name, url=peer.url, cause=trouble)
        self._lost[peer.name] = Lost(peer, trouble, since_s, now_s)
        return Heard(peer, None, trouble)


def _of_request() -> dict[str, str]:
    """So that the lines of a request in the logs of all instances have the same name."""
    bound = structlog.contextvars.get_contextvars()
    told = {"X-Request-Id": bound.get("request_id"), ACTOR: bound.get("actor")}
    return {name: value for name, value in told.items() if isinstance(value, str)}


def _cause(error: Exception) -> str:
    return str(error) or type(error).__name__
