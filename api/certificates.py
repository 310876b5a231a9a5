"""Certificates: the API goes on with new ones when their files change.

Each connection uses what the files held last: the certificate, its key, and the authorities of
clients. Files that do not serve are told in the log, and what they held before stays.
"""

import os
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import structlog

from service.api_checks import tls_context
from service.sections import ApiSettings

LOOK_S: Final = 10.0
_log = structlog.stdlib.get_logger(__name__)


class Certificates:
    """What the API speaks TLS with; new connections use what the files held last."""

    def __init__(self, settings: ApiSettings) -> None:
        """Raises OSError where the files do not serve."""
        self._settings = settings
        self._seen = self._stamps()
        self.context = self._newest = tls_context(settings)
        self.context.sni_callback = self._use_newest

    def follow(self) -> None:
        """Look at the files for as long as the process lives, on a thread of its own."""
        thread = threading.Thread(target=self._follow, name="ringfence-tls", daemon=True)
        thread.start()

    def look(self) -> None:
        """Take what the files hold now, if it is new and serves."""
        try:
            stamps = self._stamps()
            if stamps == self._seen:
                return
            self._seen = stamps
            self._newest = tls_context(self._settings)
            _log.info("certificate_read_again", path=self._settings.tls_cert_file)
        except OSError as error:
            cause = getattr(error, "reason", None) or error.strerror
            _log.error("certificate_refused", path=self._settings.tls_cert_file, cause=cause)

    def _use_newest(
        self, connection: ssl.SSLSocket | ssl.SSLObject, _name: str | None, _first: ssl.SSLContext
    ) -> None:
        connection.context = self._newest

    def _follow(self) -> None:
        pause = threading.Event()
        while not pause.wait(LOOK_S):
            self.look()

    def _stamps(self) -> tuple[tuple[int, int], ...]:
        return tuple((told.st_mtime_ns, told.st_ino) for told in self._files())

    def _files(self) -> Iterator[os.stat_result]:
        told = self._settings
        for path in (told.tls_cert_file, told.tls_key_file, told.tls_client_ca_file):
            if path:
                yield Path(path).stat()
