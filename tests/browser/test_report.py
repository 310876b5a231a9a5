"""The report of a reconciliation opens offline, on a phone as well, in light and dark."""

import shutil
from pathlib import Path

import pytest

from pipeline.reconcile.findings import Fault
from pipeline.reconcile.report import to_html
from tests.unit.pipeline.reconcile.found import COUNTED, LONG, SHORT, findings
from tools.pictures.browser import Look, complaints, hosts_asked, opened

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(
        shutil.which("chromedriver") is None, reason="chromedriver is not installed"
    ),
]

FAULTS = tuple(Fault("doubled", "orders.unique", 1, n, f"orders-1@{n} again") for n in range(9))


@pytest.mark.parametrize("look", [Look(), Look(390, 844, is_dark=True)])
def test_the_report_asks_nobody_and_fits_its_window(tmp_path: Path, look: Look) -> None:
    page = tmp_path / "report.html"
    page.write_text(to_html(findings(SHORT, LONG, COUNTED, faults=FAULTS)), "utf-8")
    with opened(look) as driver:
        driver.get(page.as_uri())
        width = driver.execute_script("return document.documentElement.scrollWidth")
        bars = driver.execute_script(
            "return [...document.querySelectorAll('rect.miss')]"
            ".filter(bar => bar.getBoundingClientRect().height > 0).length"
        )
        ink = driver.execute_script("return getComputedStyle(document.body).backgroundColor")
        assert (hosts_asked(driver), complaints(driver)) == ({""}, [])
    assert width <= look.width
    assert bars
    assert ink == ("rgb(18, 22, 29)" if look.is_dark else "rgb(247, 248, 250)")
