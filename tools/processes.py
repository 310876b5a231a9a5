"""Process tree, read from /proc (Linux)."""

from pathlib import Path


def children_of(pid: int) -> list[int]:
    """Return the ids of the live children of a live process."""
    found = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        found += [int(child) for child in task.read_text(encoding="ascii").split()]
    return sorted(found)
