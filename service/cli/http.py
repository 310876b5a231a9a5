"""HTTP client of the command line: requests to the admin API, with retries.

The only module that knows HTTP. A request that cannot be answered now (503, 429) is sent again
after `Retry-After`, as long as the user waits; a failure becomes a sentence and an exit code.
"""

import ssl
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Final, NamedTuple, Self
from urllib.parse import urlsplit

import httpx2

from service.cli.arguments import PAGE_MAX, Document, InputDocument
from service.cli.problem import ApiError
from service.cli.target import ApiTarget
from service.clock import product_version
from service.errors import AdminExit, ExitCode, ExitError
from service.http_errors import trouble_of
from service.urls import is_loopback, is_readable_on_the_way, url_problem

Response = httpx2.Response

Request = httpx2.Request

_AGAIN: Final = frozenset({429, 503})

_SAFE_TWICE: Final = frozenset({"GET", "POST"})
"""A POST bears a key; a PUT that was carried out would be refused by its own ETag."""

_STILL_RUNS: Final = "idempotency-in-progress"

_PAUSE_S: Final = 0.3

_CONNECT_MAX_S: Final = 5.0

_ANSWER_S: Final = 2.0


class _Retryable(NamedTuple):
    """What can be tried again, and what to tell where there is no time for it."""

    pause_s: float
    said: str
    error: ExitError


class HttpClient:
    """Requests to one API."""

    def __init__(self, where: ApiTarget, patience_s: float, note: Callable[[str], None]) -> None:
        self.url = where.url
        self.patience_s = patience_s
        self._note = note
        self._client = client_of(where, patience_s, note)

    def close(self) -> None:
        """Close its connections."""
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
        """Make a request; what is None is not asked for."""
        given: list[tuple[str, str | int | float | bool | None]] = [
            (name, _written(each)) for name, values in query.items() for each in _each(values)
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
            raise _no_url(self.url) from error

    def send(
        self, request: httpx2.Request, *, stream: bool = False, again: bool = True
    ) -> Response:
        """Return an answer that is none of errors; raise what a shell is told."""
        deadline_s = time.monotonic() + self.patience_s
        told = False
        while True:
            answer = self._tried(request, stream=stream)
            if isinstance(answer, Response):
                return answer
            if not again or time.monotonic() + answer.pause_s > deadline_s:
                raise answer.error
            if not told:
                self._note(f"Waiting: {answer.said}")
                told = True
            time.sleep(answer.pause_s)

    def _tried(self, request: httpx2.Request, *, stream: bool) -> "Response | _Retryable":
        """One attempt: an answer, or when to try again; raise what trying again does not mend."""
        try:
            answer = self._client.send(request, stream=stream)
        except (httpx2.ReadError, httpx2.RemoteProtocolError) as error:
            if request.method not in _SAFE_TWICE:
                raise self._unreached(error) from error
            return _Retryable(_PAUSE_S, "the connection broke.", self._unreached(error))
        except httpx2.TransportError as error:
            raise self._unreached(error) from error
        if not answer.is_error and not answer.is_redirect:
            return answer
        refusal = _refused(answer, self.url)
        if answer.status_code not in _AGAIN and refusal.kind != _STILL_RUNS:
            raise refusal
        return _Retryable(_retry_after_s(answer), refusal.sentence.splitlines()[0], refusal)

    def lines(self, request: Request) -> Iterator[str]:
        """Send it and return the lines of a long answer as they come."""
        answer = self.send(request, stream=True)
        try:
            yield from answer.iter_lines()
        except httpx2.TransportError as error:
            reason = trouble_of(error).reason
            sentence = f"The answer of {self.url} broke off ({reason}); run the command again."
            raise ExitError(AdminExit.UNREACHABLE, sentence) from error
        finally:
            answer.close()

    def _unreached(self, error: httpx2.TransportError) -> ExitError:
        """Tell why there is no answer, and what to look at."""
        code, reason = trouble_of(error)
        if isinstance(error, httpx2.ReadTimeout):
            mend = "look at its log, or wait longer with --timeout"
            sentence = f"{self.url} gave no answer within {self.patience_s:g} s; {mend}."
        elif code in {"certificate", "tls"}:
            mend = "name the file of its authority with --ca-file or RINGFENCE_CA_FILE"
            sentence = f"{self.url} shows a certificate that is not trusted ({reason}); {mend}."
        elif isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout):
            mend = "start the service, or tell where it is with --url or RINGFENCE_URL"
            sentence = f"Nothing answers at {self.url} ({reason}); {mend}."
        else:
            mend = "run the command again, or look at the service's log"
            sentence = f"The request to {self.url} got no answer ({reason}); {mend}."
        return ExitError(AdminExit.UNREACHABLE, sentence)


def client_of(where: ApiTarget, patience_s: float, note: Callable[[str], None]) -> httpx2.Client:
    """Return a client that shows the token; `note` is told where others can read that."""
    headers = {"User-Agent": f"ringfence/{product_version()}"}
    if where.token:
        headers["Authorization"] = f"Bearer {where.token}"
        if is_readable_on_the_way(where.url):
            note(f"The token goes to {where.url} in clear, and can be read on the way; use https.")
    try:
        # Certificates are loaded only for those who will look at one.
        verify: ssl.SSLContext | bool = urlsplit(where.url).scheme == "https"
        if where.ca_file is not None:
            verify = ssl.create_default_context(cafile=str(where.ca_file))
        return httpx2.Client(
            base_url=where.url,
            headers=headers,
            verify=verify,
            # The service may be asked to wait as long; its answer takes a moment more.
            timeout=httpx2.Timeout(patience_s + _ANSWER_S, connect=min(patience_s, _CONNECT_MAX_S)),
            # No proxy stands before this machine alone.
            trust_env=not is_loopback(urlsplit(where.url).hostname or ""),
        )
    except OSError as error:
        mend = "name a PEM file with --ca-file or RINGFENCE_CA_FILE"
        sentence = f"The certificates in {where.ca_file} cannot be read ({error}); {mend}."
        raise ExitError(ExitCode.USAGE, sentence) from error
    except (httpx2.InvalidURL, ValueError) as error:
        raise _no_url(where.url) from error


def _no_url(url: str) -> ExitError:
    return ExitError(ExitCode.USAGE, url_problem(url) or f"{url} is no address of an API.")


def _refused(answer: Response, url: str) -> ApiError:
    answer.read()
    answer.close()
    problem = _json(answer)
    if not isinstance(problem, dict) or "title" not in problem:
        detail = f"{url} answered {answer.status_code} and no reason; is it Ringfence's admin API?"
        problem = {"detail": detail}
    return ApiError(answer.status_code, problem)


def document_of(answer: Response) -> Document:
    """The document of an answer; without content an empty one."""
    if not answer.content:
        return {}
    document = _json(answer)
    if not isinstance(document, dict):
        sentence = (
            f"{answer.request.url.host} answered no document; is it the admin API of Ringfence?"
        )
        raise ExitError(AdminExit.UNREACHABLE, sentence)
    return document


def _json(answer: Response) -> object:
    try:
        told: object = answer.json()
    except ValueError:
        return None
    return told


def _retry_after_s(answer: Response) -> float:
    try:
        return max(_PAUSE_S, float(answer.headers.get("retry-after", "1")))
    except ValueError:
        return 1.0


def _each(values: object) -> Sequence[object]:
    """The values of one parameter: none, one, or several."""
    if values is None:
        return ()
    return values if isinstance(values, list | tuple) else (values,)


def _written(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


NDJSON: Final = "application/x-ndjson"


class AdminApi:
    """One admin API."""

    def __init__(self, where: ApiTarget, patience_s: float, note: Callable[[str], None]) -> None:
        self._wire = HttpClient(where, patience_s, note)
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
        self._wire.close()

    def get(self, path: str, /, **query: object) -> Document:
        """Return a document."""
        return self.read(path, **query).document

    def read(self, path: str, /, **query: object) -> InputDocument:
        """Return a document with its ETag."""
        answer = self._answer("GET", path, query)
        return InputDocument(document_of(answer), answer.headers.get("etag"))

    def post(
        self, path: str, body: object = None, etag: str | None = None, /, **query: object
    ) -> Document:
        """Have something done; once, however often it is tried."""
        key = {"Idempotency-Key": uuid.uuid4().hex}
        key |= {} if etag is None else {"If-Match": etag}
        return document_of(self._answer("POST", path, query, body=body, headers=key))

    def put(self, path: str, body: object, etag: str | None = None, /, **query: object) -> Document:
        """Set a document; with an ETag only where it still is what was read."""
        condition = {} if etag is None else {"If-Match": etag}
        return document_of(self._answer("PUT", path, query, body=body, headers=condition))

    def create(self, path: str, body: object, /, **query: object) -> Document:
        """Set a document where there is none."""
        condition = {"If-None-Match": "*"}
        return document_of(self._answer("PUT", path, query, body=body, headers=condition))

    def delete(self, path: str, etag: str | None = None, /, **query: object) -> Document:
        """Remove a document."""
        condition = {} if etag is None else {"If-Match": etag}
        return document_of(self._answer("DELETE", path, query, headers=condition))

    def lines(self, path: str, /, **query: object) -> Iterator[str]:
        """Return the lines of a long answer as they come."""
        headers = {"Accept": NDJSON}
        return self._wire.lines(self._wire.request("GET", path, query, headers=headers))

    def upload(self, path: str, content: Iterator[bytes], /, **query: object) -> Document:
        """Send lines as they are read; they can be read once, so this is tried once."""
        headers = {
            "Idempotency-Key": uuid.uuid4().hex,
            "Content-Type": NDJSON,
        }
        request = self._wire.request("POST", path, query, content=content, headers=headers)
        return document_of(self._wire.send(request, again=False))

    def pages(self, path: str, items: str, most: int, /, **query: object) -> Document:
        """Return a list as one document, read page by page, at most so many items."""
        whole: Document = {}
        while True:
            rest = most - len(whole.get(items, ()))
            page = self.get(path, **{**query, "page_size": min(rest, PAGE_MAX)})
            whole = {**page, items: [*whole.get(items, ()), *page[items]]}
            token = page["next_page_token"]
            if not token or len(whole[items]) >= most:
                return whole
            query["page_token"] = token

    def _answer(
        self,
        method: str,
        path: str,
        query: Mapping[str, object],
        *,
        body: object = None,
        headers: Mapping[str, str] | None = None,
    ) -> Response:
        return self._wire.send(self._wire.request(method, path, query, body=body, headers=headers))
