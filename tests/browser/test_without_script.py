"""The console where no script runs: everything can be read and done."""

import pytest
from selenium.webdriver import Chrome

from tests.browser.seen import (
    BROWSER,
    PAGES,
    button,
    count_duplicates,
    every,
    figures,
    link,
    number,
    one,
    redrive,
    until,
    wait_for,
)
from tools.pictures.browser import complaints
from tools.pictures.scene import Scene

pytestmark = BROWSER
LIMIT = 4


@pytest.fixture
def driver(scriptless: Chrome) -> Chrome:
    return scriptless


def test_every_page_is_whole(scene: Scene, driver: Chrome) -> None:
    for page in PAGES:
        until(driver, scene.url + page, lambda: not every(driver, ".note.bad"))
        assert one(driver, "h1").text
        assert complaints(driver) == [], page
    driver.get(scene.url)
    assert every(driver, "noscript meta"), "a browser that runs scripts holds no elements there"


def test_the_first_page_is_loaded_again(scene: Scene, driver: Chrome) -> None:
    driver.get(scene.url)
    before = one(driver, ".figures .total").text
    wait_for(driver, lambda: one(driver, ".figures .total").text != before)


def test_the_redrive_wizard_is_walked_by_forms_alone(scene: Scene, driver: Chrome) -> None:
    page = scene.url + "/console/redrives/count?address=orders.lyon&reason=duplicate"
    until(driver, page, lambda: number(driver, ".figures dd") >= LIMIT)
    driver.get(scene.url + "/console/redrives")
    link(driver, "New redrive…").click()
    count_duplicates(driver, "orders.lyon")
    redrive(driver, "without a script", limit=LIMIT, max_per_second=2)
    assert one(driver, "svg.bar.long").is_displayed()
    wait_for(driver, lambda: one(driver, ".head .phase").text == "done")
    assert figures(driver)["Accepted"] == str(LIMIT)


def test_an_id_is_looked_up_and_forgotten(scene: Scene, driver: Chrome) -> None:
    until(
        driver,
        scene.url + "/console/address?name=payments.transfer",
        lambda: every(driver, "#ids tbody a"),
    )
    every(driver, "#ids tbody a")[0].click()
    wait_for(driver, lambda: "/console/ids?" in driver.current_url)
    until(driver, driver.current_url, lambda: "Known." in one(driver, ".note").text)
    one(driver, "details.act summary").click()
    one(driver, "[name=reason]").send_keys("to see that it goes")
    button(driver, "Forget it").click()
    wait_for(driver, lambda: "Forgotten." in one(driver, ".note").text)
