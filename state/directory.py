"""The folder that an instance keeps its stores in, held by one process at a time."""

import fcntl
import os
from pathlib import Path


class DirectoryHeldError(Exception):
    """Another live process holds the folder."""


class Directory:
    """`<state_dir>/<group>/<instance>`; the lock ends with the process, however it ends."""

    def __init__(self, state_dir: Path, group_id: str, instance: str) -> None:
        self.path = state_dir / group_id / instance
        self.path.mkdir(parents=True, exist_ok=True)
        self._lock = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(self._lock)
            raise DirectoryHeldError(str(self.path)) from error

    def release(self) -> None:
        """Let another process in."""
        os.close(self._lock)
