"""The console in a browser, on a live service and a real broker."""

import json
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from functools import partial

import pytest
from selenium.webdriver import ActionChains, Chrome
from selenium.webdriver.common.keys import Keys

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
from tools.pictures.browser import Look, complaints, dress, hosts_asked
from tools.pictures.scene import Scene

pytestmark = BROWSER
LIMIT = 12
CUT = """
return [...document.querySelectorAll(".table")]
  .filter((each) => each.scrollWidth > each.clientWidth)
  .map((each) => each.getAttribute("aria-label"))
"""
"""The tables that hide a part of themselves."""
OUTLINE = "return getComputedStyle(document.activeElement).outlineStyle"


@pytest.fixture
def driver(scene: Scene, driver: Chrome) -> Iterator[Chrome]:
    """The browser, which asks nobody but the service."""
    yield driver
    assert hosts_asked(driver) <= {scene.url.removeprefix("http://")}


def test_each_page_holds_real_data_asks_nobody_else_and_fits_a_window_and_a_phone(
    scene: Scene, driver: Chrome
) -> None:
    until(driver, scene.url + "/console/dead-letters", lambda: every(driver, "tbody tr"))
    for page in PAGES:
        # A service that has just started may not have all its partitions for good.
        until(driver, scene.url + page, lambda: not every(driver, ".note.bad"))
        assert one(driver, "h1").text
        assert driver.execute_script(CUT) == [], page
        dress(driver, Look(390, 844))
        wide = driver.execute_script("return document.documentElement.scrollWidth")
        dress(driver, Look())
        assert wide <= 390, page
        assert hosts_asked(driver) == {scene.url.removeprefix("http://")}, page
        assert complaints(driver) == [], page
    until(driver, scene.url + "/console/addresses", lambda: len(every(driver, "tbody tr")) == 7)


def test_the_keyboard_leads_to_what_is_marked_as_reached(scene: Scene, driver: Chrome) -> None:
    # Each has more to reach than there are steps, once there is something to show.
    pages = {"addresses": "tbody a", "redrives/new": "main form", "settings": "tbody a"}
    for page, shown in pages.items():
        until(driver, f"{scene.url}/console/{page}", partial(every, driver, shown))
        for _ in range(16):
            ActionChains(driver).send_keys(Keys.TAB).perform()
            reached = driver.switch_to.active_element
            told = f"{page}: {reached.tag_name} {reached.text}"
            assert driver.execute_script(OUTLINE) != "none", told


def test_the_first_page_goes_on_by_itself(scene: Scene, driver: Chrome) -> None:
    driver.get(scene.url)
    before = one(driver, ".figures .total").text
    wait_for(driver, lambda: one(driver, ".figures .total").text != before)
    assert complaints(driver) == []


def test_keys_lead_to_the_search_and_through_a_table(scene: Scene, driver: Chrome) -> None:
    until(driver, scene.url + "/console/addresses", lambda: len(every(driver, "tbody tr")) > 1)
    one(driver, "body").send_keys("/")
    assert driver.switch_to.active_element.get_attribute("name") == "q"
    driver.switch_to.active_element.send_keys(Keys.ESCAPE)
    one(driver, "body").send_keys("jj")
    links = [link.text for link in every(driver, "tbody a")]
    assert driver.switch_to.active_element.text == links[1]
    driver.get(scene.url)
    one(driver, "body").send_keys(Keys.TAB)
    assert driver.switch_to.active_element.text == "Skip to the content"


def test_the_search_leads_from_an_id_to_the_record_that_was_accepted(
    scene: Scene, driver: Chrome
) -> None:
    page = scene.url + "/console/address?name=payments.transfer"
    until(driver, page, lambda: every(driver, "#ids tbody a"))
    name = one(driver, "#ids tbody a").text
    one(driver, "body").send_keys("/")
    driver.switch_to.active_element.send_keys(name, Keys.ENTER)
    wait_for(driver, lambda: "/console/find?q=" in driver.current_url)
    found = "[aria-label='Remembered as an id'] tbody"
    until(driver, driver.current_url, lambda: "payments.transfer" in one(driver, found).text)
    position = every(driver, f"{found} a")[1]
    told = position.text
    position.click()
    wait_for(driver, lambda: one(driver, "h1").text == told)
    assert name in one(driver, "main pre").text


def test_a_page_that_is_not_reloaded_says_what_the_service_waits_for(
    scene: Scene, driver: Chrome
) -> None:
    driver.get(scene.url + "/console/redrives/new")
    bar = one(driver, "[data-waiting]")
    assert not bar.is_displayed()
    answer = "const told = arguments[0]; window.fetch = async () => Response.json(told)"
    driver.execute_script(answer, {"waiting_for": "the broker; start it"})
    wait_for(driver, lambda: "the broker; start it" in bar.text)
    driver.execute_script(answer, {"waiting_for": None})
    wait_for(driver, lambda: not bar.is_displayed())


def test_why_a_record_was_dropped_is_two_clicks_from_its_dead_letter(
    scene: Scene, driver: Chrome
) -> None:
    # Of an address that no other test makes smaller.
    page = scene.url + "/console/dead-letters?reason=duplicate&address=payments.transfer"
    until(driver, page, lambda: every(driver, "tbody tr"))
    original = every(driver, "tbody tr:first-child td")[4].text
    one(driver, "tbody a").click()
    link(driver, "History of this id").click()
    wait_for(driver, lambda: "/console/ids?" in driver.current_url)
    until(driver, driver.current_url, lambda: "Known." in one(driver, ".note").text)
    assert original in one(driver, ".pairs").text


def test_a_duplicate_is_compared_with_its_original_and_its_value_copied(
    scene: Scene, driver: Chrome
) -> None:
    page = scene.url + "/console/dead-letters?reason=duplicate&address=payments.transfer"
    until(driver, page, lambda: every(driver, "tbody tr"))
    one(driver, "tbody a").click()
    wait_for(driver, lambda: len(every(driver, ".beside pre")) == 8)
    assert "Different: value (/" in one(driver, "main").text
    shown = every(driver, ".beside pre")[2]
    assert len(shown.text.splitlines()) == 5
    command = "Browser.grantPermissions"
    driver.execute_cdp_cmd(command, {"permissions": ["clipboardReadWrite"], "origin": scene.url})
    one(driver, ".beside > div:nth-of-type(3) button").click()
    wait_for(driver, lambda: one(driver, ".beside > div:nth-of-type(3) button").text == "Copied")
    copied = driver.execute_async_script("navigator.clipboard.readText().then(arguments[0])")
    assert json.loads(copied) == json.loads(shown.text)
    before = one(driver, "h1").text
    one(driver, "body").send_keys("j")
    wait_for(driver, lambda: one(driver, "h1").text != before or "end=older" in driver.current_url)


def test_times_are_local_where_the_user_chose_so(scene: Scene, driver: Chrome) -> None:
    command = "Emulation.setTimezoneOverride"
    driver.execute_cdp_cmd(command, {"timezoneId": "Asia/Kolkata"})
    until(driver, scene.url + "/console/dead-letters", lambda: every(driver, "tbody tr"))
    shown = one(driver, "tbody time")
    utc = datetime.fromisoformat(shown.get_attribute("datetime") or "")
    assert shown.text.endswith(f"{utc:%H:%M:%S}")
    one(driver, "[name=from]")
    driver.execute_script("document.querySelector('[name=from]').value = '2026-01-02T03:04'")
    one(driver, "[data-times]").click()
    india = timezone(timedelta(hours=5, minutes=30))
    assert shown.text.endswith(f"{utc.astimezone(india):%H:%M:%S}")
    assert "Asia/" in one(driver, ".foot").text
    assert one(driver, "[name=from]").get_property("value") == "2026-01-02T08:34"
    button(driver, "Filter").click()
    wait_for(driver, lambda: "from=2026-01-02T03%3A04" in driver.current_url)
    assert one(driver, "[name=from]").get_property("value") == "2026-01-02T08:34"
    driver.get(scene.url)
    mark = one(driver, ".marks tspan")
    assert "Asia/" in one(driver, ".foot").text
    assert mark.text[-2:] != (mark.get_attribute("data-minute") or "")[14:16]
    one(driver, "[data-times]").click()
    assert "Times are UTC." in one(driver, ".foot").text
    driver.execute_cdp_cmd(command, {"timezoneId": ""})


def test_the_redrive_wizard_leads_from_a_filter_to_records_that_were_let_through(
    scene: Scene, driver: Chrome
) -> None:
    page = scene.url + "/console/redrives/count?address=orders.berlin&reason=duplicate"
    until(driver, page, lambda: number(driver, ".figures dd") >= LIMIT)
    driver.get(scene.url + "/console/redrives/new")
    count_duplicates(driver, "orders.berlin")
    redrive(driver, "the shop asked for them", limit=LIMIT, max_per_second=6)
    wait_for(driver, lambda: one(driver, "svg.bar.long").is_displayed())
    wait_for(driver, lambda: one(driver, ".head .phase").text == "done")
    assert figures(driver)["Accepted"] == str(LIMIT)
    assert complaints(driver) == []


def test_a_setting_is_previewed_put_in_force_and_seen(scene: Scene, driver: Chrome) -> None:
    driver.get(scene.url + "/console/settings/edit?kind=address&name=orders.*")
    text = one(driver, "textarea")
    text.clear()
    text.send_keys("id_cache_size = 200")
    one(driver, "[name=reason]").send_keys("to see what is forgotten")
    button(driver, "Preview").click()
    assert '+   "id_cache_size": 200' in one(driver, ".diff").text
    assert "What would be forgotten" in one(driver, "main").text
    button(driver, "Apply").click()
    wait_for(driver, lambda: driver.current_url.startswith(scene.url + "/console/settings?"))
    settings = scene.url + "/console/settings"
    until(driver, settings, lambda: "id_cache_size 200" in one(driver, "main").text)
    audit = scene.url + "/console/audit"
    until(driver, audit, lambda: "to see what is forgotten" in every(driver, "tbody")[0].text)
