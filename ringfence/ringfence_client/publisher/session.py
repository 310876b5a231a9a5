"""Publisher session: logs on at the admin API and receives the epoch and the last number.

No redirect is followed: it would take the token to wherever it points.

Invariant: once `open` has returned, no message with an older epoch is accepted any more. So all
messages above `accepted` have to be sent again, and a copy in transit cannot duplicate them.
"""

import json
import re
import urllib.error
import urllib.request
from collections.abc import Mapping
from http.client import HTTPException
from typing import Any, Final, NamedTuple, Protocol
from urllib.parse import quote

from ringfence_client.publisher.errors import (
    AwayError,
    NameInUseError,
    PublisherError,
    RefusedError,
)

_TIMEOUT_S: Final = 30.0
"""Longer than the service waits for its partitions to apply a new epoch."""
_RESPONSE_BYTES_MAX: Final = 64 * 1024 * 1024
"""Several hundred thousand addresses of one publisher; no more is read into memory."""
_PROBLEM_BYTES_MAX: Final = 64 * 1024
"""More than any problem document of the service; a proxy may answer with a page of any length.

A longer document is cut, so it is not read, and the error names the status alone.
"""
_TRY_AGAIN: Final = frozenset({408, 409, 425, 429})
_METHOD_UNKNOWN: Final = frozenset({404, 405})
_TOKEN: Final = re.compile(r"[!-~]+")


class Session(NamedTuple):
    """The service's response to a logon."""

    epoch: int
    """0 when no session is open."""
    accepted: int
    """The highest accepted number of the publisher on its address, or 0."""


class SessionClient(Protocol):
    """Where a publisher logs on.

    Both methods raise AwayError when a retry may succeed, and StoppedError when it cannot.
    """

    def open(self) -> Session:
        """Open a session, which ends the older ones of the same user."""
        ...

    def look_up(self) -> Session | None:
        """Return the session that holds the name; None when the service does not report it."""
        ...


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Makes a redirect an error."""

    def redirect_request(self, *_: object) -> None:
        """Return no request, so that the response is raised."""


class HttpSessionClient:
    """Opens and reads sessions through the admin API of a service.

    The constructor raises ValueError for an invalid URL or token.
    """

    def __init__(
        self, admin_url: str, publisher: str, address: str, user: str, token: str | None = None
    ) -> None:
        if "@" in admin_url:
            raise ValueError(
                "admin_url contains a user or a password; leave it out and pass a token."
            )
        if not admin_url.startswith(("http://", "https://")):
            raise ValueError(f"admin_url is {admin_url!r}; it begins with http:// or https://.")
        if token is not None and not _TOKEN.fullmatch(token):
            raise ValueError("token must be one line of visible ASCII characters without spaces.")
        self._opener = urllib.request.build_opener(_NoRedirects)
        self._url = f"{admin_url.rstrip('/')}/v1/publishers/{quote(publisher, safe='')}"
        self._address = address
        self._user = user
        self._headers = {"Accept": "application/json"}
        if token is not None:
            self._headers["Authorization"] = f"Bearer {token}"

    def open(self) -> Session:
        """Open a session, which ends the older ones of the same user."""
        return self._session(self._request("PUT", "/session", {"user": self._user}))

    def look_up(self) -> Session | None:
        """Return the session that holds the name; None when the service does not report it."""
        try:
            return self._session(self._request("GET", ""))
        except _MethodUnknownError:
            return None

    def _request(self, method: str, path: str, body: Mapping[str, str] | None = None) -> object:
        data = None if body is None else json.dumps(body).encode()
        headers = {**self._headers, "Content-Type": "application/json"}
        request = urllib.request.Request(  # noqa: S310 - the user's own URL
            self._url + path, data=data, method=method, headers=headers
        )
        try:
            with self._opener.open(request, timeout=_TIMEOUT_S) as response:
                text = response.read(_RESPONSE_BYTES_MAX + 1)
            if len(text) > _RESPONSE_BYTES_MAX:
                raise ValueError(f"it is longer than {_RESPONSE_BYTES_MAX} bytes")
            document: object = json.loads(text)
        except urllib.error.HTTPError as refusal:
            with refusal:
                raise self._error(method, refusal) from None
        except (OSError, HTTPException, ValueError) as error:  # none, a truncated one, not JSON
            raise AwayError(f"{self._url} gives no answer: {error}.") from error
        return document

    def _session(self, document: object) -> Session:
        response: Any = document
        try:
            # The maximum, since a name that has written two partitions must stay above both.
            numbers = [
                int(each["sequence"])
                for each in response["sequences"]
                if each["address"] == self._address
            ]
            if not numbers and not response["complete"]:
                raise AwayError(
                    f"{self._url} reports no number for address {self._address}, and not all"
                    " partitions have answered."
                )
            return Session(int(response["epoch"] or 0), max(numbers, default=0))
        except (KeyError, TypeError, ValueError) as error:
            raise AwayError(f"{self._url} gives an unexpected response: {error!r}.") from error

    def _error(self, method: str, refusal: urllib.error.HTTPError) -> PublisherError:
        location = refusal.headers.get("Location")
        if 300 <= refusal.code < 400 and location is not None:
            return RefusedError(
                f"{self._url} answers {refusal.code} and redirects to {location[:200]!r}, which is"
                " not followed, since the token would go there; set admin_url to where the"
                " service is."
            )
        kind, detail = _problem_of(refusal)
        sentence = f"{self._url} answers {refusal.code}: {detail or refusal.reason}"
        if kind.endswith("name-in-use"):
            return NameInUseError(f"{sentence} Choose another name, or end that session.")
        if method == "GET" and refusal.code in _METHOD_UNKNOWN:
            return _MethodUnknownError(sentence)
        if refusal.code in _TRY_AGAIN or refusal.code >= 500:
            return AwayError(sentence, _seconds(refusal.headers.get("Retry-After")))
        return RefusedError(sentence)


class _MethodUnknownError(PublisherError):
    """The service does not know this method."""


def _problem_of(refusal: urllib.error.HTTPError) -> tuple[str, str]:
    """Return type and detail of a problem document; empty strings for any other body."""
    try:
        problem = json.loads(refusal.read(_PROBLEM_BYTES_MAX))
        return str(problem.get("type", "")), str(problem.get("detail") or problem.get("title", ""))
    except (OSError, HTTPException, ValueError, AttributeError):
        return "", ""


def _seconds(retry_after: str | None) -> float:
    """Return the seconds of a Retry-After header; 0 if it is absent or a date."""
    return float(retry_after) if retry_after is not None and retry_after.isdecimal() else 0.0
