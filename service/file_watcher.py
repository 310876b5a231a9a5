"""File watcher: the content of a file, read again when the file changes.

The file is checked at most once a second. A file that cannot be read keeps its last content, and is
logged once.
"""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final, Generic, TypeVar

import structlog

T = TypeVar("T")
_Stamp = tuple[int, int, int]

_LOOK_S: Final = 1.0
_log = structlog.stdlib.get_logger(__name__)


class WatchedFile(Generic[T]):
    """One file and what it says. Safe on any thread."""

    def __init__(
        self, path: str, read: Callable[[str], T], monotonic_s: Callable[[], float]
    ) -> None:
        """Raises what `read` or the file raises: at start there is nothing to go on with.

        `read` raises ValueError, with a sentence that repeats nothing of the file.
        """
        self._path = Path(path)
        self._read = read
        self._now_s = monotonic_s
        self._lock = threading.Lock()
        self._looked_s = monotonic_s()
        self._seen: _Stamp | None = _stamp(self._path)
        self._value = read(self._path.read_text(encoding="utf-8"))

    def value(self) -> T:
        """What it says now."""
        with self._lock:
            if self._now_s() - self._looked_s >= _LOOK_S:
                self._looked_s = self._now_s()
                self._look()
            return self._value

    def _look(self) -> None:
        try:
            stamp = _stamp(self._path)
            if stamp == self._seen:
                return
            self._seen = stamp
            self._value = self._read(self._path.read_text(encoding="utf-8"))
            _log.info("file_read_again", path=str(self._path))
        except UnicodeDecodeError:
            _log.error("file_refused", path=str(self._path), cause="it is not text in UTF-8")
        except OSError as error:
            if self._seen is not None:
                _log.error("file_refused", path=str(self._path), cause=error.strerror)
            self._seen = None
        except ValueError as error:
            _log.error("file_refused", path=str(self._path), cause=str(error))


def _stamp(path: Path) -> _Stamp:
    """What differs when a file was written or put in the place of another."""
    told = path.stat()
    return told.st_mtime_ns, told.st_size, told.st_ino
