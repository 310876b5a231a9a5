"""axe-core finds no serious or critical fault on any page of the console, in any of its looks.

Each page is opened once. The dark look has other colours and no other difference, so only the rules
about colours are asked of it again.
"""

from collections.abc import Iterator, Mapping, Sequence
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
const [axe, rules, done] = arguments;
if (!window.axe) (0, eval)(axe);
const alone = rules.length ? {runOnly: {type: "rule", values: rules}} : {};
const options = {resultTypes: ["violations"], ...alone};
window.axe.run(options).then(done, (error) => done({error: String(error)}));
"""
LOOKS: Final[Mapping[Look, Sequence[str]]] = {
    Look(): (),
    Look(is_dark=True): ("color-contrast", "link-in-text-block"),
    Look(390, 844): (),
}
"""The rules that are asked of each; none for all of them."""


@pytest.fixture(scope="session")
def axe() -> str:
    """The script that examines a page."""
    try:
        return AXE.path(RUN_FOLDER).read_text("utf-8")
    except NpmFileMissingError as missing:
        pytest.skip(str(missing))


def faults(driver: Chrome, axe: str, rules: Sequence[str]) -> list[str]:
    """The serious and critical faults of the page that is open, by these rules."""
    found: dict[str, Any] = driver.execute_async_script(RUN, axe, rules)
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


def test_no_page_has_a_serious_fault_in_any_look(scene: Scene, driver: Chrome, axe: str) -> None:
    page = scene.url + "/console/dead-letters?reason=duplicate&address=payments.transfer"
    until(driver, page, lambda: every(driver, "tbody tr"))
    found = {}
    for page in pages(scene, driver):
        for look, rules in LOOKS.items():
            dress(driver, look)
            found[page, look] = faults(driver, axe, rules)
        dress(driver, Look())
    assert {place: each for place, each in found.items() if each} == {}
