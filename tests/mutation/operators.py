"""Every mutant of a source file.

A comparison moves its boundary or turns round, a part of a condition is left out, a condition is
negated, a number is one more or one less, arithmetic is another, a statement or a named argument is
left out, a function returns None, the least takes the place of the greatest.

Nothing is changed in a text, a log line, an assertion, a type, a decorator or a `__repr__`, and no
time in seconds. What would be the same as another mutant is not made: `and` in place of `or` beside
each side left out, swapped branches beside the negated condition, None in place of False.
"""

import ast
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Final

from tests.mutation.mutant import Mutant

COMPARISONS: Final[dict[type[ast.cmpop], tuple[str, tuple[str, ...]]]] = {
    ast.Lt: ("<", ("<=", ">=")),
    ast.LtE: ("<=", ("<", ">")),
    ast.Gt: (">", (">=", "<=")),
    ast.GtE: (">=", (">", "<")),
    ast.Eq: ("==", ("!=",)),
    ast.NotEq: ("!=", ("==",)),
    ast.Is: ("is", ("is not",)),
    ast.IsNot: (r"is\s+not", ("is",)),
    ast.In: ("in", ("not in",)),
    ast.NotIn: (r"not\s+in", ("in",)),
}
ARITHMETIC: Final[dict[type[ast.operator], tuple[str, str]]] = {
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: ("*", "//"),
    ast.Div: ("/", "*"),
    ast.FloorDiv: ("//", "*"),
    ast.Mod: ("%", "*"),
    ast.Pow: ("**", "*"),
    ast.BitAnd: ("&", "|"),
    ast.BitOr: ("|", "&"),
    ast.BitXor: ("^", "&"),
    ast.LShift: ("<<", ">>"),
    ast.RShift: (">>", "<<"),
}
OPPOSITES: Final = {"min": "max", "max": "min", "any": "all", "all": "any"}
LOGS: Final = {"_log", "log", "logger", "_logger"}
SILENT: Final = {"__repr__", "__str__"}
TYPES: Final = {"cast", "TypeVar", "NewType", "NamedTuple"}
CHECKS: Final = {None, "strict"}
"""Named arguments that assert something; and `**`, which has no name."""
KILO: Final = 1024
"""One more or less of it in the size of a buffer is not to be noticed."""
SHOWN_MAX: Final = 70
Function = ast.FunctionDef | ast.AsyncFunctionDef


def mutants_of(path: str, source: bytes) -> list[Mutant]:
    """In the order of the lines."""
    finder = _Finder(path, source)
    finder.block(ast.parse(source).body)
    return sorted(finder.found, key=lambda mutant: (mutant.start, mutant.stop, mutant.replacement))


class _Text:
    """A file, and where in it a part of its tree stands."""

    def __init__(self, source: bytes) -> None:
        self.source = source
        self.lines = source.splitlines(keepends=True)
        self._starts = [0]
        for line in self.lines:
            self._starts.append(self._starts[-1] + len(line))

    def span(self, node: ast.AST) -> tuple[int, int]:
        first: int = node.lineno  # type: ignore[attr-defined]
        last: int = node.end_lineno  # type: ignore[attr-defined]
        start = self._starts[first - 1] + node.col_offset  # type: ignore[attr-defined]
        return start, self._starts[last - 1] + node.end_col_offset  # type: ignore[attr-defined]

    def of(self, node: ast.AST) -> str:
        start, stop = self.span(node)
        return self.source[start:stop].decode()


class _Changes:
    """What a change is made of."""

    def __init__(self, path: str, source: bytes) -> None:
        self.found: list[Mutant] = []
        self._path, self._text = path, _Text(source)
        self._scope: list[str] = []
        self._reach = (0, 0)
        self._names: frozenset[str] = frozenset()
        self._at_import = True

    def _between(self, left: ast.expr, right: ast.expr, pattern: str, other: str) -> None:
        """Replace the operator between two sides."""
        start, stop = self._text.span(left)[1], self._text.span(right)[0]
        between = self._text.source[start:stop].decode()
        found = re.search(pattern if not pattern[0].isalpha() else rf"\b{pattern}\b", between)
        if found is None or "#" in between:
            return
        sides = self._text.of(left), self._text.of(right)
        old, new = (_short(f" {each} ".join(sides)) for each in (found.group(), other))
        place = start + len(between[: found.start()].encode())
        length = len(found.group().encode())
        self._add(place, place + length, other, left, f"{old} → {new}")

    def _replace(self, node: ast.AST, text: str, mutation: str = "") -> None:
        start, stop = self._text.span(node)
        said = mutation or f"{_short(self._text.of(node))} → {_short(text)}"
        self._add(start, stop, text, node, said)

    def _remove(self, node: ast.stmt) -> None:
        self._replace(node, "pass", "statement left out")

    def _add(self, start: int, stop: int, text: str, shown: ast.AST, mutation: str) -> None:
        row: int = shown.lineno  # type: ignore[attr-defined]
        line = self._text.lines[row - 1].decode().strip()
        scope = ".".join(self._scope)
        rest = (self._reach, self._names, self._at_import)
        self.found.append(Mutant(self._path, scope, line, mutation, start, stop, text, *rest))


class _Expressions(_Changes, ast.NodeVisitor):
    """The mutants of expressions."""

    def visit_Constant(self, node: ast.Constant) -> None:
        value = node.value
        if isinstance(value, bool):
            self._replace(node, str(not value))
        elif isinstance(value, int) and value != KILO:  # a float is a time, which is no verdict
            self._replace(node, str(value + 1))
            self._replace(node, str(value - 1) if value >= 1 else f"({value - 1})")

    def visit_Compare(self, node: ast.Compare) -> None:
        sides = [node.left, *node.comparators]
        for left, operator, right in zip(sides, node.ops, sides[1:], strict=False):
            text, others = COMPARISONS[type(operator)]
            for other in others:
                self._between(left, right, text, other)
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        word = " and " if isinstance(node.op, ast.And) else " or "
        start, stop = self._text.span(node)
        for each in node.values:
            if _is_empty(each):
                continue
            rest = [f"({self._text.of(other)})" for other in node.values if other is not each]
            said = f"{_short(self._text.of(each))} left out"
            self._add(start, stop, f"({word.join(rest)})", each, said)
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if isinstance(node.op, ast.Not | ast.USub):
            self._replace(node, f"({self._text.of(node.operand)})")
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        if type(node.op) in ARITHMETIC and not (_is_text(node.left) or _is_text(node.right)):
            text, other = ARITHMETIC[type(node.op)]
            self._between(node.left, node.right, re.escape(text), other)
        self.generic_visit(node)

    def visit_IfExp(self, node: ast.IfExp) -> None:
        self._condition(node.test)
        self.visit(node.body)
        self.visit(node.orelse)

    def visit_comprehension(self, node: ast.comprehension) -> None:
        self.visit(node.iter)
        for condition in node.ifs:
            self._condition(condition)

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self.visit(node.body)

    def visit_Call(self, node: ast.Call) -> None:
        if _is_silent(node):
            return
        if isinstance(node.func, ast.Name) and node.func.id in OPPOSITES:
            self._replace(node.func, OPPOSITES[node.func.id])
        for keyword in node.keywords:
            if keyword.arg not in CHECKS:
                start, stop = self._text.span(keyword)
                comma = re.match(rb"\s*,? *", self._text.source[stop:])
                stop += len(comma.group()) if comma else 0
                self._add(start, stop, "", keyword.value, f"without {keyword.arg}=")
        self.generic_visit(node)

    def visit_keyword(self, node: ast.keyword) -> None:
        if node.arg is None or node.arg not in CHECKS:
            self.visit(node.value)

    def _condition(self, node: ast.expr) -> None:
        """Negate it, where a comparison or a `not` in it does not say the same."""
        match node:
            case ast.Compare(ops=[_]) | ast.UnaryOp(op=ast.Not()) | ast.Constant():
                pass
            case _:
                self._replace(node, f"(not ({self._text.of(node)}))")
        self.visit(node)


class _Finder(_Expressions):
    """The mutants of statements."""

    def __init__(self, path: str, source: bytes) -> None:
        super().__init__(path, source)
        self._function: Function | None = None

    def block(self, statements: Iterable[ast.stmt]) -> None:
        for number, statement in enumerate(statements):
            is_text = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
            if number or not is_text:
                self.visit(statement)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        if not any(ast.unparse(base).endswith("Enum") for base in node.bases):
            with self._inside(node.name, self._function):
                self.block(node.body)

    def visit_Expr(self, node: ast.Expr) -> None:
        if not (_is_silent(node.value) or isinstance(node.value, ast.Constant)):
            self._reached(node, node)
            if not self._at_import:
                self._remove(node)
            self.visit(node.value)

    def visit_Assign(self, node: ast.Assign) -> None:
        self._assign(node, node.targets, node.value)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self._assign(node, [node.target], node.value)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self._reached(node, node)
        text, other = ARITHMETIC.get(type(node.op), ("", ""))
        if text and not _is_text(node.value):
            self._between(node.target, node.value, re.escape(text + "="), other + "=")
        self._remove(node)
        self.visit(node.target)
        self.visit(node.value)

    def visit_Return(self, node: ast.Return) -> None:
        if node.value is not None:
            self._reached(node, node)
            if not _is_empty(node.value):
                self._replace(node.value, "None", "return None")
            self.visit(node.value)

    def visit_For(self, node: ast.For) -> None:
        self._reached(node, node.iter)
        self.visit(node.iter)
        self.block(node.body)
        self.block(node.orelse)

    def visit_With(self, node: ast.With) -> None:
        self._reached(node, node.items[-1].context_expr)
        for item in node.items:
            self.visit(item.context_expr)
        self.block(node.body)

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> None:
        self.block(node.body)

    def visit_match_case(self, node: ast.match_case) -> None:
        if node.guard is not None:
            self._reached(node.pattern, node.guard)
            self._condition(node.guard)
        self.block(node.body)

    def visit_Match(self, node: ast.Match) -> None:
        self._reached(node, node.subject)
        self.visit(node.subject)
        for case in node.cases:
            self.visit(case)

    def _define(self, node: Function) -> None:
        if node.name in SILENT:
            return
        was_at_import = self._at_import
        with self._inside(node.name, node):
            self._reach = (node.body[0].lineno, node.end_lineno or node.lineno)
            for default in (*node.args.defaults, *filter(None, node.args.kw_defaults)):
                self.visit(default)
            self._at_import = False
            self.block(node.body)
        self._at_import = was_at_import

    def _assign(
        self, node: ast.Assign | ast.AnnAssign, targets: list[ast.expr], value: ast.expr
    ) -> None:
        self._reached(node, node)
        if self._at_import:
            names = {name for target in targets for name in _names(target)}
            with self._inside(min(names, default=""), None):
                self._names = frozenset(names)
                self.visit(value)
                self._names = frozenset()
            return
        if any(self._is_kept(target) for target in targets):
            self._remove(node)
        for each in (*targets, value):
            self.visit(each)

    def _branch(self, node: ast.If | ast.While) -> None:
        self._reached(node, node.test)
        self._condition(node.test)
        self.block(node.body)
        self.block(node.orelse)

    def _leave_out(self, node: ast.stmt) -> None:
        self._reached(node, node)
        self._remove(node)

    def _keep(self, node: ast.AST) -> None:
        """A text, a check already, or nothing to change."""

    visit_FunctionDef = visit_AsyncFunctionDef = _define  # noqa: N815 - its names
    visit_If = visit_While = _branch  # noqa: N815 - its names
    visit_Raise = visit_Continue = visit_Break = visit_Delete = _leave_out  # noqa: N815 - its names
    visit_Import = visit_ImportFrom = visit_Assert = visit_JoinedStr = _keep  # noqa: N815 - its names

    @contextmanager
    def _inside(self, name: str, function: Function | None) -> Iterator[None]:
        before = self._scope, self._function
        self._scope, self._function = [*self._scope, name], function
        yield
        self._scope, self._function = before

    def _reached(self, first: ast.AST, last: ast.AST) -> None:
        start: int = first.lineno  # type: ignore[attr-defined]
        stop: int = last.end_lineno  # type: ignore[attr-defined]
        self._reach = (start, stop)

    def _is_kept(self, target: ast.expr) -> bool:
        """Whether something else has this name's value if it is not assigned here."""
        if isinstance(target, ast.Tuple):
            return all(self._is_kept(each) for each in target.elts)
        if not isinstance(target, ast.Name):
            return True
        assert self._function is not None
        arguments = self._function.args
        given = {each.arg for each in (*arguments.args, *arguments.kwonlyargs)}
        body = list(ast.walk(self._function))
        if any(isinstance(each, ast.Nonlocal) and target.id in each.names for each in body):
            return False  # it would not compile
        names = [each for each in body if isinstance(each, ast.Name) and each.id == target.id]
        return target.id in given or sum(isinstance(each.ctx, ast.Store) for each in names) > 1


def _is_silent(node: ast.expr) -> bool:
    """Whether it writes a log line or names a type."""
    root = node.func if isinstance(node, ast.Call) else None
    while isinstance(root, ast.Attribute):
        root = root.value
    return isinstance(root, ast.Name) and root.id in LOGS | TYPES


def _names(target: ast.expr) -> Iterator[str]:
    for node in ast.walk(target):
        if isinstance(node, ast.Name):
            yield node.id


def _is_text(node: ast.expr) -> bool:
    is_constant = isinstance(node, ast.Constant) and isinstance(node.value, str | bytes)
    return is_constant or isinstance(node, ast.JoinedStr)


def _is_empty(node: ast.expr) -> bool:
    """Whether it is False, None, 0 or holds nothing, which mostly are as good as each other."""
    match node:
        case ast.Constant(value=value):
            return not value
        case ast.List(elts=held) | ast.Tuple(elts=held) | ast.Dict(keys=held):
            return not held
    return False


def _short(text: str) -> str:
    words = " ".join(text.split())
    return words if len(words) <= SHOWN_MAX else words[: SHOWN_MAX - 1] + "…"
