"""The reports open offline, on a phone as well, in light and dark."""

from pathlib import Path

import pytest
from selenium.webdriver import Chrome

from ringfence_pipeline.quality import report as quality
from ringfence_pipeline.reconcile.report import to_html
from ringfence_pipeline.reconcile.results import Violation
from tests.browser.seen import BROWSER
from tests.unit.pipeline.quality.found import found
from tests.unit.pipeline.reconcile.found import COUNTED, LONG, SHORT, findings
from tools.pictures.browser import Look, complaints, dress, hosts_asked

pytestmark = BROWSER
FAULTS = tuple(Violation("doubled", "orders.unique", 1, n, f"orders-1@{n} again") for n in range(9))


PAGES = {
    "miss": to_html(findings(SHORT, LONG, COUNTED, faults=FAULTS)),
    "dup": quality.to_html(found("a-publisher-with-a-very-long-name-" * 3, None)),
}
"""By a colour of their bars."""


@pytest.mark.parametrize("colour", PAGES)
@pytest.mark.parametrize("look", [Look(), Look(390, 844, is_dark=True)])
def test_a_report_asks_nobody_and_fits_its_window(
    driver: Chrome, tmp_path: Path, look: Look, colour: str
) -> None:
    page = tmp_path / "report.html"
    page.write_text(PAGES[colour], "utf-8")
    dress(driver, look)
    driver.get(page.as_uri())
    width = driver.execute_script("return document.documentElement.scrollWidth")
    cut_off = driver.execute_script(
        "return [...document.querySelectorAll('section')]"
        ".filter(each => each.scrollWidth > each.clientWidth).map(each => each.innerText)"
    )
    bars = driver.execute_script(
        f"return [...document.querySelectorAll('rect.{colour}')]"
        ".filter(bar => bar.getBoundingClientRect().height > 0).length"
    )
    ink = driver.execute_script("return getComputedStyle(document.body).backgroundColor")
    assert (hosts_asked(driver), complaints(driver)) == ({""}, [])
    assert width <= look.width
    assert cut_off == []
    assert bars
    assert ink == ("rgb(18, 22, 29)" if look.is_dark else "rgb(247, 248, 250)")
