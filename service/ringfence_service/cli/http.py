"""HTTP client of the command line: requests to the admin API, with retries.

The only module that uses HTTP. A request that the API cannot serve now (503, 429) is sent again
after `Retry-After`, up to the timeout; a failure becomes a sentence and an exit code.
"""

import ssl
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Final, NamedTuple, Self
from urllib.parse import urlsplit

import httpx2

from ringfence_service.cli.arguments import PAGE_MAX, Document, InputDocument
from ringfence_service.cli.problem import ApiError
from ringfence_service.cli.target import ApiTarget
from ringfence_service.clock import product_version
from ringfence_service.errors import AdminExit, ExitCode, ExitError
from ringfence_service.http_errors import trouble_of
from ringfence_service.urls import is_loopback, is_readable_on_the_way, url_problem

Response = httpx2.Response

Request = httpx2.Request

_AGAIN: Final = frozenset({429, 503})

_SAFE_TWICE: Final = frozenset({"GET", "POST"})
"""Methods to repeat after a broken connection.

A POST has an idempotency key. A PUT that was carried out would be rejected for its old ETag.
"""

_STILL_RUNS: Final = "idempotency-in-progress"

_PAUSE_S: Final = 0.3
"""Shortest pause before a request is sent again, and the one after a broken connection.

The user waits, but a busy service must not be asked all the time.
"""

_CONNECT_MAX_S: Final = 5.0
"""How long a connection may take at most, however long `--timeout` is.

So a URL at which nothing answers is reported soon.
"""

_ANSWER_S: Final = 2.0
"""How much longer than `--timeout` a response may take.

A request may make the service wait as long as that, plus a moment to respond.
"""

_NO_TLS: Final = frozenset({"WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE"})
"""What OpenSSL says of an answer that is no TLS at all, by its version."""


class _Retryable(NamedTuple):
    """A failure that may pass: when to retry, and the error to raise at the deadline."""

    pause_s: float
    message: str
    error: ExitError


class HttpClient:
    """Sends requests to one API."""

    def __init__(self, where: ApiTarget, patience_s: float, note: Callable[[str], None]) -> None:
        self.url = where.url
        self.patience_s = patience_s
        self._note = note
        self._client = client_of(where, patience_s, note)

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def request(
        self,
        method: str,
        path: str,
        query: Mapping[str, object],
        *,
        body: object = None,
        content: Iterator[bytes] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Request:
        """Build a request; query parameters that are None are left out."""
        given: list[tuple[str, str | int | float | bool | None]] = [
            (name, _query_value(each))
            for name, values in query.items()
            for each in _values_of(values)
        ]
        try:
            return self._client.build_request(
                method,
                self.url + path,
                params=given,
                json=body,
                content=content,
                headers=headers,
            )
        except (httpx2.InvalidURL, ValueError) as error:
            raise _invalid_url(self.url) from error

    def send(
        self, request: httpx2.Request, *, stream: bool = False, again: bool = True
    ) -> Response:
        """Send a request and return the response; raise ExitError for a failure.

        With `again`, retry until the timeout.
        """
        deadline_s = time.monotonic() + self.patience_s
        has_noted = False
        while True:
            outcome = self._attempt(request, stream=stream)
            if isinstance(outcome, Response):
                return outcome
            if not again or time.monotonic() + outcome.pause_s > deadline_s:
                raise outcome.error
            if not has_noted:
                self._note(f"Waiting: {outcome.message}")
                has_noted = True
            time.sleep(outcome.pause_s)

    def _attempt(self, request: httpx2.Request, *, stream: bool) -> "Response | _Retryable":
        """Send once; return the response or a retryable failure, raise ExitError for any other."""
        try:
            response = self._client.send(request, stream=stream)
        except (httpx2.ReadError, httpx2.RemoteProtocolError) as error:
            if request.method not in _SAFE_TWICE:
                raise self._unreachable(error) from error
            return _Retryable(_PAUSE_S, "the connection broke.", self._unreachable(error))
        except httpx2.TransportError as error:
            raise self._unreachable(error) from error
        if not response.is_error and not response.is_redirect:
            return response
        refusal = _api_error(response, self.url)
        if response.status_code not in _AGAIN and refusal.kind != _STILL_RUNS:
            raise refusal
        return _Retryable(_retry_after_s(response), refusal.sentence.splitlines()[0], refusal)

    def lines(self, request: Request) -> Iterator[str]:
        """Send a request and yield the lines of its streamed response."""
        response = self.send(request, stream=True)
        try:
            yield from response.iter_lines()
        except httpx2.TransportError as error:
            reason = trouble_of(error).reason
            sentence = f"The response of {self.url} broke off ({reason}); run the command again."
            raise ExitError(AdminExit.UNREACHABLE, sentence) from error
        finally:
            response.close()

    def _unreachable(self, error: httpx2.TransportError) -> ExitError:
        """Return the error for a request without a response: why, and what to do."""
        code, reason = trouble_of(error)
        if isinstance(error, httpx2.ReadTimeout):
            fix = "look at the service's log, or wait longer with --timeout"
            sentence = f"{self.url} did not answer within {self.patience_s:g} s; {fix}."
        elif code == "tls" and reason in _NO_TLS:
            sentence = f"{self.url} does not speak TLS: write http:// in --url or RINGFENCE_URL."
        elif code in {"certificate", "tls"}:
            fix = "name the file of its authority with --ca-file or RINGFENCE_CA_FILE"
            sentence = f"{self.url} has a certificate that is not trusted ({reason}); {fix}."
        elif isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout):
            fix = "start the service, or set its URL with --url or RINGFENCE_URL"
            sentence = f"Nothing answers at {self.url} ({reason}); {fix}."
        else:
            fix = "run the command again, or look at the service's log"
            sentence = f"The request to {self.url} got no response ({reason}); {fix}."
        return ExitError(AdminExit.UNREACHABLE, sentence)


def client_of(where: ApiTarget, patience_s: float, note: Callable[[str], None]) -> httpx2.Client:
    """Return a client that sends the token; `note` receives a warning if others can read it.

    Raises ExitError for an invalid URL or an unreadable certificate file.
    """
    headers = {"User-Agent": f"ringfence/{product_version()}"}
    if where.token:
        headers["Authorization"] = f"Bearer {where.token}"
        if is_readable_on_the_way(where.url):
            note(f"The token is sent to {where.url} unencrypted; use https.")
    try:
        # Loading certificates is slow, so only https loads them.
        verify: ssl.SSLContext | bool = urlsplit(where.url).scheme == "https"
        if where.ca_file is not None:
            verify = ssl.create_default_context(cafile=str(where.ca_file))
        return httpx2.Client(
            base_url=where.url,
            headers=headers,
            verify=verify,
            timeout=httpx2.Timeout(patience_s + _ANSWER_S, connect=min(patience_s, _CONNECT_MAX_S)),
            # A proxy of the environment is never used for the own machine.
            trust_env=not is_loopback(urlsplit(where.url).hostname or ""),
        )
    except OSError as error:
        fix = "name a PEM file with --ca-file or RINGFENCE_CA_FILE"
        sentence = f"The certificates in {where.ca_file} cannot be read ({error}); {fix}."
        raise ExitError(ExitCode.USAGE, sentence) from error
    except (httpx2.InvalidURL, ValueError) as error:
        raise _invalid_url(where.url) from error


def _invalid_url(url: str) -> ExitError:
    return ExitError(ExitCode.USAGE, url_problem(url) or f"{url} is not the URL of an API.")


def _api_error(response: Response, url: str) -> ApiError:
    response.read()
    response.close()
    problem = _json(response)
    if not isinstance(problem, dict) or "title" not in problem:
        detail = (
            f"{url} returned {response.status_code} and no reason; is it Ringfence's admin API?"
        )
        problem = {"detail": detail}
    return ApiError(response.status_code, problem)


def document_of(response: Response) -> Document:
    """Return the JSON object of a response; an empty one without content.

    Raises ExitError when the body is anything else.
    """
    if not response.content:
        return {}
    document = _json(response)
    if not isinstance(document, dict):
        sentence = (
            f"{response.request.url.host} returned no JSON object; is it Ringfence's admin API?"
        )
        raise ExitError(AdminExit.UNREACHABLE, sentence)
    return document


def _json(response: Response) -> object:
    try:
        body: object = response.json()
    except ValueError:
        return None
    return body


def _retry_after_s(response: Response) -> float:
    try:
        return max(_PAUSE_S, float(response.headers.get("retry-after", "1")))
    except ValueError:
        return 1.0


def _values_of(values: object) -> Sequence[object]:
    """Return the values of one parameter: none, one, or several."""
    if values is None:
        return ()
    return values if isinstance(values, list | tuple) else (values,)


def _query_value(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


NDJSON: Final = "application/x-ndjson"


class AdminApi:
    """The admin API; every method raises ExitError for a failure."""

    def __init__(self, where: ApiTarget, patience_s: float, note: Callable[[str], None]) -> None:
        self._http = HttpClient(where, patience_s, note)
        self.url = where.url
        self.patience_s = patience_s

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _failure: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        self._http.close()

    def get(self, path: str, /, **query: object) -> Document:
        """Return a document."""
        return self.read(path, **query).document

    def read(self, path: str, /, **query: object) -> InputDocument:
        """Return a document with its ETag."""
        response = self._send("GET", path, query)
        return InputDocument(document_of(response), response.headers.get("etag"))

    def post(
        self, path: str, body: object = None, etag: str | None = None, /, **query: object
    ) -> Document:
        """Send a POST with an idempotency key, so that retries do it once."""
        key = {"Idempotency-Key": uuid.uuid4().hex}
        key |= {} if etag is None else {"If-Match": etag}
        return document_of(self._send("POST", path, query, body=body, headers=key))

    def put(self, path: str, body: object, etag: str | None = None, /, **query: object) -> Document:
        """Replace a document; with an ETag only if it is unchanged since."""
        condition = {} if etag is None else {"If-Match": etag}
        return document_of(self._send("PUT", path, query, body=body, headers=condition))

    def create(self, path: str, body: object, /, **query: object) -> Document:
        """Create a document that must not exist yet."""
        condition = {"If-None-Match": "*"}
        return document_of(self._send("PUT", path, query, body=body, headers=condition))

    def delete(self, path: str, etag: str | None = None, /, **query: object) -> Document:
        """Delete a document; with an ETag only if it is unchanged since."""
        condition = {} if etag is None else {"If-Match": etag}
        return document_of(self._send("DELETE", path, query, headers=condition))

    def lines(self, path: str, /, **query: object) -> Iterator[str]:
        """Yield the lines of a streamed NDJSON response."""
        headers = {"Accept": NDJSON}
        return self._http.lines(self._http.request("GET", path, query, headers=headers))

    def upload(self, path: str, content: Iterator[bytes], /, **query: object) -> Document:
        """Stream lines to the API; they can be read only once, so there is no retry."""
        headers = {
            "Idempotency-Key": uuid.uuid4().hex,
            "Content-Type": NDJSON,
        }
        request = self._http.request("POST", path, query, content=content, headers=headers)
        return document_of(self._http.send(request, again=False))

    def pages(self, path: str, items: str, most: int, /, **query: object) -> Document:
        """Return a list, read page by page, as one document with at most `most` items."""
        whole: Document = {}
        while True:
            rest = most - len(whole.get(items, ()))
            page = self.get(path, **{**query, "page_size": min(rest, PAGE_MAX)})
            whole = {**page, items: [*whole.get(items, ()), *page[items]]}
            token = page["next_page_token"]
            if not token or len(whole[items]) >= most:
                return whole
            query["page_token"] = token

    def _send(
        self,
        method: str,
        path: str,
        query: Mapping[str, object],
        *,
        body: object = None,
        headers: Mapping[str, str] | None = None,
    ) -> Response:
        return self._http.send(self._http.request(method, path, query, body=body, headers=headers))
