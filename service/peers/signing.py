"""Request signing: the key that instances authenticate each other by. It is never sent.

A signature covers who asks what of whom, and when; it is valid for a minute, at one path, and once.
The signature of a reply covers the query that it answers.
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

from service.credentials import secret_of
from service.file_watcher import WatchedFile

SCHEME: Final = "Ringfence-Signed"
WINDOW_S: Final = 60.0
"""How far the clocks of two instances may differ."""
_HEADER: Final = re.compile(
    SCHEME + r" (?P<time>[0-9]{1,15})\.(?P<nonce>[0-9a-f]{32})"
    r"\.(?P<digest>[0-9a-f]{64})\.(?P<signature>[0-9a-f]{64})"
)


class RequestOrigin(NamedTuple):
    """Who asks: an instance, for whom, and in which request."""

    instance: str
    actor: str
    request_id: str


class SignedRequest(NamedTuple):
    """A question that bears a signature."""

    header: str
    """As it stands in `Authorization`."""
    nonce: str
    digest: str
    """Of the body."""

    def covers(self, body: bytes) -> bool:
        """Whether that is the body."""
        return hmac.compare_digest(_digest(body), self.digest)


class PeerKey:
    """The secret that the instances of a service share, read again when its file changes."""

    def __init__(self, path: str, time_s: Callable[[], float] = time.time) -> None:
        """OSError or ValueError where there is nothing to begin with."""
        self._file = WatchedFile(path, secret_of, time.monotonic)
        self._time_s = time_s
        self._since_s = time_s()
        """What was signed before it may have been answered by the process before this one."""
        self._seen: OrderedDict[str, float] = OrderedDict()
        """Nonces, and until when they are remembered; in this order."""
        self._lock = threading.Lock()

    def signed(self, path: str, request_origin: RequestOrigin, body: bytes) -> SignedRequest:
        """Sign a question."""
        time_ms, nonce, digest = round(self._time_s() * 1000), secrets.token_hex(16), _digest(body)
        signature = self._signature("question", path, *request_origin, time_ms, nonce, digest)
        return SignedRequest(f"{SCHEME} {time_ms}.{nonce}.{digest}.{signature}", nonce, digest)

    def admitted(
        self, path: str, request_origin: RequestOrigin, authorization: str
    ) -> SignedRequest | None:
        """The question that bears this signature, before its body is read; None is refused."""
        found = _HEADER.fullmatch(authorization)
        if found is None:
            return None
        time_ms, nonce, digest = int(found["time"]), found["nonce"], found["digest"]
        expected = self._signature("question", path, *request_origin, time_ms, nonce, digest)
        if not hmac.compare_digest(expected, found["signature"]):
            return None
        signed_s, now_s = time_ms / 1000, self._time_s()
        is_of_now = abs(now_s - signed_s) <= WINDOW_S and signed_s >= self._since_s - 0.001
        return (
            SignedRequest(authorization, nonce, digest)
            if is_of_now and self._is_new(nonce)
            else None
        )

    def of_reply(self, nonce: str, body: bytes) -> str:
        """The signature of what is replied to a question."""
        return self._signature("reply", nonce, _digest(body))

    def is_of_reply(self, signature: str, nonce: str, body: bytes) -> bool:
        """Whether an instance has replied that to this question."""
        return hmac.compare_digest(self.of_reply(nonce, body).encode(), signature.encode())

    def _signature(self, *told: str | int) -> str:
        text = json.dumps(["ringfence peers 1", *told]).encode()
        return hmac.digest(self._file.value().encode(), text, "sha256").hex()

    def _is_new(self, nonce: str) -> bool:
        """Whether it was not seen; of who knows the secret alone, so they cannot fill memory."""
        now_s = time.monotonic()
        with self._lock:
            while self._seen and next(iter(self._seen.values())) < now_s:
                self._seen.popitem(last=False)
            is_new = nonce not in self._seen
            self._seen.setdefault(nonce, now_s + 2 * WINDOW_S)
            return is_new


def _digest(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()
