"""Token: what the instances of a service know each other by."""

import hmac
import time

from service.tokens import secret_of
from service.watched import Watched


class PeerToken:
    """The token that the instances of a service share, read again when its file changes."""

    def __init__(self, path: str) -> None:
        """OSError or ValueError where there is nothing to begin with."""
        self._file = Watched(path, secret_of, time.monotonic)

    @property
    def header(self) -> str:
        """What one instance sends to another as `Authorization`."""
        return f"Bearer {self._file.value()}"

    def matches(self, token: str) -> bool:
        """Whether a request bears it."""
        return hmac.compare_digest(
            token.encode("utf-8", "surrogateescape"), self._file.value().encode()
        )

    def admits(self, authorization: str | None) -> bool:
        """Whether it stands in `Authorization` as one instance sends it to another."""
        scheme, _, token = (authorization or "").partition(" ")
        return scheme.lower() == "bearer" and self.matches(token.strip())
