"""Certificates: the API goes on with new ones when their files change.

A pair that does not serve is told in the log, and the one before stays.
"""

import os
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
        self.context = tls_context(settings)

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
            tls_context(self._settings)  # two files that do not belong together must not be taken
            cert, key = self._settings.tls_cert_file, self._settings.tls_key_file
            self.context.load_cert_chain(cert, key, password="")
            _log.info("certificate_read_again", path=cert)
        except OSError as error:
            cause = getattr(error, "reason", None) or error.strerror
            _log.error("certificate_refused", path=self._settings.tls_cert_file, cause=cause)

    def _follow(self) -> None:
        pause = threading.Event()
        while not pause.wait(LOOK_S):
            self.look()

    def _stamps(self) -> tuple[tuple[int, int], ...]:
        return tuple((told.st_mtime_ns, told.st_ino) for told in self._files())

    def _files(self) -> Iterator[os.stat_result]:
        for path in (self._settings.tls_cert_file, self._settings.tls_key_file):
            yield Path(path).stat()
