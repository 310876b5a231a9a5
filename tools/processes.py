"""Processes: who was started by whom."""

from pathlib import Path


def children_of(pid: int) -> list[int]:
    """The live children of a process that lives (Linux)."""
    found = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        found += [int(child) for child in task.read_text(encoding="ascii").split()]
    return sorted(found)
