"""Names in order: so many at once, after one."""

from collections.abc import Iterable
from heapq import nsmallest


def first_after(names: Iterable[str], after: str, limit: int) -> list[str]:
    """So many names after one, each once, in order."""
    return nsmallest(limit, {name for name in names if name > after})
