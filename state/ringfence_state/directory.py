"""State directory of an instance: the folder of its stores, locked by one process at a time.

Only its owner can enter it, because it contains ids, and keys and values of pending records.
RocksDB creates files with the umask; the mode of the folder protects them, whatever the umask is.
"""

import fcntl
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

_PAUSE_S: Final = 0.02
"""Time between two attempts at the lock, since `flock` has no time-out."""


class DirectoryLockedError(Exception):
    """Another live process holds the folder."""


class StateDirectory:
    """`<state_dir>/<group>/<instance>`; the lock ends with the process, however it ends."""

    def __init__(
        self, state_dir: Path, group_id: str, instance: str, patience_s: float = 0.0
    ) -> None:
        """Lock the folder; create it if needed.

        Wait up to `patience_s` for the lock, since a killed process may still hold it; then raise
        DirectoryLockedError.
        """
        self.path = state_dir / group_id / instance
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        with suppress(PermissionError):  # another user owns the folder and has let us in
            self.path.chmod(0o700)
        self._lock = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        deadline_s = time.monotonic() + patience_s
        while not self._is_ours():
            if time.monotonic() > deadline_s:
                os.close(self._lock)
                raise DirectoryLockedError(str(self.path))
            time.sleep(_PAUSE_S)

    @staticmethod
    def is_held(state_dir: Path, group_id: str, instance: str) -> bool:
        """Return whether a live process holds the folder; creates nothing."""
        try:
            lock = os.open(state_dir / group_id / instance / "lock", os.O_RDWR)
        except OSError:
            return False
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(lock)
        return False

    def _is_ours(self) -> bool:
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def release(self) -> None:
        """Release the lock."""
        os.close(self._lock)
