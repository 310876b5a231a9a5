"""The site is built without a warning, and loads nothing from another host."""

import re
from pathlib import Path

import pytest

from tests.support.site import built
from tools.site.pages import ROOT, page_paths

pytestmark = pytest.mark.xdist_group("site")  # it takes seconds to build, and is built once

LOADS = re.compile(r"<(?:script|link|img|iframe|source)\b[^>]*?\b(?:src|href)=\"?([^\"\s>]+)")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(tmp_path_factory.mktemp("site"))


def test_every_page_is_a_page_of_the_site_and_can_be_searched(site: Path) -> None:
    index = (site / "search" / "search_index.js").read_text("utf-8")
    for path in page_paths(ROOT):
        page = re.sub(r"README\.md$", "index.md", path).removesuffix(".md") + ".html"
        assert (site / page).exists(), path
        assert f'"location":"{page}"' in index or page == "index.html", path


def test_no_page_loads_anything_from_another_host(site: Path) -> None:
    found = [
        (page.name, loaded)
        for page in site.rglob("*.html")
        for loaded in LOADS.findall(page.read_text("utf-8"))
        if re.match(r"(?:\w+:)?//", loaded)
    ]
    assert found == []


def test_no_style_loads_anything_from_another_host(site: Path) -> None:
    found = [
        page.name
        for page in site.rglob("*.css")
        if re.search(r"(?:@import|url\()\s*[\"']?(?:https?:)?//", page.read_text("utf-8"))
    ]
    assert found == []
