"""File watcher: the content of a file, read again when the file changes.

The file is checked at most once a second. If it cannot be read, its last content stays effective,
the error is logged once, and `is_refused` is true until a content has been read: one wrong line
must not lock everybody out, and a line that was removed in the same edit must not be taken for
removed.
"""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final, Generic, TypeVar

import structlog

T = TypeVar("T")
_Stamp = tuple[int, int, int]

_CHECK_S: Final = 1.0
"""How often a file is checked at most: every request asks, and a removed token works so long."""
_log = structlog.stdlib.get_logger(__name__)


class WatchedFile(Generic[T]):
    """One file and its parsed content. Safe on any thread."""

    def __init__(
        self, path: str, read: Callable[[str], T], monotonic_s: Callable[[], float]
    ) -> None:
        """Read the file; what `read` or the file raises comes through, since there is no old value.

        `read` parses the content. It raises ValueError with a sentence that quotes nothing of the
        file, because that sentence is logged.
        """
        self._path = Path(path)
        self._read = read
        self._now_s = monotonic_s
        self._lock = threading.Lock()
        self._checked_s = monotonic_s()
        self._read_stamp: _Stamp | None = _stamp(self._path)
        self._value = read(self._path.read_text(encoding="utf-8"))
        self._is_refused = False

    @property
    def name(self) -> str:
        """Return the name of the file, without its folder."""
        return self._path.name

    def is_refused(self) -> bool:
        """Return whether the file, checked at most a second ago, is not what is in effect."""
        self.value()
        return self._is_refused

    def value(self) -> T:
        """Return the parsed content, checked at most a second ago."""
        with self._lock:
            if self._now_s() - self._checked_s >= _CHECK_S:
                self._checked_s = self._now_s()
                self._check()
            return self._value

    def _check(self) -> None:
        try:
            stamp = _stamp(self._path)
            if stamp == self._read_stamp:
                return
            self._read_stamp, self._is_refused = stamp, True
            self._value = self._read(self._path.read_text(encoding="utf-8"))
            self._is_refused = False
            _log.info("file_read_again", path=str(self._path))
        except UnicodeDecodeError:
            _log.error("file_refused", path=str(self._path), cause="it is not text in UTF-8")
        except OSError as error:
            if self._read_stamp is not None:
                _log.error("file_refused", path=str(self._path), cause=error.strerror)
            self._read_stamp, self._is_refused = None, True
        except ValueError as error:
            _log.error("file_refused", path=str(self._path), cause=str(error))


def _stamp(path: Path) -> _Stamp:
    """Return values of which at least one changes when a file is written or replaced."""
    status = path.stat()
    return status.st_mtime_ns, status.st_size, status.st_ino
