"""Which test executes which lines, and how long it takes: kept between runs.

A test is traced again when a file that it executed is another than then, its own among them.
"""

import ast
import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

from tests.mutation.mutant import Mutant


class Traced(NamedTuple):
    """One test as it was traced."""

    seconds: float
    """Of one core, with tracing."""
    wall_s: float
    files: dict[str, str]
    """Each file it executed, by its path, and a digest of what stood there."""
    lines: dict[str, int]
    """Of each tested file one bit for each executed line."""


class Reach:
    """All that is known of the tests."""

    def __init__(self, root: Path, packages: Iterable[str]) -> None:
        self._root, self._packages = root, tuple(packages)
        self.traced: dict[str, Traced] = {}
        self.others: list[str] = []
        """Modules beside the tested packages and the tests: a new process may import them first."""

    def load(self, path: Path) -> None:
        if not path.exists():
            return
        kept = json.loads(path.read_text())
        self.others = kept["others"]
        masks = {file: [int(mask, 16) for mask in each] for file, each in kept["masks"].items()}
        for test, (seconds, wall_s, files, lines) in kept["traced"].items():
            found = {file: masks[file][number] for file, number in lines.items()}
            self.traced[test] = Traced(seconds, wall_s, files, found)

    def save(self, path: Path) -> None:
        numbers: dict[str, dict[int, int]] = defaultdict(dict)
        traced = {}
        for test, (seconds, wall_s, files, lines) in self.traced.items():
            found = {f: numbers[f].setdefault(mask, len(numbers[f])) for f, mask in lines.items()}
            traced[test] = seconds, wall_s, files, found
        masks = {file: [f"{mask:x}" for mask in each] for file, each in numbers.items()}
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"others": self.others, "masks": masks, "traced": traced}))

    def is_current(self, test: str) -> bool:
        traced = self.traced.get(test)
        return traced is not None and all(
            digest_of(self._root / path) == digest for path, digest in traced.files.items()
        )

    def tests_of(self, mutant: Mutant) -> list[str]:
        """Those that may find it: of each file in turn the fastest, of the mutant's own four."""
        places = [(mutant.path, mutant.reach)] if not mutant.names else self._users(mutant.names)
        masks: dict[str, int] = defaultdict(int)
        for path, (first, last) in places:
            masks[path] |= (1 << (last + 1)) - (1 << first)
        found = [
            test
            for test, traced in self.traced.items()
            if any(traced.lines.get(path, 0) & mask for path, mask in masks.items())
        ]
        own, turns = f"/test_{Path(mutant.path).stem}.py", Counter[str]()
        order = dict[str, tuple[int, int]]()
        for test in sorted(found, key=lambda test: (self.traced[test].seconds, test)):
            file = test.split("::", 1)[0]
            order[test] = turns[file] // (4 if file.endswith(own) else 1), len(order)
            turns[file] += 1
        return sorted(found, key=order.__getitem__)

    def digest(self, test: str) -> str:
        """Of the test and of what it uses of the tests' own."""
        files = self.traced[test].files
        own = sorted((f, files[f]) for f in files if f.split("/")[0] not in self._packages)
        return hashlib.sha256(repr(own).encode()).hexdigest()[:16]

    def _users(self, names: frozenset[str]) -> list[tuple[str, tuple[int, int]]]:
        """Where functions use these names, or what other definitions make of them."""
        uses = self._uses()
        places, seen, left = [], set(names), list(names)
        while left:
            for path, lines, defined in uses.get(left.pop(), ()):
                if not defined:
                    places.append((path, lines))
                left += defined - seen
                seen |= defined
        return places

    @cache  # noqa: B019 - one object lives as long as the process
    def _uses(self) -> Mapping[str, list[tuple[str, tuple[int, int], frozenset[str]]]]:
        uses: dict[str, list[tuple[str, tuple[int, int], frozenset[str]]]] = defaultdict(list)
        for package in self._packages:
            for path in sorted((self._root / package).rglob("*.py")):
                short = str(path.relative_to(self._root))
                visitor = _Uses()
                visitor.visit(ast.parse(path.read_bytes()))
                for name, lines, defined in visitor.found:
                    uses[name].append((short, lines, defined))
        return uses


@cache
def digest_of(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16] if path.exists() else ""


class _Uses(ast.NodeVisitor):
    """Where a file uses names: the name, the lines in a function, or what is defined by it."""

    def __init__(self) -> None:
        self.found: list[tuple[str, tuple[int, int], frozenset[str]]] = []

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        """What uses the class uses its fields, whether it names them or not."""
        fields = {name for each in node.body for name in _defined(each)}
        used = {name for base in (*node.bases, *node.decorator_list) for name in _used(base)}
        for name in fields | used:
            self.found.append((name, (0, 0), frozenset({node.name})))
        self.generic_visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        body = node.body[0].lineno, node.end_lineno or 0
        for default in (*node.args.defaults, *filter(None, node.args.kw_defaults)):
            self.found += [(name, body, frozenset()) for name in _used(default)]
        for each in node.body:
            for part in ast.walk(each):
                if isinstance(part, ast.Name | ast.Attribute):
                    word = part.id if isinstance(part, ast.Name) else part.attr
                    lines = part.lineno, part.end_lineno or part.lineno
                    self.found.append((word, lines, frozenset()))

    def visit_Assign(self, node: ast.Assign) -> None:
        self._define(node, node.value)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        self._define(node, node.value)

    def _define(self, node: ast.stmt, value: ast.expr | None) -> None:
        if value is not None:
            defined = frozenset(_defined(node))
            self.found += [(name, (0, 0), defined) for name in _used(value)]


def _defined(node: ast.stmt) -> set[str]:
    match node:
        case ast.Assign(targets=targets):
            return {n.id for each in targets for n in ast.walk(each) if isinstance(n, ast.Name)}
        case ast.AnnAssign(target=ast.Name(id=name)):
            return {name}
    return set()


def _used(node: ast.expr) -> set[str]:
    found = {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
    return found | {each.attr for each in ast.walk(node) if isinstance(each, ast.Attribute)}
