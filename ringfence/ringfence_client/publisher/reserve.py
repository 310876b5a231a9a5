"""Reserve: a file of real blocks beside a store, given up when the disk is full.

Deleting needs room too: SQLite writes the change to its log, and cannot begin the log again before
its content is in the store. With the reserve given up, a full disk keeps no acknowledged message
from being deleted. Nothing is appended until it is there again, since the next deletion needs it.
"""

import os
from pathlib import Path
from typing import Final

_BYTES_MAX: Final = 8 * 1024 * 1024
"""Twice what SQLite's log holds before its content is moved into the store, which grows by that."""
_BYTES_MIN: Final = 256 * 1024
"""For the smallest store: 64 pages of SQLite, since a deletion writes whole pages to its log."""


class Reserve:
    """The file `<store>-reserve`."""

    def __init__(self, store: str, store_bytes_max: int) -> None:
        self._path = Path(f"{store}-reserve")
        self._bytes = min(_BYTES_MAX, _BYTES_MIN + 2 * store_bytes_max)
        self._is_kept = False
        self.keep()

    def keep(self) -> bool:
        """Create the file if it is missing; return False if the disk has no room for it."""
        if not self._is_kept:
            try:
                self._allocate()
            except OSError:
                self.release()
            else:
                self._is_kept = True
        return self._is_kept

    def release(self) -> bool:
        """Give the room up; return whether there was any."""
        self._is_kept = False
        try:
            self._path.unlink()
        except OSError:
            return False
        return True

    def _allocate(self) -> None:
        """Give the file blocks, not only a length."""
        file = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(file, 0, self._bytes)
            elif os.fstat(file).st_size < self._bytes:
                os.write(file, bytes(self._bytes))
        finally:
            os.close(file)
