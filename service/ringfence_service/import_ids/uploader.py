"""Uploader: sends ids to the admin API of the running service, which imports them.

Lines of one address keep their order. A request that the service cannot answer now is sent again:
importing an id that is known already changes nothing.
"""

import json
import time
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import quote

import httpx2

from ringfence_service.errors import ExitCode, ExitError
from ringfence_service.http_errors import trouble_of
from ringfence_service.import_ids.source import IdLine

_LINES_AT_ONCE: Final = 2_000
"""Lines of one request; fewer than a batch of the API (4,000), so a request is one batch."""
_BYTES_AT_ONCE: Final = 4 * 1024 * 1024
"""Bytes of one request, for long ids: as much as a batch of the API."""
_LINES_HELD_MAX: Final = 50_000
"""Lines held of all addresses. Then all are sent, though no address fills a request.

With many small addresses a larger number gives fewer requests, and takes more memory.
"""
_BYTES_HELD_MAX: Final = 32 * 1024 * 1024
"""Lines are counted in bytes too: an id may have 64 KiB."""
_LATER: Final = frozenset({429, 503})


@dataclass(slots=True)
class UploadCount:
    """Numbers of ids of one address: all, and those that were not known before."""

    ids: int = 0
    new: int = 0


@dataclass(slots=True)
class Uploader:
    """Collects ids by address and sends them in requests of limited lines and bytes."""

    client: httpx2.Client
    """Client of the API, with its URL and token."""
    query: dict[str, str]
    patience_s: float = 60.0
    counts: dict[str, UploadCount] = field(default_factory=lambda: defaultdict(UploadCount))
    _held: dict[str, list[bytes]] = field(default_factory=lambda: defaultdict(list))
    _sizes_bytes: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    """Bytes of the lines held, by address."""
    _held_count: int = 0
    _held_bytes: int = 0

    def add(self, line: IdLine) -> None:
        """Queue an id; it is sent with others of its address."""
        lines = self._held[line.address]
        text = json.dumps(line.row, separators=(",", ":")).encode()
        lines.append(text)
        self._sizes_bytes[line.address] += len(text)
        self._held_count += 1
        self._held_bytes += len(text)
        if len(lines) >= _LINES_AT_ONCE or self._sizes_bytes[line.address] >= _BYTES_AT_ONCE:
            self._send(line.address)
        elif self._held_count >= _LINES_HELD_MAX or self._held_bytes >= _BYTES_HELD_MAX:
            self.flush()

    def flush(self) -> None:
        """Send all queued ids."""
        for address in list(self._held):
            self._send(address)

    def _send(self, address: str) -> None:
        lines = self._held.pop(address)
        self._held_count -= len(lines)
        self._held_bytes -= self._sizes_bytes.pop(address)
        segment = address.replace(".", "%2E") if address in {".", ".."} else quote(address, safe="")
        request = self.client.build_request(
            "POST",
            f"/v1/addresses/{segment}/ids:import",
            content=b"\n".join(lines),
            headers={"Content-Type": "application/x-ndjson"},
            params=self.query,
        )
        payload = payload_of(self.client, request, self.patience_s)
        count = self.counts[address]
        count.ids += int(payload["ids"])
        count.new += int(payload["new"])


def payload_of(client: httpx2.Client, request: httpx2.Request, patience_s: float) -> dict[str, Any]:
    """Send a request and return the response; retry while the API cannot answer now.

    Raises ExitError if the API is unreachable, refuses, or is still busy after `patience_s`.
    """
    deadline = time.monotonic() + patience_s
    while True:
        try:
            reply = client.send(request)
        except httpx2.TransportError as error:
            sentence = (
                f"{client.base_url} gives no answer ({trouble_of(error).reason}); start the "
                "service, or name its URL with --url, then adopt again: ids that are known "
                "already do not change."
            )
            raise ExitError(ExitCode.BROKER, sentence) from error
        if reply.is_success:
            document: dict[str, Any] = reply.json()
            return document
        if reply.status_code not in _LATER or time.monotonic() > deadline:
            raise _refused(reply)
        time.sleep(min(5.0, float(reply.headers.get("Retry-After", "1"))))


def _refused(reply: httpx2.Response) -> ExitError:
    try:
        detail = str(reply.json()["detail"])
    except (ValueError, KeyError, TypeError):
        detail = f"it answered {reply.status_code}; is it Ringfence's admin API?"
    return ExitError(ExitCode.NO, f"{reply.url.host} refused the import: {detail}")
