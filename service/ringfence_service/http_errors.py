"""HTTP errors: why a request got no response, as a code and a reason.

The text of an exception is never shown: that of an invalid header contains the header, and so the
token. What the operating system and the TLS library report about a connection contains no secret.
"""

import os
import ssl
from collections.abc import Iterator
from typing import Final, Literal, NamedTuple

import httpx2

Code = Literal["timeout", "certificate", "tls", "unreachable", "broken", "not-sent"]
_REASONS: Final[dict[Code, str]] = {
    "timeout": "no answer in time",
    "certificate": "its certificate is not trusted",
    "tls": "the TLS handshake failed",
    "unreachable": "no connection",
    "broken": "the connection broke",
    "not-sent": "the request is invalid",
}


class RequestFailure(NamedTuple):
    """Why a request got no response."""

    code: Code
    reason: str


def trouble_of(error: httpx2.HTTPError | httpx2.InvalidURL) -> RequestFailure:
    """Return the code of an exception, and the most specific reason among its causes."""
    code, reason = _code_of(error), None
    for cause in _causes(error):
        if isinstance(cause, ssl.SSLCertVerificationError):
            code, reason = "certificate", cause.verify_message
        elif isinstance(cause, ssl.SSLError):
            code, reason = "tls", cause.reason
        elif isinstance(cause, OSError) and cause.errno is not None:
            # A negative number comes from the resolver, which has its own texts.
            reason = os.strerror(cause.errno) if cause.errno > 0 else cause.strerror
    return RequestFailure(code, reason or _REASONS[code])


def _code_of(error: Exception) -> Code:
    if isinstance(error, httpx2.TimeoutException):
        return "timeout"
    if isinstance(error, httpx2.ConnectError):
        return "unreachable"
    if isinstance(error, httpx2.ReadError | httpx2.WriteError | httpx2.RemoteProtocolError):
        return "broken"
    return "not-sent"


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__
