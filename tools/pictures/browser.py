"""A headless Chromium that reaches this host and nothing else, and tells what it asked for."""

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from selenium import webdriver
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service

ARGUMENTS: Final = (
    "--headless=new",
    "--no-sandbox",  # it runs as root in CI, and sees pages of ours alone
    "--disable-dev-shm-usage",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--hide-scrollbars",
    "--lang=en-GB",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
)
LOADED_S: Final = 30.0
_SCRIPTS: Final = "profile.managed_default_content_settings.javascript"
"""2 is never."""


class Look(NamedTuple):
    """How large the window is, and whether it is dark."""

    width: int = 1280
    height: int = 860
    is_dark: bool = False


@contextmanager
def opened(look: Look, *, runs_scripts: bool = True) -> Iterator[webdriver.Chrome]:
    """A browser of this look, closed at the end."""
    options = Options()
    if not runs_scripts:
        options.add_experimental_option("prefs", {_SCRIPTS: 2})
    for argument in ARGUMENTS:
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"performance": "ALL", "browser": "ALL"})
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    if program is not None:
        options.binary_location = program
    driver = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
    try:
        driver.set_page_load_timeout(LOADED_S)
        dress(driver, look)
        yield driver
    finally:
        driver.quit()


def dress(driver: webdriver.Chrome, look: Look) -> None:
    """Give a browser another look."""
    scheme = {"name": "prefers-color-scheme", "value": "dark" if look.is_dark else "light"}
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
    size = {"width": look.width, "height": look.height, "deviceScaleFactor": 1}
    is_phone = {"mobile": look.width < 600}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {**size, **is_phone})


def hosts_asked(driver: webdriver.Chrome) -> set[str]:
    """Every host that pages have asked for anything since this was asked last."""
    found = set()
    for entry in driver.get_log("performance"):  # type: ignore[no-untyped-call]  # selenium leaves it so
        message = json.loads(entry["message"])["message"]
        if message["method"] == "Network.requestWillBeSent":
            url = urlsplit(message["params"]["request"]["url"])
            if url.scheme not in {"data", "blob", "about"}:
                found.add(url.netloc)
    return found


def complaints(driver: webdriver.Chrome) -> list[str]:
    """What the browser has complained of: a policy that was broken, a script that failed.

    A page that has no answer yet tells so itself, and whoever waits for it loads it again.
    """
    entries = driver.get_log("browser")  # type: ignore[no-untyped-call]  # selenium leaves it so
    told = [entry["message"] for entry in entries if entry["level"] == "SEVERE"]
    return [each for each in told if "status of 503" not in each]
