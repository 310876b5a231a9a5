"""Request signing: the shared key by which instances authenticate each other. It is never sent.

The signature of a query covers its origin, its path, its body and its time; it is valid for a
minute, and once. The signature of a reply covers the query that it answers.
"""

import hashlib
import hmac
import json
import re
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final, NamedTuple

from ringfence_service.credentials import secret_of
from ringfence_service.file_watcher import WatchedFile

SCHEME: Final = "Ringfence-Signed"
WINDOW_S: Final = 60.0
"""How far the clocks of two instances may differ."""
_HEADER: Final = re.compile(
    SCHEME + r" (?P<time>[0-9]{1,15})\.(?P<nonce>[0-9a-f]{32})"
    r"\.(?P<digest>[0-9a-f]{64})\.(?P<signature>[0-9a-f]{64})"
)


class RequestOrigin(NamedTuple):
    """The instance that sends a query, its user, and the request that the query belongs to."""

    instance: str
    actor: str
    request_id: str


class SignedRequest(NamedTuple):
    """The signature of a query."""

    header: str
    """The value of `Authorization`."""
    nonce: str
    digest: str
    """The digest of the body."""

    def covers(self, body: bytes) -> bool:
        """Return whether the signature was made for this body."""
        return hmac.compare_digest(_digest(body), self.digest)


class PeerKey:
    """The secret that the instances of a service share, read again when its file changes."""

    def __init__(
        self,
        path: str,
        time_s: Callable[[], float] = time.time,
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """Raise OSError or ValueError if the file has no usable secret."""
        self.file = WatchedFile(path, secret_of, time.monotonic)
        self._time_s = time_s
        self._monotonic_s = monotonic_s
        self._started_s = monotonic_s()
        self._seen: OrderedDict[str, float] = OrderedDict()
        """Nonces and their expiry times, in order of expiry."""
        self._lock = threading.Lock()

    def signed(self, path: str, request_origin: RequestOrigin, body: bytes) -> SignedRequest:
        """Sign a query."""
        time_ms, nonce, digest = round(self._time_s() * 1000), secrets.token_hex(16), _digest(body)
        signature = self._signature("question", path, *request_origin, time_ms, nonce, digest)
        return SignedRequest(f"{SCHEME} {time_ms}.{nonce}.{digest}.{signature}", nonce, digest)

    def admitted(
        self, path: str, request_origin: RequestOrigin, authorization: str
    ) -> SignedRequest | None:
        """Return the signature if it is valid, else None. The body is checked later by `covers`."""
        found = _HEADER.fullmatch(authorization)
        if found is None:
            return None
        time_ms, nonce, digest = int(found["time"]), found["nonce"], found["digest"]
        expected = self._signature("question", path, *request_origin, time_ms, nonce, digest)
        if not hmac.compare_digest(expected, found["signature"]):
            return None
        signed_s, now_s = time_ms / 1000, self._time_s()
        # An earlier process may have accepted what is older than this one. Not the time at which it
        # started: after the clock was set back, that would lie ahead.
        since_s = now_s - (self._monotonic_s() - self._started_s)
        is_current = abs(now_s - signed_s) <= WINDOW_S and signed_s >= since_s - 0.001
        return (
            SignedRequest(authorization, nonce, digest)
            if is_current and self._is_new(nonce)
            else None
        )

    def of_reply(self, nonce: str, body: bytes) -> str:
        """Return the signature of the reply to the query with this nonce."""
        return self._signature("reply", nonce, _digest(body))

    def is_of_reply(self, signature: str, nonce: str, body: bytes) -> bool:
        """Return whether a signature is that of this reply to the query with this nonce."""
        return hmac.compare_digest(self.of_reply(nonce, body).encode(), signature.encode())

    def _signature(self, *parts: str | int) -> str:
        text = json.dumps(["ringfence peers 1", *parts]).encode()
        return hmac.digest(self.file.value().encode(), text, "sha256").hex()

    def _is_new(self, nonce: str) -> bool:
        """Remember a nonce; return whether it is new.

        Only nonces with a valid signature get here, so that a stranger cannot fill the memory.
        """
        now_s = self._monotonic_s()
        with self._lock:
            while self._seen and next(iter(self._seen.values())) < now_s:
                self._seen.popitem(last=False)
            is_new = nonce not in self._seen
            self._seen.setdefault(nonce, now_s + 2 * WINDOW_S)
            return is_new


def _digest(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()
