"""What a test sees of a page in a browser, and the pages that there are."""

import shutil
from collections.abc import Callable
from typing import Final

import pytest
from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import Select, WebDriverWait

from tests.support.waiting import LIMIT_S

BROWSER: Final = [
    pytest.mark.browser,
    pytest.mark.skipif(
        shutil.which("chromedriver") is None, reason="chromedriver is not installed"
    ),
]
PAGES: Final = (
    "/",
    "/console/partitions",
    "/console/addresses?resend=30m",
    "/console/address?name=orders.berlin",
    "/console/address?name=payments.card&retry_window=30m",
    "/console/find?q=orders",
    "/console/ids",
    "/console/dead-letters",
    "/console/redrives",
    "/console/redrives/new",
    "/console/settings",
    "/console/settings/edit?kind=address&name=orders.*",
    "/console/settings/edit?kind=route&name=shop",
    "/console/audit",
    "/console/login",
)


def until(driver: Chrome, url: str, true: Callable[[], object]) -> None:
    """Load a page, and once more until it shows something."""

    def shows() -> object:
        driver.get(url)
        return true()

    wait_for(driver, shows)


def wait_for(driver: Chrome, true: Callable[[], object]) -> None:
    """For what a page shows by itself; what is replaced meanwhile is looked for again."""
    patience = WebDriverWait(driver, LIMIT_S, 0.2, ignored_exceptions=[Exception])
    patience.until(lambda _: true())


def one(driver: Chrome, selector: str) -> WebElement:
    """What is there, or comes: a form that was sent may take its time to lead to a page."""
    return _awaited(driver, By.CSS_SELECTOR, selector)


def every(driver: Chrome, selector: str) -> list[WebElement]:
    return driver.find_elements(By.CSS_SELECTOR, selector)


def texts(driver: Chrome, selector: str) -> list[str]:
    """Of all that are there at one moment: pages replace parts of themselves."""
    patience = WebDriverWait(driver, LIMIT_S, 0.05, [StaleElementReferenceException])
    return patience.until(lambda _: ([each.text for each in every(driver, selector)],))[0]


def number(driver: Chrome, selector: str) -> int:
    """The first number there; 0 where there is none yet."""
    return next((int(text.replace(",", "")) for text in texts(driver, selector)), 0)


def button(driver: Chrome, text: str) -> WebElement:
    """The button that begins with these words."""
    path = f"//main//button[starts-with(normalize-space(), '{text}')]"
    return _awaited(driver, By.XPATH, path)


def link(driver: Chrome, text: str) -> WebElement:
    return _awaited(driver, By.LINK_TEXT, text)


def count_duplicates(driver: Chrome, address: str) -> None:
    """The first step of the redrive wizard."""
    one(driver, "main [name=address]").send_keys(address)
    Select(one(driver, "main [name=reason]")).select_by_visible_text("duplicate")
    button(driver, "Count them").click()


def redrive(driver: Chrome, why: str, **typed: int) -> None:
    """The next steps: what was counted is let through, with what is typed into other fields."""
    one(driver, "input[value=forget]").click()
    for name, value in {**typed, "why": why}.items():
        one(driver, f"[name={name}]").send_keys(str(value))
    button(driver, "Continue").click()
    wait_for(driver, lambda: why in one(driver, "main").text)
    button(driver, "Redrive").click()


def figures(driver: Chrome) -> dict[str, str]:
    """What a page counts, by name."""
    names, numbers = texts(driver, ".figures dt"), texts(driver, ".figures dt + dd")
    return dict(zip(names, numbers, strict=True))


def _awaited(driver: Chrome, by: str, what: str) -> WebElement:
    patience = WebDriverWait(driver, LIMIT_S, 0.1)
    return patience.until(lambda browser: browser.find_element(by, what))
