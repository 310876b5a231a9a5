"""axe-core finds no serious or critical fault on any page of the console, light and dark."""

from collections.abc import Iterator
from typing import Any, Final

import pytest
from selenium.webdriver import Chrome

from tests.browser.seen import BROWSER, PAGES, button, every, one, until, wait_for
from tools.jars import RUN_FOLDER
from tools.npm_file import NpmFile, NpmFileMissingError
from tools.pictures.browser import Look, dress
from tools.pictures.scene import Scene

pytestmark = BROWSER
AXE: Final = NpmFile(
    "axe-core",
    "4.11.0",
    "package/axe.min.js",
    "e9e5863c33a874f09bc01acd9234b7e3c871479f5eef8802fa582544465e6d01",
)
"""Of the tests alone: the product has none of it."""
MORE: Final = (
    "/console/find?q=orders-1@1",
    "/console/dead-letters?reason=duplicate",
    "/console/record?at=orders-1@1&letters=newest",
    "/console/redrives/count?reason=duplicate",
    "/console/settings/edit?kind=route",
    "/console/settings/revision?number=0",
    "/console/no-such-page",
)
RUN: Final = """
const [axe, done] = arguments;
if (!window.axe) (0, eval)(axe);
window.axe.run({resultTypes: ["violations"]}).then(done, (error) => done({error: String(error)}));
"""


@pytest.fixture(scope="session")
def axe() -> str:
    """The script that examines a page."""
    try:
        return AXE.path(RUN_FOLDER).read_text("utf-8")
    except NpmFileMissingError as missing:
        pytest.skip(str(missing))


def faults(driver: Chrome, axe: str) -> list[str]:
    """The serious and critical faults of the page that is open."""
    found: dict[str, Any] = driver.execute_async_script(RUN, axe)
    return [
        f"{fault['id']} at {fault['nodes'][0]['target']}: {fault['nodes'][0]['failureSummary']}"
        for fault in found["violations"]
        if fault["impact"] in {"serious", "critical"}
    ]


def pages(scene: Scene, driver: Chrome) -> Iterator[str]:
    """Open each page in turn, and those that only forms lead to."""
    for page in (*PAGES, *MORE):
        driver.get(scene.url + page)
        yield page
    driver.get(scene.url + "/console/dead-letters?reason=duplicate&address=payments.transfer")
    one(driver, "tbody a").click()
    wait_for(driver, lambda: every(driver, ".beside"))
    yield "a duplicate beside its original"
    driver.get(scene.url + "/console/redrives/count?reason=duplicate")
    one(driver, "[name=why]").send_keys("never sent")
    button(driver, "Continue").click()
    wait_for(driver, lambda: "never sent" in one(driver, "main").text)
    yield "the confirmation of a redrive"
    driver.get(scene.url + "/console/settings/edit?kind=address&name=orders.*")
    one(driver, "[name=reason]").send_keys("never sent")
    button(driver, "Preview").click()
    wait_for(driver, lambda: every(driver, "[action='/console/settings/apply']"))
    yield "the preview of a change"


@pytest.mark.parametrize("look", [Look(), Look(is_dark=True), Look(390, 844)])
def test_no_page_has_a_serious_fault(scene: Scene, driver: Chrome, axe: str, look: Look) -> None:
    page = scene.url + "/console/dead-letters?reason=duplicate&address=payments.transfer"
    until(driver, page, lambda: every(driver, "tbody tr"))
    dress(driver, look)
    found = {page: faults(driver, axe) for page in pages(scene, driver)}
    assert {page: each for page, each in found.items() if each} == {}
