"""The documentation is read and searched as files, without a server and without a network."""

from pathlib import Path

import pytest
from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By

from tests.browser.seen import BROWSER, one, texts, wait_for
from tests.support.site import built
from tools.pictures.browser import Look, complaints, dress, hosts_asked

pytestmark = BROWSER
WIDE = ("cli", "configuration", "console", "metrics", "operations", "pipeline", "rest")
"""Pages with wide tables, code or pictures."""
PAGES = ("index.html", "ARCHITECTURE.html", *(f"docs/{name}.html" for name in WIDE))
PHONE = Look(390, 844, is_dark=True)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(tmp_path_factory.mktemp("site"))


@pytest.mark.parametrize("look", [Look(), PHONE])
def test_a_page_asks_nobody_and_fits_its_window(driver: Chrome, site: Path, look: Look) -> None:
    dress(driver, look)
    too_wide = []
    for page in PAGES:
        driver.get((site / page).as_uri())
        if driver.execute_script("return document.documentElement.scrollWidth") > look.width:
            too_wide.append(page)
    ground = driver.execute_script("return getComputedStyle(document.body).backgroundColor")
    assert too_wide == []
    assert (hosts_asked(driver), complaints(driver)) == ({""}, [])
    assert ground == ("rgb(16, 18, 17)" if look.is_dark else "rgb(250, 250, 248)")


def test_every_diagram_fits_a_window_of_1280_pixels(driver: Chrome, site: Path) -> None:
    dress(driver, Look())
    driver.get((site / "ARCHITECTURE.html").as_uri())
    wait_for(driver, lambda: not driver.find_elements(By.CSS_SELECTOR, ".diagram pre"))
    boxes = "return [...document.querySelectorAll('.diagram')]"
    assert driver.execute_script(f"{boxes}.every((box) => box.scrollWidth <= box.clientWidth)")


def test_search_finds_a_key_in_files_that_were_opened_without_a_server(
    driver: Chrome, site: Path
) -> None:
    driver.get((site / "index.html").as_uri())
    field = one(driver, "input.md-search__input")
    driver.execute_script("arguments[0].focus()", field)
    field.send_keys("on_lost_offset")
    wait_for(driver, lambda: "Configuration" in texts(driver, ".md-search-result__item h1"))
    assert complaints(driver) == []
