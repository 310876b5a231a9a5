"""Pages of the site: which files are pages, and what MkDocs has to get instead of their text."""

import posixpath
import re
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
_FOLDERS: Final = ("docs", "deploy")
_FENCE: Final = re.compile(r"(^ *```.*?^ *```)", re.MULTILINE | re.DOTALL)
_BEGIN: Final = re.compile(r"(?:[-*+]|1[.)]) |\|")
"""The first line of a list or a table."""
_LINK: Final = re.compile(r"(?<!!)\[(?P<text>[^\]]+)\]\((?P<path>[^():#\s]+)(?:#[^)\s]*)?\)")


def page_paths(root: Path) -> Iterator[str]:
    """Yield the path of every page: relative to the root, with `/`."""
    yield from _paths(root, root.glob("*.md"))
    for folder in _FOLDERS:
        yield from _paths(root, (root / folder).rglob("*.md"))


def picture_paths(root: Path) -> Iterator[str]:
    """Yield the path of every picture of the pages."""
    for suffix in ("png", "svg"):
        yield from _paths(root, (root / "docs").rglob(f"*.{suffix}"))


def _paths(root: Path, files: Iterator[Path]) -> Iterator[str]:
    yield from sorted(file.relative_to(root).as_posix() for file in files)


def with_links_to_source(
    markdown: str, folder: str, pages: Collection[str], source_url: str
) -> str:
    """Return a page whose links to files that are no pages work, or are code.

    Args:
        markdown: the text of the page
        folder: of the page, relative to the root; empty for the root
        pages: the paths of all files of the site
        source_url: what the path of a file is appended to; empty if there is none

    """

    def rewritten(link: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join(folder, link["path"]))
        if path in pages or not (ROOT / path).exists():
            return link[0]  # of a file that does not exist MkDocs says so
        text = link["text"]
        if source_url:
            return f"[{text}]({source_url.rstrip('/')}/{path})"
        return text if "`" in text else f"`{text}`"

    parts = _FENCE.split(markdown)
    parts[::2] = [_LINK.sub(rewritten, part) for part in parts[::2]]
    return "".join(parts)


def with_empty_lines(markdown: str) -> str:
    """Return a page with an empty line before each list and table; MkDocs sees none without it."""
    lines, is_open, is_begun, previous = list[str](), False, False, ""
    for line in markdown.split("\n"):
        is_fence = line.lstrip().startswith("```")
        begins = not is_open and _BEGIN.match(line) is not None
        if begins and not is_begun and previous:
            lines.append("")
        lines.append(line)
        is_open ^= is_fence
        is_begun = begins or (is_begun and line != "")
        previous = line
    return "\n".join(lines)
