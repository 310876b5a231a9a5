"""Headless Chromium that can reach only this host, and records its requests and errors."""

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
    "--no-sandbox",  # it runs as root in CI, and opens only our own pages
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
"""The preference for scripts; 2 blocks them."""


class Look(NamedTuple):
    """Size of the window, and whether its colour scheme is dark."""

    width: int = 1280
    height: int = 860
    is_dark: bool = False


@contextmanager
def opened(look: Look, *, runs_scripts: bool = True) -> Iterator[webdriver.Chrome]:
    """Open a browser with this look, and close it at the end of the block."""
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
    """Apply a look to an open browser."""
    scheme = {"name": "prefers-color-scheme", "value": "dark" if look.is_dark else "light"}
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
    size = {"width": look.width, "height": look.height, "deviceScaleFactor": 1}
    is_phone = {"mobile": look.width < 600}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {**size, **is_phone})


def hosts_asked(driver: webdriver.Chrome) -> set[str]:
    """Return every host that received a request since the last call."""
    found = set()
    for entry in driver.get_log("performance"):  # type: ignore[no-untyped-call]  # selenium leaves it so
        message = json.loads(entry["message"])["message"]
        if message["method"] == "Network.requestWillBeSent":
            url = urlsplit(message["params"]["request"]["url"])
            if url.scheme not in {"data", "blob", "about"}:
                found.add(url.netloc)
    return found


def complaints(driver: webdriver.Chrome) -> list[str]:
    """Return the browser's errors since the last call: a violated policy, a failed script.

    A response with 503 is none: such a page says so itself, and a test that waits for it reloads.
    """
    entries = driver.get_log("browser")  # type: ignore[no-untyped-call]  # selenium leaves it so
    errors = [entry["message"] for entry in entries if entry["level"] == "SEVERE"]
    return [each for each in errors if "status of 503" not in each]
