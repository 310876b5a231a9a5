"""The client: documents of the admin API, read and changed.

Every POST bears a key, so that trying again never does a thing twice. A document that is to be
changed is read first and put back with its ETag, so that nobody's change is lost.
"""

import uuid
from collections.abc import Callable, Iterator, Mapping
from types import TracebackType
from typing import Final, Self

from service.commands.documents import PAGE_MAX, Document, Read
from service.commands.where import Where
from service.commands.wire import Response, Wire, document_of

NDJSON: Final = "application/x-ndjson"


class Api:
    """One admin API."""

    def __init__(self, where: Where, patience_s: float, note: Callable[[str], None]) -> None:
        self._wire = Wire(where, patience_s, note)
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

    def read(self, path: str, /, **query: object) -> Read:
        """Return a document with its ETag."""
        answer = self._answer("GET", path, query)
        return Read(document_of(answer), answer.headers.get("etag"))

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
