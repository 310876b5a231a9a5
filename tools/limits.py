"""Limits: checks that each limit and each time-out of the product has its reason beside it.

    python -m tools.limits

A limit is a number of a module whose name ends as those in `LIMIT`. Its reason is the docstring
after it: what it protects, what it costs, or the rule that it comes from.
"""

import ast
import re
import sys
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path
from typing import Final

from tools.vocabulary import PRODUCT

LIMIT: Final = re.compile(
    r"_?(\w+_)?(S|MS|MAX|MIN|BYTES|ATTEMPTS|PAUSES?|PATIENCE|EVERY|TIMEOUT|AT_ONCE)(_S|_MS)?"
)
"""The names of limits and time-outs."""


def main(root: Path) -> int:
    """Print each limit without a reason as `path:line: what`; return 1 if there is any."""
    files = sorted(file for folder in PRODUCT for file in (root / folder).rglob("*.py"))
    found = [
        f"{file.relative_to(root)}:{line}: write below {name} why it has this value"
        for file in files
        for line, name in unexplained(file.read_text("utf-8"))
    ]
    print("\n".join(found) or "Each limit has its reason beside it.")
    return 1 if found else 0


def unexplained(source: str) -> Iterator[tuple[int, str]]:
    """Yield the line and the name of each limit of a module that no docstring follows."""
    body = ast.parse(source).body
    for statement, following in zip_longest(body, body[1:]):
        match statement:
            case (
                ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value)
                | ast.Assign(targets=[ast.Name(id=name)], value=value)
            ) if LIMIT.fullmatch(name) and _is_number(value) and not _is_text(following):
                yield statement.lineno, name


def _is_number(value: ast.expr) -> bool:
    """Whether an expression is a number, or several, or is computed with one."""
    match value:
        case ast.Constant(value=bool()):
            return False
        case ast.Constant(value=int() | float()):
            return True
        case ast.UnaryOp(operand=operand):
            return _is_number(operand)
        case ast.BinOp(left=left, right=right):
            return _is_number(left) or _is_number(right)
        case ast.Tuple(elts=parts):
            return bool(parts) and all(map(_is_number, parts))
    return False


def _is_text(statement: ast.stmt | None) -> bool:
    match statement:
        case ast.Expr(value=ast.Constant(value=str())):
            return True
    return False


if __name__ == "__main__":
    sys.exit(main(Path(__file__).parents[1]))
