"""State directory: the folder of an instance's stores, locked by one process at a time.

No other user of the machine can enter it: it contains ids, and keys and values of pending records.
RocksDB creates files by the umask; the folder's mode protects them whatever that is.
"""

import fcntl
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

_PAUSE_S: Final = 0.02


class DirectoryLockedError(Exception):
    """Another live process holds the folder."""


class StateDirectory:
    """`<state_dir>/<group>/<instance>`; the lock ends with the process, however it ends."""

    def __init__(
        self, state_dir: Path, group_id: str, instance: str, patience_s: float = 0.0
    ) -> None:
        """Wait up to `patience_s` for a process that was killed; then DirectoryLockedError."""
        self.path = state_dir / group_id / instance
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        with suppress(PermissionError):  # it is somebody else's, who has let us in
            self.path.chmod(0o700)
        self._lock = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        deadline_s = time.monotonic() + patience_s
        while not self._is_ours():
            if time.monotonic() > deadline_s:
                os.close(self._lock)
                raise DirectoryLockedError(str(self.path))
            time.sleep(_PAUSE_S)

    def _is_ours(self) -> bool:
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def release(self) -> None:
        """Let another process in."""
        os.close(self._lock)
