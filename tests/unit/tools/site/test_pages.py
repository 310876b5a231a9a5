"""Pages are found, and their text becomes what MkDocs reads as a Git host does."""

from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from tests.support.site import CONFIG
from tools.site.pages import ROOT, page_paths, with_empty_lines, with_links_to_source

PAGES = frozenset({"README.md", "docs/cli.md"})


class Navigation(yaml.SafeLoader):
    """Reads the file without the objects of Python that MkDocs makes from it."""


Navigation.add_multi_constructor("tag:yaml.org,2002:python/", lambda *_: None)


def named(entries: list[Any]) -> Iterator[str]:
    """Every page below these entries of the navigation."""
    for entry in entries:
        for value in entry.values() if isinstance(entry, dict) else (entry,):
            yield from named(value) if isinstance(value, list) else (value,)


def test_the_navigation_names_every_page_once() -> None:
    config = yaml.load(CONFIG.read_text("utf-8"), Navigation)  # noqa: S506 - a safe loader's subclass
    assert sorted(named(config["nav"])) == sorted(page_paths(ROOT))


def test_the_list_of_decisions_names_every_decision() -> None:
    folder = ROOT / "docs" / "adr"
    text = (folder / "README.md").read_text("utf-8")
    assert [page.name for page in folder.glob("0*.md") if f"({page.name})" not in text] == []


@pytest.mark.parametrize(
    ("link", "expected"),
    [
        ("[the CLI](cli.md#exit-codes)", "[the CLI](cli.md#exit-codes)"),
        ("[the start](../README.md)", "[the start](../README.md)"),
        ("[a program](examples/read_output.ipynb)", "`a program`"),
        ("[`a.py`](examples/read_output.ipynb)", "`a.py`"),
        ("[nothing](nothing.md)", "[nothing](nothing.md)"),
        ("[elsewhere](https://example.com/x)", "[elsewhere](https://example.com/x)"),
        ("```\n[a program](examples/read_output.ipynb)\n```", None),
    ],
)
def test_a_link_to_a_file_that_is_no_page_is_shown_as_code(link: str, expected: str | None) -> None:
    assert with_links_to_source(link, "docs", PAGES, "") == (expected or link)


def test_a_link_to_a_file_leads_to_the_source_where_that_has_an_address() -> None:
    text = "See [a program](examples/read_output.ipynb)."
    found = with_links_to_source(text, "docs", PAGES, "https://example.com/blob/main/")
    assert (
        found == "See [a program](https://example.com/blob/main/docs/examples/read_output.ipynb)."
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Either:\n- a\n- b", "Either:\n\n- a\n- b"),
        ("Then:\n1. a\n2. b", "Then:\n\n1. a\n2. b"),
        ("Rows:\n| a |\n|---|\n| b |", "Rows:\n\n| a |\n|---|\n| b |"),
        ("```\nx\n```\n| a |\n|---|", "```\nx\n```\n\n| a |\n|---|"),
        ("- a\n  continued\n- b", None),
        ("text\n\n- a", None),
        ("```\nx\n- y\n```", None),
        ("a list - of sorts\n-5 degrees", None),
    ],
)
def test_a_list_and_a_table_begin_after_an_empty_line(text: str, expected: str | None) -> None:
    assert with_empty_lines(text) == (expected or text)
