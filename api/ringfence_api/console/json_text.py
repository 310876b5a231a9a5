"""JSON text: indents a JSON document without changing any of its names and values. Pure."""

import json
import re
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Final, NamedTuple

_PIECE: Final = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{},:]|[^\s\[\]{},:"]+')
_OPENING: Final = frozenset("[{")
_CLOSING: Final = frozenset("]}")
_INDENT: Final = "  "
CHARS_MAX: Final = 256 * 1024
"""Text that would become longer is left as it is: deep nesting adds its depth to every line."""

_Tree = dict[str, "_Tree"]
"""Members that are marked, by their first token; an empty tree is a member that is marked."""


class Span(NamedTuple):
    """A part of a text."""

    text: str
    is_marked: bool


class _Container:
    """An object or an array that is open, and the tree of what is marked in it."""

    def __init__(self, opening: str, tree: _Tree | None) -> None:
        self.tree = tree
        self._items = 0 if opening == "[" else None

    def member(self, piece: str) -> _Tree | None:
        """Return the tree of the member that begins with this piece."""
        if self.tree is None or not self.tree:
            return self.tree
        if self._items is None:
            return self.tree.get(json.loads(piece))
        self._items += 1
        return self.tree.get(str(self._items - 1))


def spans(text: str, marked: Iterable[tuple[str, ...]] = ()) -> list[Span]:
    """Return an object or a list of JSON with a line for each member; other text unchanged.

    Numbers, escapes and repeated names stay as they are written. `marked` are the tokens of the
    JSON pointers of members, whose lines are marked.
    """
    try:
        is_laid_out = isinstance(json.loads(text), dict | list)
    except (ValueError, RecursionError):
        is_laid_out = False
    pieces, size = list[Span](), 0
    for piece in _laid_out(text, _tree_of(marked)) if is_laid_out else ():
        pieces.append(piece)
        size += len(piece.text)
        if size > CHARS_MAX:
            break
    if not pieces or size > CHARS_MAX:
        return [Span(text, is_marked=False)]
    runs = groupby(pieces, key=lambda piece: piece.is_marked)
    return [Span("".join(each.text for each in run), is_marked) for is_marked, run in runs]


def _tree_of(marked: Iterable[tuple[str, ...]]) -> _Tree | None:
    """Return the tree of members of which none contains another; None without any."""
    root: _Tree | None = None
    for tokens in marked:
        root = tree = {} if root is None else root
        for token in tokens:
            tree = tree.setdefault(token, {})
    return root


def _laid_out(text: str, root: _Tree | None) -> Iterator[Span]:
    """Yield the pieces of a JSON document, each with the white space before it."""
    open_ones, tree, before = list[_Container](), root, ""
    for piece in _PIECE.findall(text):
        written = ": " if piece == ":" else piece
        if piece in _CLOSING:
            tree = open_ones.pop().tree
        if before == "," or (before in _OPENING) != (piece in _CLOSING):
            written = "\n" + _INDENT * len(open_ones) + written
        if before == "," or (before in _OPENING and piece not in _CLOSING):
            tree = open_ones[-1].member(piece)
        yield Span(written, is_marked=tree is not None and not tree)
        if piece in _OPENING:
            open_ones.append(_Container(piece, tree))
        before = piece
