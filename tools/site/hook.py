"""Hook of MkDocs: the pages of the checkout become pages of the site, at their own paths.

The pages are written for a Git host. So a link to a file that is no page leads to
`extra.source_url` if that is configured, and is shown as code otherwise. Each page is also rendered
by a CommonMark parser, as a Git host does: where the site would show something else, a paragraph
instead of a list for example, the hook warns, and a warning ends a strict build.
"""

import logging
import posixpath
import re
from collections import Counter
from html.parser import HTMLParser
from typing import Final

from markdown_it import MarkdownIt
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from mkdocs.utils import get_relative_url

from tools.jars import RUN_FOLDER
from tools.npm_file import NpmFile, NpmFileMissingError
from tools.site.pages import ROOT, page_paths, picture_paths, with_empty_lines, with_links_to_source

MERMAID: Final = NpmFile(
    "mermaid",
    "11.17.2",
    "package/dist/mermaid.min.js",
    "581ed7d74bd9048d0e3a91363927d72ef22942d7722546b27f7cc29e35390eb8",
)
"""Draws the diagrams in a browser."""
SCRIPT: Final = "mermaid.min.js"
ICON: Final = "icon.svg"
_LOG: Final = logging.getLogger("mkdocs.hooks.site")
_COMMON_MARK: Final = MarkdownIt("commonmark").enable("table")
_HISTORY: Final = ("CHANGELOG.md", "docs/adr/")
"""Pages that search lists after the others."""
_DIAGRAM: Final = re.compile(r'<pre class="mermaid"><code>.*?</pre>', re.DOTALL)
_COMPARED: Final = re.compile(r"h[1-6]|ul|ol|li|table|tr|th|td|pre|blockquote|strong|em|img")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Leave diagrams as text where the script that draws them cannot be fetched."""
    try:
        MERMAID.path(RUN_FOLDER)
    except NpmFileMissingError as missing:
        _LOG.info("Diagrams are shown as text: %s.", missing)
        config.mdx_configs["pymdownx.superfences"]["custom_fences"] = []
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages and their pictures, the console's icon, and the script for diagrams."""
    icon = str(ROOT / "api" / "ringfence_api" / "console" / "assets" / ICON)
    files.append(File.generated(config, ICON, abs_src_path=icon))
    for path in (*page_paths(ROOT), *picture_paths(ROOT)):
        files.append(File.generated(config, path, abs_src_path=str(ROOT / path)))
    if config.mdx_configs["pymdownx.superfences"]["custom_fences"]:
        script = str(MERMAID.path(RUN_FOLDER))
        files.append(File.generated(config, SCRIPT, abs_src_path=script))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Rewrite what MkDocs reads differently from a Git host."""
    if page.file.src_uri.startswith(_HISTORY):
        page.meta["search"] = {"boost": 0.2}
    known = {file.src_uri for file in files}
    folder = posixpath.dirname(page.file.src_uri)
    source_url = str(config.extra.get("source_url", ""))
    return with_empty_lines(with_links_to_source(markdown, folder, known, source_url))


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Compare the page with what a Git host shows, and load the script that it needs."""
    del config, files
    here = _elements(html)
    there = _elements(_COMMON_MARK.render(page.markdown or ""))
    for tag in sorted(here.keys() | there.keys()):
        if here[tag] != there[tag]:
            _LOG.warning(
                "%s has %d <%s> on the site, but %d on a Git host: put an empty line before a list"
                " or a table, and indent what belongs to an item by four spaces.",
                *(page.file.src_uri, here[tag], tag, there[tag]),
            )
    if _DIAGRAM.search(html) is None:
        return html
    script = f'<script src="{get_relative_url(SCRIPT, page.url)}"></script>'
    return _DIAGRAM.sub(_in_a_box, html) + script


def _in_a_box(diagram: re.Match[str]) -> str:
    """Put a diagram into a box; that of a diagram with groups scrolls on a phone."""
    wide = " diagram--wide" if "subgraph" in diagram[0] else ""
    return f'<div class="diagram{wide}">{diagram[0]}</div>'


class _Elements(HTMLParser):
    """Counts the elements of a document by their tags."""

    def __init__(self) -> None:
        super().__init__()
        self.counts = Counter[str]()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        del attrs
        if _COMPARED.fullmatch(tag):
            self.counts[tag] += 1


def _elements(html: str) -> Counter[str]:
    parser = _Elements()
    parser.feed(html)
    return parser.counts
