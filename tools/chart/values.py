"""Values of values.yaml: the path and default of each, and the comment beside or above it.

A mapping in block style is a section that contains values; one in braces is itself a value.
"""

from collections.abc import Iterator
from typing import NamedTuple

import yaml

from tools.errors import ToolError


class Value(NamedTuple):
    """One row of the table."""

    path: str
    default: str
    """As written in values.yaml; empty for an empty text."""
    meaning: str


def values_of(text: str) -> list[Value]:
    """Return every value, in the order of the file."""
    root = yaml.compose(text)
    assert isinstance(root, yaml.MappingNode)
    return list(_walk(root, "", text.splitlines()))


def _walk(section: yaml.MappingNode, prefix: str, lines: list[str]) -> Iterator[Value]:
    for key, value in section.value:
        path = prefix + key.value
        if isinstance(value, yaml.MappingNode) and not value.flow_style:
            yield from _walk(value, f"{path}.", lines)
            continue
        start, end = value.start_mark, value.end_mark
        default = lines[start.line][start.column : end.column]
        meaning = _beside(lines[end.line][end.column :]) or _above(lines, key.start_mark.line)
        if not meaning:
            raise ToolError(f"{path} has no description in values.yaml: add a comment")
        if "|" in meaning + default:
            raise ToolError(f"{path} has a | in values.yaml, which would end the cell: remove it")
        yield Value(path, "" if default == '""' else default, meaning)


def _beside(rest: str) -> str:
    return rest.strip().lstrip("# ")


def _above(lines: list[str], line: int) -> str:
    indent = len(lines[line]) - len(lines[line].lstrip())
    found: list[str] = []
    for before in reversed(lines[:line]):
        if not before.startswith(" " * indent + "#"):
            break
        found.append(before.strip().lstrip("# "))
    return " ".join(reversed(found))
