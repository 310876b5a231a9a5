"""Process tree, read from /proc (Linux)."""

from contextlib import suppress
from pathlib import Path


def children_of(pid: int) -> list[int]:
    """Return the ids of the live children of a live process."""
    found = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(FileNotFoundError, ProcessLookupError):  # the thread has ended
            found += [int(child) for child in task.read_text(encoding="ascii").split()]
    return sorted(found)
