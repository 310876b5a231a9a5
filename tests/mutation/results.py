"""What became of each mutant: kept between runs, with what it depends on."""

import ast
import hashlib
import json
import tomllib
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

from tests.mutation.mutant import Mutant
from tests.mutation.reach import Reach

KILLED, TIMED_OUT, SURVIVED, UNREACHED = "killed", "timed out", "survived", "not reached"
FOUND: Final = {KILLED, TIMED_OUT}


class Result(NamedTuple):
    """One mutant, judged."""

    key: str
    outcome: str
    test: str
    """Which found it."""
    tests: int
    """How many were run."""
    depends: str
    """A digest of the code that was changed."""
    judged_by: str
    """A digest of the test that found it, or of all that did not."""
    seconds: float


class Results:
    """By the mutant's key; a file that grows by a line for each."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._kept: dict[str, Result] = {}
        if path.exists():
            for line in path.read_text().splitlines():
                result = Result(*json.loads(line))
                self._kept[result.key] = result

    def add(self, result: Result) -> None:
        self._kept[result.key] = result
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a") as file:
            file.write(json.dumps(result) + "\n")

    def found_by(self, key: str) -> str:
        """Which test found it when it was judged last, whatever has changed since."""
        result = self._kept.get(key)
        return result.test if result is not None else ""

    def of(self, key: str, depends: str, reach: Reach, tests: Sequence[str]) -> Result | None:
        """What is known, unless the code or the tests are others than then."""
        result = self._kept.get(key)
        if result is None or result.depends != depends:
            return None
        if result.outcome in FOUND:
            is_there = result.test in reach.traced
            return result if is_there and reach.digest(result.test) == result.judged_by else None
        return result if judges(reach, tests) == result.judged_by else None


def judges(reach: Reach, tests: Iterable[str]) -> str:
    digests = sorted((test, reach.digest(test)) for test in tests)
    return hashlib.sha256(repr(digests).encode()).hexdigest()[:16]


def keys(mutants: Iterable[Mutant]) -> dict[str, Mutant]:
    """Each under its identity, with a number where there are several."""
    seen: Counter[str] = Counter()
    found = {}
    for mutant in mutants:
        seen[mutant.identity] += 1
        number = seen[mutant.identity]
        found[mutant.identity if number == 1 else f"{mutant.identity} #{number}"] = mutant
    return found


def code_digest(mutant: Mutant, source: bytes) -> str:
    """Of the outermost function, or of the statement, that the mutant changes."""
    return _digest(_parsed(source).body, mutant.reach[0])


@cache
def _parsed(source: bytes) -> ast.Module:
    return ast.parse(source)


def _digest(body: Iterable[ast.stmt], line: int) -> str:
    for node in body:
        if node.lineno <= line <= (node.end_lineno or node.lineno):
            if isinstance(node, ast.ClassDef):
                return _digest(node.body, line)
            return hashlib.sha256(ast.dump(node).encode()).hexdigest()[:16]
    return ""


class Explained:
    """Mutants that no test can find, or need not: each with a reason."""

    def __init__(self, path: Path) -> None:
        entries = tomllib.loads(path.read_text())["equivalent"] if path.exists() else []
        self.reasons: Final = {
            f"{entry['module']} {entry['function']}: {entry['line']} [{entry['mutation']}]": str(
                entry["reason"]
            )
            for entry in entries
        }

    def unknown(self, identities: frozenset[str]) -> list[str]:
        """Entries that fit no mutant any more."""
        return sorted(self.reasons.keys() - identities)
