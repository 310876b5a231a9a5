"""TLS certificates of the server: read, checked, and read again when their files change."""

import os
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import structlog

from ringfence_service.config.model import ApiSettings
from ringfence_service.config.validation import tls_context

_log = structlog.stdlib.get_logger(__name__)

CHECK_EVERY_S: Final = 10.0
"""How soon a new certificate is used; a check only compares the times of three files.

Certificates are renewed before they expire, so nobody waits for it.
"""


class TlsCertificates:
    """The TLS certificates of the API; new connections use the latest valid files."""

    def __init__(self, settings: ApiSettings) -> None:
        """Read the files. Raise OSError if they are unusable."""
        self._settings = settings
        self._seen = self._stamps()
        self.context = self._newest = tls_context(settings)
        self.context.sni_callback = self._use_newest

    def follow(self) -> None:
        """Watch the files on a daemon thread, until the process ends."""
        thread = threading.Thread(target=self._follow, name="ringfence-tls", daemon=True)
        thread.start()

    def reload(self) -> None:
        """Reload the files if they have changed; keep the old certificates if they are unusable."""
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
        while not pause.wait(CHECK_EVERY_S):
            self.reload()

    def _stamps(self) -> tuple[tuple[int, int], ...]:
        return tuple((stat.st_mtime_ns, stat.st_ino) for stat in self._file_stats())

    def _file_stats(self) -> Iterator[os.stat_result]:
        settings = self._settings
        for path in (settings.tls_cert_file, settings.tls_key_file, settings.tls_client_ca_file):
            if path:
                yield Path(path).stat()
