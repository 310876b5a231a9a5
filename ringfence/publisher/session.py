"""Session: a publisher logs on at the admin API, and gets its epoch and its last number.

Invariant: when `open` has returned, no message with an older epoch is accepted any more, so
messages above `accepted` have to be sent again, and a copy in transit cannot double them.
"""

import json
import re
import urllib.error
import urllib.request
from collections.abc import Mapping
from http.client import HTTPException
from typing import Any, Final, NamedTuple, Protocol
from urllib.parse import quote

from ringfence.publisher.errors import AwayError, NameInUseError, PublisherError, RefusedError

_TIMEOUT_S: Final = 30.0
"""More than the service takes to see that its partitions do not follow."""
_TRY_AGAIN: Final = frozenset({408, 409, 425, 429})
_NO_SUCH_QUESTION: Final = frozenset({404, 405})
_TOKEN: Final = re.compile(r"[!-~]+")


class Session(NamedTuple):
    """What the service says at logon."""

    epoch: int
    """0 when none is open."""
    accepted: int
    """The highest number of the publisher on its address; 0 for none."""


class SessionClient(Protocol):
    """Where a publisher logs on. AwayError: not now; StoppedError: never."""

    def open(self) -> Session:
        """Begin a session, which ends the older ones of the same user."""
        ...

    def look_up(self) -> Session | None:
        """The session that holds the name; None when the service does not tell."""
        ...


class HttpSessionClient:
    """Sessions at the admin API of a service; ValueError for what is no URL, or no token."""

    def __init__(
        self, admin_url: str, publisher: str, address: str, user: str, token: str | None = None
    ) -> None:
        if "@" in admin_url:
            raise ValueError(
                "admin_url holds a user or a password; leave it out, and give a token."
            )
        if not admin_url.startswith(("http://", "https://")):
            raise ValueError(f"admin_url is {admin_url!r}; it begins with http:// or https://.")
        if token is not None and not _TOKEN.fullmatch(token):
            raise ValueError("token is not one line of visible ASCII without spaces.")
        self._url = f"{admin_url.rstrip('/')}/v1/publishers/{quote(publisher, safe='')}"
        self._publisher = publisher
        self._address = address
        self._user = user
        self._headers = {"Accept": "application/json"}
        if token is not None:
            self._headers["Authorization"] = f"Bearer {token}"

    def open(self) -> Session:
        """See `SessionClient.open`."""
        return self._session(self._ask("PUT", "/session", {"user": self._user}))

    def look_up(self) -> Session | None:
        """See `SessionClient.look_up`."""
        try:
            return self._session(self._ask("GET", ""))
        except _MethodUnknownError:
            return None

    def _ask(self, method: str, path: str, body: Mapping[str, str] | None = None) -> object:
        data = None if body is None else json.dumps(body).encode()
        headers = {**self._headers, "Content-Type": "application/json"}
        request = urllib.request.Request(  # noqa: S310 - the user's own URL
            self._url + path, data=data, method=method, headers=headers
        )
        try:
            with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as answer:  # noqa: S310
                document: object = json.loads(answer.read())
        except urllib.error.HTTPError as refusal:
            with refusal:
                raise self._problem(method, refusal) from None
        except (OSError, HTTPException, ValueError) as error:  # no answer, half of one, no JSON
            raise AwayError(f"{self._url} gives no answer: {error}.") from error
        return document

    def _session(self, document: object) -> Session:
        answer: Any = document
        try:
            # Highest of all: a name that has written two partitions stays above both.
            numbers = [
                int(each["sequence"])
                for each in answer["sequences"]
                if each["address"] == self._address
            ]
            if not numbers and not answer["complete"]:
                raise AwayError(
                    f"{self._url} knows nothing of address {self._address}, and does not speak"
                    " for all partitions."
                )
            return Session(int(answer["epoch"] or 0), max(numbers, default=0))
        except (KeyError, TypeError, ValueError) as error:
            raise AwayError(f"{self._url} answers with something else: {error!r}.") from error

    def _problem(self, method: str, refusal: urllib.error.HTTPError) -> PublisherError:
        kind, detail = _told(refusal)
        sentence = f"{self._url} answers {refusal.code}: {detail or refusal.reason}"
        if refusal.code == 409 and kind.endswith("name-in-use"):
            return NameInUseError(f"{sentence} Choose another name, or end that session.")
        if method == "GET" and refusal.code in _NO_SUCH_QUESTION:
            return _MethodUnknownError(sentence)
        if refusal.code in _TRY_AGAIN or refusal.code >= 500:
            return AwayError(sentence, _seconds(refusal.headers.get("Retry-After")))
        return RefusedError(sentence)


class _MethodUnknownError(PublisherError):
    """The service has no answer to this method."""


def _told(refusal: urllib.error.HTTPError) -> tuple[str, str]:
    """Type and detail of a problem document; empty where it is none."""
    try:
        problem = json.loads(refusal.read())
        return str(problem.get("type", "")), str(problem.get("detail") or problem.get("title", ""))
    except (OSError, HTTPException, ValueError, AttributeError):
        return "", ""


def _seconds(retry_after: str | None) -> float:
    """The header's wish; 0 where it is absent or a date."""
    return float(retry_after) if retry_after is not None and retry_after.isdecimal() else 0.0
