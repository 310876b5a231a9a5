"""One small change of one file, and what it is known by when the lines around it move."""

import difflib
from typing import NamedTuple

BROKEN_LINES_MAX = 12


class Mutant(NamedTuple):
    """Bytes `start` to `stop` of a file give way to `replacement`."""

    path: str
    scope: str
    """The function, by its qualified name; of what runs at import the class or the constant."""
    line: str
    """The first line that is changed, without its indentation."""
    mutation: str
    """What stood there and what stands there now, in words."""
    start: int
    stop: int
    replacement: str
    reach: tuple[int, int]
    """The first and the last line of the statement: a test that executes one may find it."""
    names: frozenset[str] = frozenset()
    """What a statement defines at import: tests are found by where these names stand."""
    at_import: bool = False
    """Whether the module must be imported again for it."""

    @property
    def identity(self) -> str:
        """What stays when lines move."""
        return f"{self.path} {self.scope}: {self.line} [{self.mutation}]"

    def applied(self, source: bytes) -> bytes:
        return source[: self.start] + self.replacement.encode() + source[self.stop :]

    def diff(self, source: bytes) -> str:
        before, after = source.decode().splitlines(), self.applied(source).decode().splitlines()
        lines = list(difflib.unified_diff(before, after, n=1, lineterm=""))[2:]
        return "\n".join(lines[:BROKEN_LINES_MAX])
